"""What acts on a replayed machine: its drivers simulated, its files in a folder of their own.

For: `node`, on a recorded machine. In: the recorded cards, a folder. Out: a host, drivers.
Promises: what the vendors' drivers would have laid out for these cards is there; nothing outside the folder is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from devicemanager.answers import RawCard
from devicemanager.identity import card_id
from devicemanager.injection.cu_mask import CuLayout
from devicemanager.injection.dcmi import DcmiShareFlags
from devicemanager.injection.entrance import Drivers
from devicemanager.injection.host import Host, NodeFacts
from devicemanager.injection.hygon import MIG_CONFIG
from devicemanager.injection.simulated import SimulatedSgpus, SimulatedShareFlags, SimulatedSmlus
from devicemanager.injection.site import PODS_ROOT

# A recording does not hold how compute units are wired; any number that divides them keeps the rules.
_ENGINES = (6, 4, 3, 2, 1)


class RecordedHost(Host):
    """The tree of a replayed machine: a recording holds cards, not files.

    What injection looks for is taken to be there, save its own files, which are really written under `root`. A device
    node carries the minor number recorded for its card.
    """

    def __init__(self, root: Path, cards: Iterable[RawCard] = ()) -> None:
        super().__init__(root)
        listed = [card for card in cards if card.uuid and card.health != "lost"]
        self._minors = {
            f"/dev/alixpu_ppu{index}": card.physical_indexes[0]
            for index, card in enumerate(card for card in listed if card.manufacturer == "thead")
            if card.physical_indexes
        }
        self._described = {
            f"{MIG_CONFIG}/dev{card.index}": card.pci_address for card in listed if card.manufacturer == "hygon"
        }

    def exists(self, path: str) -> bool:
        """Say whether a path is there: our own are looked up, others are taken to be."""
        return super().exists(path) if path.startswith(PODS_ROOT) else True

    def node(self, path: str) -> NodeFacts | None:
        """Return a character device; its minor number is recorded, or the one its name ends with."""
        digits = path[len(path.rstrip("0123456789")) :]
        return NodeFacts(character=True, minor=self._minors.get(path, int(digits) if digits else 0))

    def read(self, path: str) -> str | None:
        """Return a file's text; what Hygon's driver writes of its cards is known without a file."""
        return self._described.get(path) or super().read(path)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        if folder == MIG_CONFIG:
            return sorted(path.rpartition("/")[2] for path in self._described)
        return super().names(folder)


def recorded_drivers(cards: Sequence[RawCard]) -> Drivers:
    """Return simulated drivers of recorded cards."""
    amd = [card for card in cards if card.manufacturer == "amd" and card.cores]
    return Drivers(
        share_flag=SimulatedShareFlags(),
        sgpu=SimulatedSgpus(),
        smlu=SimulatedSmlus(),
        layouts={card_id(card.uuid): _layout(card) for card in amd},
    )


def host_drivers() -> Drivers:
    """Return the drivers of this machine. MetaX' and Cambricon's slices need a driver interface that is not there."""
    return Drivers(share_flag=DcmiShareFlags())


def _layout(card: RawCard) -> CuLayout:
    units = card.cores or 0
    gfx = card.compute_capability or ""
    engines = next(number for number in _ENGINES if units % (2 * number) == 0 or number == 1)
    return CuLayout(gfx=gfx, compute_units=units, shader_engines=engines, dies=1)
