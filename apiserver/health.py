"""Health endpoints, check by check (spec 03 B9).

For: kubelets, load balancers, people. In: named checks. Out: `/livez`, `/readyz`, `/healthz`, each also `/<check>`.
Promises: answers need no credentials and no API server; a failure names every check and why; `?verbose` and
`?exclude=<check>` as kube-apiserver knows them; ready is more than live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qs

from apiserver.rest.responses import Scope, Send, send_bytes

Check = Callable[[], str]
"""Answers what is wrong; empty when nothing is."""

_TEXT = "text/plain; charset=utf-8"
_NO_CACHE = ((b"cache-control", b"no-cache, private"), (b"x-content-type-options", b"nosniff"))


def fine() -> str:
    """Find nothing wrong."""
    return ""


class HealthEndpoints:
    """Answers health paths. `live` checks are part of every endpoint."""

    def __init__(self, live: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        alive = {"ping": fine, "log": fine, **live}
        self._checks = {"healthz": alive, "livez": alive, "readyz": {**alive, **ready}}

    def serves(self, scope: Scope) -> bool:
        """Say whether a request is for one of these endpoints."""
        return scope["raw_path"].split(b"/")[1:2] in ([b"healthz"], [b"livez"], [b"readyz"])

    async def __call__(self, scope: Scope, send: Send) -> None:
        """Answer."""
        if scope["method"] not in ("GET", "HEAD"):
            await send_bytes(send, b"method not allowed\n", code=405, content_type=_TEXT, headers=((b"allow", b"GET"),))
            return
        code, text = self.answer(scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1"))
        await send_bytes(send, text.encode(), code=code, content_type=_TEXT, headers=_NO_CACHE)

    def answer(self, path: str, query: str) -> tuple[int, str]:
        """Return status and text of one endpoint."""
        endpoint, _, name = path.strip("/").partition("/")
        checks = self._checks[endpoint]
        if name:
            check = checks.get(name)
            why = check() if check is not None else ""
            if check is None:
                return 404, f"there is no check {name!r}\n"[:256]
            return (500, f"internal server error: {why}\n") if why else (200, "ok")
        parameters = parse_qs(query, keep_blank_values=True)
        excluded = set(parameters.get("exclude", ()))
        found = {check: ask() for check, ask in checks.items() if check not in excluded}
        lines = [f"[-]{check} failed: {why}" if why else f"[+]{check} ok" for check, why in found.items()]
        lines += [f"[+]{check} excluded: ok" for check in checks if check in excluded]
        if any(found.values()):
            return 500, "\n".join([*lines, f"{endpoint} check failed", ""])
        return 200, "\n".join([*lines, f"{endpoint} check passed", ""]) if "verbose" in parameters else "ok"
