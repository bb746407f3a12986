"""The route: what is no question, what is too large, what fails; every answer on the wire."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry

from apiserver.webhooks import review, route
from apiserver.webhooks.configurations import MUTATING, VALIDATING
from apiserver.webhooks.route import HANDLERS, MAX_BODY_BYTES, Webhooks
from tests.builders.admission import POOLS, DictWorld, pod
from tests.builders.rows import case_json

POD, POD_RULES = "/mutate-gpustack-worker-core-v1-pod", "/validate-gpustack-worker-core-v1-pod"
INSTANCE = "/validate-worker-gpustack-ai-v1alpha1-instance"


def asked(obj: Any, *, kind: str = "Pod", group: str = "", operation: str = "CREATE", **more: Any) -> dict[str, Any]:
    what = {"group": group, "version": "v1", "kind": kind}
    request = {"uid": "u-1", "kind": what, "operation": operation, "object": obj, "name": "p", **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def ask(
    path: str, body: Any, *, method: str = "POST", world: DictWorld | None = None, fault: str = ""
) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async def run() -> None:
        hooks = Webhooks(world or DictWorld(), fault=lambda: fault, registry=CollectorRegistry())
        headers = [(b"content-length", str(len(data)).encode())]
        scope = {"type": "http", "method": method, "raw_path": path.encode(), "headers": headers}
        assert hooks.serves(scope)
        await hooks(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_every_entry_has_its_handler() -> None:
    assert {entry.path: entry.kind for entry in (*MUTATING, *VALIDATING)} == {
        p: kind for p, (kind, _) in HANDLERS.items()
    }


def test_a_patch_on_the_wire() -> None:
    obj = pod([{"asks": {"nvidia.com/gpu.sliced": "1", "nvidia.com/gpu.sliced.memory-percentage": "20"}}])
    code, answer = ask(POD, asked(obj))
    assert code == 200
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    paths = [operation["path"] for operation in json.loads(base64.b64decode(response["patch"]))]
    assert "/spec/containers/0/resources/limits/nvidia.com~1gpu.sliced.units" in paths


def test_a_refusal_on_the_wire() -> None:
    code, answer = ask(POD_RULES, asked(pod([{"asks": {"nvidia.com/gpu.sliced": "1"}}])))
    status = answer["response"]["status"]
    assert (code, answer["response"]["allowed"], status["code"], status["reason"]) == (200, False, 422, "Invalid")
    assert status["details"]["causes"][0]["reason"] == "FieldValueRequired"
    assert "patch" not in answer["response"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        ({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}, 400),
        ({"apiVersion": "admission.k8s.io/v1", "kind": "Pod"}, 400),
        ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, 400),
        ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 7}}, 400),
        (b"x" * (MAX_BODY_BYTES + 1), 413),
        (orjson.dumps(asked("DEEP")).replace(b'"DEEP"', b'{"a":' * 1000 + b"1" + b"}" * 1000), 400),
    ],
    ids=[
        "nothing",
        "cut",
        "a list",
        "null",
        "an unknown version",
        "another kind",
        "no request",
        "no uid",
        "too large",
        "nested 1,000 deep",
    ],
)
def test_what_is_no_question(body: Any, code: int) -> None:
    found, answer = ask(POD, body)
    assert (found, answer["kind"], answer["status"]) == (code, "Status", "Failure")


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (POD, asked(None), "request.object"),
        (POD, asked("text"), "request.object"),
        (POD, asked({"kind": "Job"}), "request.object.kind"),
        (POD, asked({}, kind="Node"), "request.kind"),
        (
            INSTANCE,
            asked({"spec": {}}, kind="Instance", group="worker.gpustack.ai", operation="UPDATE", oldObject=None),
            "request.oldObject",
        ),
        (INSTANCE, asked({"spec": {}}, kind="Instance", group="other"), "request.kind"),
    ],
    ids=[
        "no object",
        "an object of another type",
        "another kind inside",
        "another kind",
        "oldObject null on UPDATE",
        "another group",
    ],
)
def test_questions_that_cannot_be_judged(path: str, body: Any, says: str) -> None:
    code, answer = ask(path, body)
    assert code == 200
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["code"] == 400
    assert says in answer["response"]["status"]["message"]


@pytest.mark.parametrize("path", HANDLERS)
@pytest.mark.parametrize(
    "obj", [{}, {"metadata": None}, {"metadata": [], "spec": []}, {"spec": {"podSets": {}, "containers": 7}}], ids=str
)
def test_odd_objects_end_in_an_answer(path: str, obj: Any, caplog: pytest.LogCaptureFixture) -> None:
    kind = HANDLERS[path][0]
    for operation in ("CREATE", "UPDATE", "DELETE", "CONNECT", ""):
        body = asked(obj or {"x": 1}, kind=kind.kind, group=kind.group, operation=operation, oldObject=obj or {"x": 1})
        code, answer = ask(path, body)
        assert code == 200
        assert isinstance(answer["response"]["allowed"], bool)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_an_object_of_three_megabytes() -> None:
    obj = pod([{"asks": {"nvidia.com/gpu": "1"}}], annotations={"blob": "x" * (3 << 20)})
    code, answer = ask(POD_RULES, asked(obj), world=DictWorld(*POOLS["80Gi"]))
    assert (code, answer["response"]["allowed"]) == (200, True)


def test_a_question_that_dawdles_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "BODY_S", 0.05)
    monkeypatch.setattr(route, "MOST_IN_FLIGHT", 1)
    hooks = Webhooks(DictWorld(), fault=lambda: "", registry=CollectorRegistry())
    sent: list[Any] = []

    async def dawdle() -> Any:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    async def test() -> None:
        for _ in range(2):
            await hooks({"type": "http", "method": "POST", "raw_path": POD.encode(), "headers": []}, dawdle, send)

    asyncio.run(test())
    assert [message["status"] for message in sent if "status" in message] == [504, 504]


def test_long_questions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "MOST_BYTES", 1000)
    question = asked(pod([{}]))
    assert len(orjson.dumps(question)) < 1000
    assert ask(POD, question)[0] == 200
    assert ask(POD, asked(pod([{}]), name="p" * 2000))[0] == 429


def test_other_methods_and_a_start_are_refused() -> None:
    assert ask(POD, b"", method="GET")[0] == 405
    code, answer = ask(POD, asked({}), fault="instancetypes")
    assert (code, answer["reason"]) == (503, "ServiceUnavailable")


def test_an_error_of_ours_is_a_500_without_the_inside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_request: Any, _world: Any) -> review.Answer:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(route, "HANDLERS", {POD: (HANDLERS[POD][0], broken)})
    code, answer = ask(POD, asked(pod([{}])))
    assert code == 200
    assert answer["response"]["status"]["code"] == 500
    assert "secret" not in json.dumps(answer)
    assert [record.getMessage() for record in caplog.records] == ["webhook failed"]


def test_b011_the_recorded_review() -> None:
    body = case_json("B011-deleting-instance-review")
    for half in ("mutate", "validate"):
        code, answer = ask(f"/{half}-worker-gpustack-ai-v1alpha1-instance", body, world=DictWorld(down=True))
        assert (code, answer["response"]) == (200, {"uid": body["request"]["uid"], "allowed": True})
