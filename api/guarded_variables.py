"""Variables by which a container sees more cards, or gets more of one, than it holds.

For: the Pod and Instance webhooks (design §8.7, case B012). Why: a container's own variables come after the device
plugin's, so the container's win.
In: names of variables, manufacturers. Out: whether a name is guarded; what tells a manufacturer's runtime to show none.
Promises: variables that only narrow (`CUDA_VISIBLE_DEVICES`) or only speak (log levels) are left to the user.
The limit: only `env` can be judged; `envFrom` names ConfigMaps and Secrets, whose content is not in the Pod (decision
0502).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.problems import Fault, Problem, problem
from nodefeature.fields import as_maps, as_str


@dataclass(frozen=True, slots=True)
class Guard:
    """One manufacturer's variables. `none` is the value of `visible` that shows nothing."""

    visible: str = ""
    none: str = ""
    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()


_LIBVGPU = (
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_SM_LIMIT",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE",
    "CUDA_DISABLE_CONTROL",
    "CUDA_OVERSUBSCRIBE",
    "GPU_CORE_UTILIZATION_POLICY",
)

GUARDS: Mapping[str, Guard] = {
    "amd": Guard("AMD_VISIBLE_DEVICES", "none", frozenset({"ROCR_VISIBLE_DEVICES", "HSA_CU_MASK"}), ("VROCM_",)),
    "ascend": Guard("ASCEND_VISIBLE_DEVICES", "void", frozenset({"ASCEND_RUNTIME_OPTIONS", "ASCEND_VNPU_SPECS"}), ()),
    "cambricon": Guard("CAMBRICON_VISIBLE_DEVICES", "none"),
    "hygon": Guard(names=frozenset({"DMI_MIG_VISIBLE_DEVICE"})),
    "iluvatar": Guard("IX_VISIBLE_DEVICES", "none", prefixes=_LIBVGPU),
    "metax": Guard(names=frozenset({"METAX_SGPUS"})),
    "mthreads": Guard("MTHREADS_VISIBLE_DEVICES", "none", prefixes=("MTHREADS_QOS_",)),
    "nvidia": Guard(
        "NVIDIA_VISIBLE_DEVICES",
        "void",
        frozenset({"NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_IMEX_CHANNELS"}),
        _LIBVGPU,
    ),
    "thead": Guard(prefixes=("HGGC_DEVICE_", "HGGC_LEDGER_PATH")),
}

_NAMES = frozenset(name for guard in GUARDS.values() for name in (*guard.names, guard.visible) if name)
_PREFIXES = tuple(sorted({prefix for guard in GUARDS.values() for prefix in guard.prefixes}))


def is_guarded(name: str) -> bool:
    """Say whether a container that runs beside cards may not set this variable."""
    return name in _NAMES or name.startswith(_PREFIXES)


def guarded_problems(env: object, path: str, *, held: Iterable[object] = ()) -> list[Problem]:
    """Return a problem for each guarded variable of a raw `env` list that is not among `held` ones."""
    known = list(held)
    return [
        problem(
            f"{path}[{index}].name",
            variable.get("name"),
            f"{variable.get('name')} says which cards a container sees or how much of one it gets; "
            "what it holds is decided by its resources, so leave the variable out",
            Fault.FORBIDDEN,
        )
        for index, variable in enumerate(as_maps(env))
        if is_guarded(as_str(variable.get("name"))) and variable not in known
    ]
