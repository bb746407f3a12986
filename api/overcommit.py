"""What an Instance requests of CPU, memory and storage when general resources are overcommitted.

For: the Pod that an Instance renders; the CPU view, which scales reservations back (spec 05 §8.2, spec 01 §12.3).
In: limits as quantities. Out: requests. Promises: exact; never more than the limit.
"""

from __future__ import annotations

from nodefeature.quantity import Quantity, of_mib, of_milli

CPU_ONLY_MILLI_PER_CORE = 800
ACCELERATED_MILLI_PER_CORE = 100
MIB_PER_GIB = 128
_GIB = 2**30


def cpu_request(limit: Quantity, *, accelerated: bool) -> Quantity:
    """Return the CPU request: 100m (accelerated) or 800m a core, a part of a core counting as one."""
    per_core = ACCELERATED_MILLI_PER_CORE if accelerated else CPU_ONLY_MILLI_PER_CORE
    return min(of_milli(per_core * max(limit.ceil(), 0)), limit)


def bytes_request(limit: Quantity) -> Quantity:
    """Return the memory or storage request: 128Mi for each whole GiB."""
    return of_mib(MIB_PER_GIB * max(limit.floor() // _GIB, 0))
