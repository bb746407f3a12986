"""The real control plane that all of `tests/e2e` shares.

Collected only when this folder, or a file of it, is asked for: it takes minutes where unit tests take milliseconds.
A machine without the built tools fails here with what to run; nothing is skipped.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from hack.controlplane.admin import Admin
from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from tests.e2e.parts import PartScheduling
from tests.e2e.scenarios import Scenarios

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Let a run of this folder end with its table of scenarios; workers of a spread run leave it to their head."""
    if _is_named(config):
        end_as_by_interrupt()
    if _is_named(config) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Scenarios(REPOSITORY / "build" / "e2e" / "scenarios.md"), "e2e-scenarios")


def end_as_by_interrupt() -> None:
    """Let SIGTERM end a run as Ctrl-C does: fixtures stop what they started, which has sessions of its own."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Spread a run by its parts."""
    return PartScheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this folder out of a run that did not name it."""
    return None if _is_named(config) else True


def _is_named(config: pytest.Config) -> bool:
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    return any(path.is_relative_to(HERE) for path in named)


@pytest.fixture(scope="session")
def control_plane(worker_id: str) -> Iterator[ControlPlane]:
    """Start one control plane; its state and logs stay in `.state/e2e-*` for a look afterwards."""
    with ControlPlane(REPOSITORY / ".state" / f"e2e-{worker_id}") as running:
        yield running


@pytest.fixture
def admin(control_plane: ControlPlane) -> Admin:
    """Return the administrator's client."""
    return control_plane.admin


@pytest.fixture(autouse=True)
def processes_live(control_plane: ControlPlane) -> Iterator[None]:
    """Fail the test during which a process of the control plane died."""
    yield
    control_plane.check()
