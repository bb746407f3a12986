"""The pages around the API: version, documents for people, metrics. A FastAPI application.

For: `app`, whose engine has authenticated and authorized before anything here runs. In: ASGI requests for `paths`.
Out: answers.
Promises: every page also stands below each of our group versions, because that is what the aggregator passes on:
`kubectl proxy` then shows it under `/apis/worker.gpustack.ai/v1/docs`, with the rights of whoever asks.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from apiserver.docs_page import POLICY, page
from apiserver.rest import status
from apiserver.rest.negotiation import encode
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.responses import Receive, Scope, Send
from apiserver.rest.storage import User

TITLE = "GPUStack Operator API"
_METHODS = ["GET", "HEAD"]


class Shell:
    """The application and the paths it answers. `document` makes the OpenAPI document of the moment."""

    def __init__(
        self,
        *,
        version: str,
        prefixes: Sequence[str],
        document: Callable[[], Mapping[str, Any]],
        registry: CollectorRegistry,
    ) -> None:
        self._version = version
        self._document = document
        self._registry = registry
        self.app = FastAPI(title=TITLE, version=version, openapi_url=None, docs_url=None, redoc_url=None)
        self.paths = ["/version", "/metrics"]
        self.app.add_api_route("/version", self._show_version, methods=_METHODS)
        self.app.add_api_route("/metrics", self._show_metrics, methods=_METHODS)
        for prefix in ("", *prefixes):
            for path, endpoint in (("/docs", self._show_docs), ("/openapi.json", self._show_document)):
                self.app.add_api_route(prefix + path, endpoint, methods=_METHODS)
                self.paths.append(prefix + path)

    async def serve(self, info: RequestInfo, user: User, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that the engine let through."""
        if scope["method"] not in _METHODS:
            raise status.method_not_allowed(info.resource or info.path, info.group, info.verb)
        # The engine's reading of the path is the one that was authorized.
        await self.app({**scope, "path": info.path, "raw_path": info.path.encode()}, receive, send)

    async def _show_version(self) -> Response:
        major, minor = (*self._version.split("."), "0")[:2]
        return _json(
            {
                "major": major,
                "minor": minor,
                "gitVersion": f"v{self._version}",
                "gitCommit": "",
                "gitTreeState": "",
                "buildDate": "1970-01-01T00:00:00Z",
                "goVersion": "",
                "compiler": platform.python_implementation(),
                "platform": f"{platform.system().lower()}/{platform.machine()}",
            }
        )

    async def _show_document(self) -> Response:
        return _json(self._document())

    async def _show_docs(self) -> Response:
        return HTMLResponse(page(self._document(), title=TITLE), headers={"content-security-policy": POLICY})

    async def _show_metrics(self) -> Response:
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})


def _json(document: Mapping[str, Any]) -> Response:
    return Response(encode(document), media_type="application/json")
