"""A status of ours that somebody else wrote (decision 0280).

For: the reconcilers that own a status. In: changes of their objects. Out: a watch's mapping and its window.
Promises: the run of any other change in between answers this one too, so that our own writes cost one look at rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube.reconciler import Caches, Key, Object
from nodefeature.fields import name_of, namespace_of

STATUS_WINDOW_S = 30.0
"""What a hand wrote is set right within this time. Nearly all such changes are our own, and each costs a look."""


def status_written(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    """Look at an object whose status somebody wrote: ourselves, or a hand."""
    same = old is None or new is None or old.get("status") == new.get("status")
    return () if same else (Key(name_of(new), namespace_of(new)),)
