"""Units and credits: what a whole accelerator and its parts count.

For: folds of Pods, quotas, capacity keys, the four views (spec 01 §9).
In/Out: exact integers and `Quantity`.
Promises: whole numbers only, rounded down unless said otherwise; one accelerator is `CREDITS_PER_ACCELERATOR`.
"""

from __future__ import annotations

from nodefeature.quantity import Quantity, of, of_micro

# 2^9 x 5^5: every slice count up to 512, ten owners and a percent divide it, and it divides 10^9.
CREDITS_PER_ACCELERATOR = 1_600_000
SHARED_MAX_OWNERS = 10
MAX_SLICES = 512
UNITS_PER_SHARE = CREDITS_PER_ACCELERATOR // SHARED_MAX_OWNERS
UNITS_PER_PERCENT = CREDITS_PER_ACCELERATOR // 100
_MICRO = 10**6


def accelerators_to_credits(accelerators: int) -> Quantity:
    """Return the credits of whole accelerators."""
    return of(accelerators * CREDITS_PER_ACCELERATOR)


def credits_to_accelerators(amount: Quantity) -> Quantity:
    """Return how many accelerators credits are, in millionths: fractional credits are rounded up first."""
    return of_micro(amount.ceil() * _MICRO // CREDITS_PER_ACCELERATOR)


def memory_percentage_to_units(percent: int) -> int:
    """Return the units of a slice given as percent of a card's memory."""
    return percent * CREDITS_PER_ACCELERATOR // 100


def memory_mib_to_units(mib: int, card_mib: int) -> int:
    """Return the units of a slice or profile of `mib` on a card of `card_mib`; 0 when the card's memory is unknown."""
    return mib * CREDITS_PER_ACCELERATOR // card_mib if card_mib > 0 else 0


def is_slice_size(slices: int) -> bool:
    """Say whether `slices` is a size that helpers know: a power of two from 1 to 512."""
    return 1 <= slices <= MAX_SLICES and slices & (slices - 1) == 0


def is_partition_count(slices: int) -> bool:
    """Say whether an accelerator can be cut into `slices`: a power of two from 2 to 512."""
    return slices > 1 and is_slice_size(slices)


def slice_count(amount: Quantity, slices: int) -> Quantity:
    """Return how many whole slices, of `slices` an accelerator, an amount of accelerators is."""
    return of((amount * slices).floor()) if is_slice_size(slices) else amount


def slices_to_units(amount: Quantity, slices: int) -> Quantity:
    """Return the units of an amount of slices, of `slices` an accelerator."""
    return Quantity((amount * (CREDITS_PER_ACCELERATOR // slices)).nano) if is_slice_size(slices) else amount


def units_to_slices(amount: Quantity, slices: int) -> Quantity:
    """Return how many slices, of `slices` an accelerator, an amount of units is, in millionths."""
    if not is_slice_size(slices):
        return amount
    return of_micro(amount.nano // 1000 // (CREDITS_PER_ACCELERATOR // slices))
