"""InstanceTypeFlavor: the catalogue of pools, computed from the operator's ResourceFlavors (spec 02 §5).

Promises: nothing is stored or cached; versions are those of the ResourceFlavors, so a list's version starts a watch; a
row carries the version at which it was computed, which informers need to go on from. Where Kueue is not installed the
catalogue is empty, never an error: garbage collection of the whole cluster waits for every list it knows of.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from api.crds import CATEGORY
from api.instance_type_flavor import flavors_of
from api.models.mapped_kinds import InstanceTypeFlavor
from api.schema import structural
from api.settings import SECRET_NAME, settings_of
from apiserver.context import Context
from apiserver.mapping.refusals import not_found, translated
from apiserver.mapping.rows import Follower, Row, by_name, selected
from apiserver.mapping.served import with_name_and_age
from apiserver.mapping.stream import BackingStream, EmptyStream
from apiserver.rest.negotiation import encode
from apiserver.rest.options import ListOptions, WatchOptions
from apiserver.rest.storage import Call, Column, Document, EventStream, Page, Resource, Unserved
from kube.client import Client
from kube.errors import NotFound
from kube.reconciler import Object, Rule
from kube.requests import ListOptions as BackingOptions
from nodefeature.fields import name_of
from nodefeature.kinds import INSTANCE_TYPE, RESOURCE_FLAVOR, SECRET, Kind
from nodefeature.labels import RESOURCE_TYPE, SYSTEM_NAMESPACE, TYPE_NODES

KIND = Kind("worker.gpustack.ai", "v1", "instancetypeflavors", "InstanceTypeFlavor", namespaced=False)
RBAC = (
    Rule(RESOURCE_FLAVOR.group, "resourceflavors", ("list", "watch")),
    Rule(INSTANCE_TYPE.group, "instancetypes", ("list",)),
    Rule("", "secrets", ("get",), namespace=SYSTEM_NAMESPACE),
)
LOOK_AGAIN_S = 30.0
"""A watch ends after this long where Kueue is not installed: the client's next one finds whether it is by then."""
_OPERATOR_FLAVORS = f"{RESOURCE_TYPE}={TYPE_NODES}"
Rows = list[Row]  # inside the class, `list` is a verb
COLUMNS = (
    Column("GeneralGroup", ".spec.generalGroup"),
    Column("AcceleratorGroup", ".spec.acceleratorGroup"),
    Column("Acceleratable", ".spec.acceleratable", type="boolean"),
    Column("Manufacturer", ".spec.manufacturer"),
    Column("Product", ".spec.product"),
    Column("Memory", ".spec.memory"),
    Column("Cores", ".spec.cores"),
)


class Catalogue(Unserved):
    """Get, list and watch of the rows."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def get(self, call: Call) -> Document:
        """Return one row."""
        rows, version = await self._read(call, BackingOptions(label_selector=_OPERATOR_FLAVORS))
        for row in await self._rows(call, rows, version):
            if name_of(row) == call.info.name:
                return Document(encode(row))
        raise not_found(call.info)

    async def list(self, call: Call, options: ListOptions) -> Page:
        """Return the whole catalogue: it has few rows, so `limit` is not used and no page token is ever given."""
        version = str(options.resource_version or "")
        match = options.match or ("NotOlderThan" if version else "")
        found, version = await self._read(call, _flavors(call, version, match))
        rows = await self._rows(call, found, version)
        wanted = selected(rows, ListOptions(fields=options.fields))
        return Page([Document(encode(row)) for row in wanted], version)

    async def watch(self, call: Call, options: WatchOptions) -> EventStream:
        """Open a watch; one from an old version first tells what led from there to now (see `Follower`)."""
        version = str(options.resource_version or "")
        found, known = await self._read(call, _flavors(call, version, "NotOlderThan" if version else ""))
        if found is None:
            return EmptyStream(known, lasts_s=LOOK_AGAIN_S)

        async def compute(flavors: Sequence[Object], at_version: str) -> dict[str, Row]:
            rows = await self._rows(call, flavors, at_version)
            return by_name(selected(rows, ListOptions(fields=options.fields)))

        follower = Follower(compute, found, known)
        await follower.start()
        initial = [Document(encode(row)) for row in follower.rows.values()] if options.initial else []
        start = known if options.initial else version
        asked = BackingOptions(label_selector=_selector(call), resource_version=start)
        stream = BackingStream(initial, start)
        return await stream.open(self._client, RESOURCE_FLAVOR, "", asked, info=call.info, convert=follower.convert)

    async def _read(self, call: Call, asked: BackingOptions) -> tuple[Sequence[Object] | None, str]:
        """Return the flavors and their version; None, and the store's version, where Kueue is not installed."""
        with translated(call.info, RESOURCE_FLAVOR):
            with suppress(NotFound):
                return await self._client.list_all(RESOURCE_FLAVOR, "", asked)
            page = await self._client.list_page(INSTANCE_TYPE, "", BackingOptions(limit=1))
            return None, page.resource_version

    async def _rows(self, call: Call, found: Sequence[Object] | None, version: str) -> Rows:
        return rows_of(found, version, aware=await self._is_aware(call)) if found else []

    async def _is_aware(self, call: Call) -> bool:
        with translated(call.info, SECRET):
            try:
                secret = await self._client.get(SECRET, SECRET_NAME, self._namespace)
            except NotFound:
                secret = None
        return settings_of(secret).settings.instance_type_aware_cpu_manufacturer


def rows_of(flavors: Sequence[Object], version: str, *, aware: bool) -> list[Row]:
    """Return the catalogue as v1 objects."""
    rows: list[Row] = []
    for row in flavors_of(flavors, aware=aware):
        metadata: dict[str, Any] = {**row["metadata"], "resourceVersion": version}
        rows.append({"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": metadata, "spec": row["spec"]})
    return rows


def _selector(call: Call) -> str:
    return ",".join(filter(None, (_OPERATOR_FLAVORS, call.info.query.get("labelSelector", ""))))


def _flavors(call: Call, version: str, match: str) -> BackingOptions:
    return BackingOptions(label_selector=_selector(call), resource_version=version, resource_version_match=match)


def resource(context: Context) -> Resource:
    """Return the served resource."""
    return Resource(
        group=KIND.group,
        version=KIND.version,
        plural=KIND.plural,
        kind=KIND.kind,
        namespaced=False,
        storage=Catalogue(context.client, context.system_namespace),
        verbs=("get", "list", "watch"),
        short_names=("instypeflavor",),
        categories=(CATEGORY,),
        columns=with_name_and_age(COLUMNS),
        schema=structural(InstanceTypeFlavor),
    )
