"""What a request asks an authorizer, and the words of a refusal (spec 03 B2.6).

For: authorizers of the devcluster and the aggregated server. In: a user and a `RequestInfo`. Out: `Attributes`, a 403.
Promises: a name that only a field selector shows is judged like a name in the path.
"""

from __future__ import annotations

from dataclasses import dataclass

from apiserver.rest import status
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.status import Refusal


@dataclass(frozen=True, slots=True)
class Attributes:
    """One question: may somebody do `verb` on this? `path` is set for what is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """Return the word that rules use: `pods` or `pods/status`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def attributes_of(info: RequestInfo) -> Attributes:
    """Return the question that a request asks."""
    if not info.is_resource:
        return Attributes(info.verb, path=info.path)
    name = info.name or info.selected_name
    return Attributes(info.verb, info.group, info.resource, info.subresource, info.namespace, name)


def denied(user: str, asked: Attributes) -> Refusal:
    """Return the 403 of a request, in kube-apiserver's words."""
    if asked.path:
        text = f'forbidden: User "{user}" cannot {asked.verb} path "{asked.path}"'
        return Refusal(403, "Forbidden", text)
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    what = f'resource "{asked.full_resource}" in API group "{asked.group}"'
    return status.forbidden(
        asked.resource, asked.group, asked.name, f'User "{user}" cannot {asked.verb} {what} {where}'
    )
