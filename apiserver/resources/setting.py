"""Setting: one key of Secret `gpustack-settings` (spec 02 §12.1, 03 A5).

Promises: only the system namespace has settings; a sensitive value is never shown; a write changes one key, on
condition of the version it was computed from; what the value's own rule refuses is 409 with that rule; unknown keys of
the Secret are no settings. Metadata is the Secret's: a setting has none of its own to write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from api.crds import CATEGORY
from api.models.mapped_kinds import Setting
from api.schema import structural
from api.secret_data import encoded
from api.setting import setting_names, status_of, write_problems
from api.setting_rules import SettingInvalid
from api.settings import BY_NAME, SECRET_NAME, Declaration, decode
from apiserver.context import Context
from apiserver.forwarding import strategic
from apiserver.mapping import strictness
from apiserver.mapping.patches import states_version
from apiserver.mapping.refusals import not_found, translated
from apiserver.mapping.rows import Follower, Row, by_name, selected
from apiserver.mapping.served import with_name_and_age
from apiserver.mapping.stream import BackingStream
from apiserver.rest import status
from apiserver.rest.negotiation import encode
from apiserver.rest.options import ListOptions, WatchOptions, WriteOptions
from apiserver.rest.patch import Patch, PatchType
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.storage import Call, Column, Document, Page, Resource, Unserved, Written
from kube.client import Client
from kube.errors import Conflict, NotFound
from kube.reconciler import Object, Rule
from kube.requests import ListOptions as BackingOptions
from nodefeature.fields import annotations_of, as_map, as_str, at
from nodefeature.kinds import SECRET, Kind
from nodefeature.labels import NOTE_PREFIX, SYSTEM_NAMESPACE

KIND = Kind("gpustack.ai", "v1", "settings", "Setting", namespaced=True)
RBAC = (Rule("", "secrets", ("get", "list", "watch", "patch"), namespace=SYSTEM_NAMESPACE),)
COLUMNS = (Column("Value", ".status.value"),)
CONFLICT_RETRIES = 5
_ONE = f"metadata.name={SECRET_NAME}"
_WARNED = "instance-type-aware-cpu-manufacturer"
_WARNING = "device flavors are derived anew: their queues drain and running Instances move"
_SCHEMA = structural(Setting)
Change = Callable[[Row], Row]


class SettingStorage(Unserved):
    """Get, list, watch, update and patch of the Secret's keys."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    # Reads

    async def get(self, call: Call) -> Document:
        """Return one setting."""
        secret = await self._secret(call.info)
        row = by_name(rows_of(secret)).get(call.info.name) if secret is not None else None
        if row is None:
            raise not_found(call.info)
        return Document(encode(row))

    async def list(self, call: Call, options: ListOptions) -> Page:
        """Return every setting, by name; none in another namespace, or while there is no Secret."""
        version = str(options.resource_version or "")
        secret, version = await self._listed(call.info, version, options.match or ("NotOlderThan" if version else ""))
        rows = rows_of(secret) if self._is_home(call.info) else []
        return Page([Document(encode(row)) for row in selected(rows, options)], version)

    async def watch(self, call: Call, options: WatchOptions) -> BackingStream:
        """Open a watch; one from an old version first tells what led from there to now (see `Follower`)."""
        info, version = call.info, str(options.resource_version or "")
        secret, known = await self._listed(info, version, "NotOlderThan" if version else "")
        home = self._is_home(info)

        async def compute(secrets: Sequence[Object], at_version: str) -> dict[str, Row]:
            return by_name([row for each in secrets for row in selected(rows_of(each), options)]) if home else {}

        follower = Follower(compute, [secret] if secret is not None else [], known)
        await follower.start()
        initial = [Document(encode(row)) for row in follower.rows.values()] if options.initial else []
        start = known if options.initial else version
        asked = BackingOptions(field_selector=_ONE, resource_version=start)
        stream = BackingStream(initial, start)
        return await stream.open(self._client, SECRET, self._namespace, asked, info=info, convert=follower.convert)

    async def _listed(self, info: RequestInfo, version: str, match: str) -> tuple[Object | None, str]:
        asked = BackingOptions(field_selector=_ONE, resource_version=version, resource_version_match=match)
        with translated(info, SECRET):
            page = await self._client.list_page(SECRET, self._namespace, asked)
        return (page.items[0] if page.items else None), page.resource_version

    async def _secret(self, info: RequestInfo) -> Object | None:
        if not self._is_home(info):
            return None
        with translated(info, SECRET):
            try:
                return await self._client.get(SECRET, SECRET_NAME, self._namespace)
            except NotFound:
                return None

    def _is_home(self, info: RequestInfo) -> bool:
        return info.namespace in ("", self._namespace)

    # Writes

    async def update(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Set the value that an object carries."""
        stated = bool(at(obj, "metadata", "resourceVersion"))
        return await self._write(call, lambda shown: obj, options, once=stated)

    async def patch(self, call: Call, patch: Patch, options: WriteOptions) -> Written:
        """Set the value that a patched or applied object carries."""
        if patch.type is PatchType.APPLY:
            return await self._write(call, lambda shown: dict(patch.body), options, once=False)
        if patch.type is PatchType.STRATEGIC:
            strategic.check(patch.body)
        return await self._write(call, patch.apply, options, once=states_version(patch))

    async def _write(self, call: Call, change: Change, options: WriteOptions, *, once: bool) -> Written:
        info, turn = call.info, 0
        while True:
            turn += 1
            secret = await self._secret(info)
            shown = by_name(rows_of(secret)).get(info.name) if secret is not None else None
            if secret is None or shown is None:
                raise not_found(info)
            obj = change(shown)
            warnings = self._judge(info, obj, shown, options)
            value, declaration = at(obj, "spec", "value"), BY_NAME[info.name]
            if value is None or _is_set(secret, declaration, value):
                return Written(Document(encode(shown)), warnings=warnings)
            _check_value(info, declaration, value, secret)
            try:
                with translated(info, SECRET):
                    written = await self._put(info, secret, value, options)
            except status.Refusal as refusal:
                if not isinstance(refusal.__cause__, Conflict) or once or turn == CONFLICT_RETRIES:
                    raise
                continue
            extra = (_WARNING,) if info.name == _WARNED else ()
            return Written(Document(encode(by_name(rows_of(written))[info.name])), warnings=(*warnings, *extra))

    def _judge(self, info: RequestInfo, obj: Mapping[str, Any], shown: Row, options: WriteOptions) -> tuple[str, ...]:
        """Refuse another object, another version, a fixed setting; return warnings about unknown fields."""
        for key in ("name", "namespace"):
            if at(obj, "metadata", key) not in (None, "", at(shown, "metadata", key)):
                raise status.bad_request(f"metadata.{key} may not change")
        for key, why in (("uid", "the uid is another"), ("resourceVersion", status.STALE)):
            given = at(obj, "metadata", key)
            if given and given != at(shown, "metadata", key):
                raise status.conflict(info.resource, info.group, info.name, why)
        if not BY_NAME[info.name].editable:
            raise status.forbidden(info.resource, info.group, info.name, "setting is not editable")
        unknown = strictness.unknown_fields(_SCHEMA, obj)
        patching = info.verb == "patch"
        return strictness.judge(unknown, options.field_validation, kind=KIND.kind, group=info.group, patching=patching)

    async def _put(self, info: RequestInfo, secret: Object, value: str, options: WriteOptions) -> Object:
        client = self._client.as_manager(options.field_manager)
        version = as_str(at(secret, "metadata", "resourceVersion"))
        patch = {"metadata": {"resourceVersion": version}, "data": {info.name: encoded(value)}}
        return await client.patch(SECRET, SECRET_NAME, patch, self._namespace, dry_run=options.dry_run)


def _is_set(secret: Mapping[str, Any], declaration: Declaration, value: Any) -> bool:
    data = as_map(secret.get("data"))
    try:
        return declaration.name in data and decode(data[declaration.name]) == value
    except SettingInvalid:
        return False


def _check_value(info: RequestInfo, declaration: Declaration, value: Any, secret: Mapping[str, Any]) -> None:
    if not isinstance(value, str):
        raise status.bad_request("spec.value must be a string")
    problems = write_problems(declaration, value, as_map(secret.get("data")))
    if problems:
        texts = "; ".join(str(problem) for problem in problems)
        raise status.conflict(info.resource, info.group, info.name, texts)


def rows_of(secret: Mapping[str, Any] | None) -> list[Row]:
    """Return the settings that a Secret holds, by name."""
    if secret is None:
        return []
    data, meta = as_map(secret.get("data")), as_map(secret.get("metadata"))
    rows: list[Row] = []
    for name in setting_names(data):
        metadata = {
            "name": name,
            "namespace": meta.get("namespace"),
            "uid": annotations_of(secret).get(f"{NOTE_PREFIX}{name}-uid") or meta.get("uid"),
            "resourceVersion": meta.get("resourceVersion"),
            "creationTimestamp": meta.get("creationTimestamp"),
        }
        state = status_of(BY_NAME[name], data)
        rows.append({"apiVersion": KIND.api_version, "kind": KIND.kind, "metadata": metadata, "status": state})
    return rows


def resource(context: Context) -> Resource:
    """Return the served resource."""
    return Resource(
        group=KIND.group,
        version=KIND.version,
        plural=KIND.plural,
        kind=KIND.kind,
        namespaced=True,
        storage=SettingStorage(context.client, context.system_namespace),
        verbs=("get", "list", "patch", "update", "watch"),
        short_names=("set",),
        categories=(CATEGORY,),
        columns=with_name_and_age(COLUMNS),
        patch_types=(PatchType.JSON, PatchType.MERGE, PatchType.APPLY, PatchType.STRATEGIC),
        schema=_SCHEMA,
    )
