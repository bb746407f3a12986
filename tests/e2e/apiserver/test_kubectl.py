"""What people type, against two replicas behind a real aggregator (spec 03 B11)."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from hack.controlplane.replicas import Replicas
from nodefeature.fields import at, labels_of
from nodefeature.kinds import INSTANCE
from tests.e2e.apiserver.conformance import row
from tests.e2e.apiserver.following import following
from tests.e2e.apiserver.objects import instance, text

pytestmark = pytest.mark.timeout(240)
RESOURCE = "instances.v1.worker.gpustack.ai"


@pytest.fixture
def three(pair: Replicas, namespace: str) -> str:
    """Return a namespace with Instances a, b and c."""
    objects = [instance(name, labels={"team": name}) for name in "abc"]
    pair.kubectl("create", "-n", namespace, "-f", "-", stdin=text(*objects))
    return namespace


@row("get, get -o wide", "columns are the CRD's; ours adds none")
def test_get_is_a_table(pair: Replicas, three: str) -> None:
    plain = pair.kubectl("get", RESOURCE, "-n", three).splitlines()
    wide = pair.kubectl("get", RESOURCE, "-n", three, "-o", "wide").splitlines()
    assert [line.split()[0] for line in plain[1:]] == ["a", "b", "c"]
    assert plain[0].split()[0] == "NAME"
    assert len(wide[0].split()) > len(plain[0].split())
    assert "AGE" in wide[0]


@row("instances.v1 beside instances.v1alpha1", "same columns, same cells")
def test_both_versions_show_the_same(pair: Replicas, three: str) -> None:
    def shown(version: str) -> list[list[str]]:
        said = pair.kubectl("get", f"instances.{version}.worker.gpustack.ai", "-n", three, "-o", "wide")
        head, *rows = said.splitlines()
        return [head.split(), *[row[: head.index("AGE")].split() for row in rows]]  # ages pass between two reads

    assert shown("v1") == shown("v1alpha1")
    for version in ("v1", "v1alpha1"):
        found = json.loads(
            pair.kubectl("get", f"instances.{version}.worker.gpustack.ai", "a", "-n", three, "-o", "json")
        )
        assert found["apiVersion"] == f"worker.gpustack.ai/{version}"


@row("get -w, --watch-only")
def test_get_watch(pair: Replicas, three: str) -> None:
    with following(pair, "get", RESOURCE, "-n", three, "--watch-only", "-o", "name") as lines:
        time.sleep(2)
        pair.kubectl("label", RESOURCE, "b", "-n", three, "seen=yes")
        assert lines.next() == "instance.worker.gpustack.ai/b"
    with following(pair, "get", RESOURCE, "-n", three, "-w", "-o", "name") as lines:
        assert [lines.next() for _ in range(3)] == [f"instance.worker.gpustack.ai/{name}" for name in "abc"]


@row("get -w across a restart of ours", "kubectl ends its watch when the replica leaves; the next one goes on")
def test_get_watch_across_a_restart(pair: Replicas, three: str) -> None:
    collection = f"/apis/worker.gpustack.ai/v1/namespaces/{three}/instances"
    since, path = pair.raw(collection)["metadata"]["resourceVersion"], f"{collection}?watch=true&resourceVersion="
    with following(pair, "get", "--raw", f"{path}{since}") as lines:
        time.sleep(1)
        pair.kubectl("label", RESOURCE, "a", "-n", three, "turn=1")
        seen = json.loads(lines.next())
        for name in ("a", "b"):
            assert pair.restart(name) == 0
        assert lines.ended(), "a watch ends with a clean EOF when its replica leaves"
    pair.kubectl("label", RESOURCE, "a", "-n", three, "turn=2", "--overwrite")
    with following(pair, "get", "--raw", path + at(seen, "object", "metadata", "resourceVersion")) as lines:
        assert labels_of(json.loads(lines.next())["object"])["turn"] == "2"


@row("get -o yaml, json, name; -l; --field-selector metadata.name=")
def test_forms_and_selectors(pair: Replicas, three: str) -> None:
    listed = json.loads(pair.kubectl("get", RESOURCE, "-n", three, "-o", "json"))
    assert {item["apiVersion"] for item in listed["items"]} == {"worker.gpustack.ai/v1"}
    assert "apiVersion: worker.gpustack.ai/v1\n" in pair.kubectl("get", RESOURCE, "a", "-n", three, "-o", "yaml")
    by_label = pair.kubectl("get", RESOURCE, "-n", three, "-l", "team=b", "-o", "name")
    by_field = pair.kubectl("get", RESOURCE, "-n", three, "--field-selector", "metadata.name=b", "-o", "name")
    assert by_label == by_field == "instance.worker.gpustack.ai/b\n"


@row("get --chunk-size=500", "chunks of 2 here, three objects")
def test_chunks(pair: Replicas, three: str) -> None:
    said = pair.kubectl("get", RESOURCE, "-n", three, "--chunk-size=2", "-o", "name", "-v=8", check=False)
    assert "limit=2" in said
    assert "continue=" in said
    assert said.count("\ninstance.worker.gpustack.ai/") + said.startswith("instance.worker") == 3


@row("get gpustack, short names")
def test_categories_and_short_names(pair: Replicas, three: str) -> None:
    assert "instance.worker.gpustack.ai/a" in pair.kubectl("get", "gpustack", "-n", three, "-o", "name")
    words = ("api-resources", "--api-group=worker.gpustack.ai", "--no-headers", "-o", "wide")
    for line in pair.kubectl(*words).splitlines():
        cells = line.split()
        assert "gpustack" in line, cells[0]
        short = cells[1] if "/" not in cells[1] else ""
        if short:
            pair.kubectl("get", short.split(",")[0], "-n", three)


@row("describe", "events of the Pod are at the sub-resource `events`")
def test_describe(pair: Replicas, three: str) -> None:
    said = pair.kubectl("describe", RESOURCE, "a", "-n", three)
    assert "API Version:  worker.gpustack.ai/v1\n" in said
    assert "Events:" in said


@row("apply, apply again, apply of a change")
def test_apply(pair: Replicas, namespace: str) -> None:
    said = [
        pair.kubectl("apply", "-n", namespace, "-f", "-", stdin=text(obj)).split()[-1]
        for obj in (instance("x"), instance("x"), instance("x", labels={"a": "b"}))
    ]
    assert said == ["created", "unchanged", "configured"]


@row("apply --server-side with two managers", "case B041; managedFields name v1alpha1")
def test_b041_server_side_apply(pair: Replicas, namespace: str) -> None:
    def apply(manager: str, obj: object, *flags: str) -> str:
        words = ("apply", "--server-side", f"--field-manager={manager}", *flags, "-n", namespace, "-f", "-")
        return pair.kubectl(*words, stdin=json.dumps(obj), check=False)

    changed = instance("x")
    changed["spec"]["image"] = "registry.example/app:2"
    assert "serverside-applied" in apply("one", instance("x"))
    assert 'conflict with "one"' in apply("two", changed)
    assert "serverside-applied" in apply("two", changed, "--force-conflicts")
    pair.kubectl("annotate", RESOURCE, "x", "-n", namespace, "a=b")
    assert "serverside-applied" in apply("two", changed)
    assert 'conflict with "two"' in apply("one", instance("x"))


@row("diff")
def test_diff(pair: Replicas, three: str) -> None:
    changed = instance("a", labels={"team": "z"})
    done = pair.run_kubectl("diff", "-n", three, "-f", "-", stdin=text(changed))
    assert done.returncode == 1, done.stderr
    assert "-    team: a" in done.stdout
    assert "+    team: z" in done.stdout
    done = pair.run_kubectl("diff", "--server-side", "--force-conflicts", "-n", three, "-f", "-", stdin=text(changed))
    assert done.returncode == 1, done.stderr


@row("edit", "KUBE_EDITOR=sed")
def test_edit(pair: Replicas, three: str, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/team: a$/team: edited/' \"$1\"\n")
    editor.chmod(0o755)
    done = pair.run_kubectl("edit", RESOURCE, "a", "-n", three, environ={"KUBE_EDITOR": str(editor)})
    assert done.stdout == "instance.worker.gpustack.ai/a edited\n", done.stderr
    found = pair.admin.get(INSTANCE, "a", three)
    assert labels_of(found)["team"] == "edited"


@row("replace, label, annotate")
def test_replace_label_annotate(pair: Replicas, three: str) -> None:
    found = json.loads(pair.kubectl("get", RESOURCE, "a", "-n", three, "-o", "json"))
    found["metadata"]["labels"]["team"] = "new"
    assert "replaced" in pair.kubectl("replace", "-n", three, "-f", "-", stdin=text(found))
    stale = pair.kubectl("replace", "-n", three, "-f", "-", stdin=text(found), check=False)
    assert "the object has been modified" in stale
    assert "labeled" in pair.kubectl("label", RESOURCE, "a", "-n", three, "x=y")
    assert "unlabeled" in pair.kubectl("label", RESOURCE, "a", "-n", three, "x-")
    assert "annotated" in pair.kubectl("annotate", RESOURCE, "a", "-n", three, "x=y")
    forced = instance("a", labels={"team": "forced"})
    assert "replaced" in pair.kubectl("replace", "--force", "-n", three, "-f", "-", stdin=text(forced))


PATCHES = {
    "strategic": '{"metadata":{"labels":{"patched":"yes"}}}',
    "merge": '{"metadata":{"labels":{"patched":"yes"}}}',
    "json": '[{"op":"add","path":"/metadata/labels/patched","value":"yes"}]',
}


@row("patch of every type", "strategic is translated into a merge patch; the CRD answers 415")
@pytest.mark.parametrize("kind", PATCHES)
def test_patch(pair: Replicas, three: str, kind: str) -> None:
    pair.kubectl("patch", RESOURCE, "a", "-n", three, f"--type={kind}", "-p", PATCHES[kind])
    assert labels_of(pair.admin.get(INSTANCE, "a", three))["patched"] == "yes"


@row("patch --subresource=status", "no kind of ours has `scale`")
def test_patch_status(pair: Replicas, three: str) -> None:
    words = ("patch", RESOURCE, "a", "-n", three, "--subresource=status", "--type=merge")
    pair.kubectl(*words, "-p", '{"status":{"phase":"Active"}}')
    assert at(pair.admin.get(INSTANCE, "a", three), "status", "phase") == "Active"
    assert "could not find the requested resource" in pair.kubectl(
        "scale", RESOURCE, "a", "-n", three, "--replicas=1", check=False
    )


@row("delete, delete -l, delete --all, wait --for=delete")
def test_delete(pair: Replicas, three: str) -> None:
    assert "deleted" in pair.kubectl("delete", RESOURCE, "a", "-n", three)
    assert "NotFound" in pair.kubectl("get", RESOURCE, "a", "-n", three, check=False)
    pair.kubectl("delete", RESOURCE, "-n", three, "-l", "team=b", "--wait=false")
    pair.kubectl("wait", "--for=delete", f"{RESOURCE}/b", "-n", three, "--timeout=30s")
    pair.kubectl("delete", RESOURCE, "-n", three, "--all")
    assert pair.kubectl("get", RESOURCE, "-n", three, "-o", "name") == ""


@row("wait --for=condition, --for=jsonpath")
def test_wait(pair: Replicas, three: str) -> None:
    condition = {"type": "Ready", "status": "True", "reason": "x", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"status": {"phase": "Active", "conditions": [condition]}}
    threading.Timer(2, lambda: pair.admin.patch(INSTANCE, "a", status, three, subresource="status")).start()
    pair.kubectl("wait", "--for=jsonpath={.status.phase}=Active", f"{RESOURCE}/a", "-n", three, "--timeout=30s")
    pair.kubectl("wait", "--for=condition=Ready", f"{RESOURCE}/a", "-n", three, "--timeout=30s")


@row("explain, explain --recursive")
def test_explain(pair: Replicas) -> None:
    kinds = [
        line.split(".")[0]
        for line in pair.kubectl("api-resources", "--api-group=worker.gpustack.ai", "-o", "name").splitlines()
    ]
    for plural in (*kinds, "settings"):
        group = "gpustack.ai/v1" if plural == "settings" else "worker.gpustack.ai/v1"
        said = pair.kubectl("explain", plural, f"--api-version={group}", "--recursive")
        assert "VERSION:    v1\n" in said, plural
        assert "spec\t<" in said or "data\t<" in said, f"{plural}: {said}"
        assert "resourceVersion\t<string>" in said, plural
    assert "FIELD: image <string>" in pair.kubectl(
        "explain", "instances.spec.image", "--api-version=worker.gpustack.ai/v1"
    )


@row("api-resources, api-versions")
def test_discovery(pair: Replicas) -> None:
    versions = pair.kubectl("api-versions").splitlines()
    assert {"worker.gpustack.ai/v1", "worker.gpustack.ai/v1alpha1", "gpustack.ai/v1"} <= set(versions)
    done = pair.run_kubectl("api-resources", "--cached=false")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("instances "))
    assert "worker.gpustack.ai/v1 " in line


@row("auth can-i get instances/log")
def test_can_i(pair: Replicas, namespace: str) -> None:
    words = ("auth", "can-i", "get", "instances.worker.gpustack.ai/a", "--subresource=log", "-n", namespace)
    assert pair.kubectl(*words) == "yes\n"
    assert pair.kubectl(*words, "--as=eve", check=False) == "no\n"


@row("logs, exec, port-forward", "work on Pods only; kubectl says so")
def test_commands_for_pods(pair: Replicas, three: str) -> None:
    for words in (
        ("logs", f"{RESOURCE}/a"),
        ("exec", f"{RESOURCE}/a", "--", "true"),
        ("port-forward", f"{RESOURCE}/a", "1:1"),
    ):
        done = pair.run_kubectl(words[0], "-n", three, *words[1:])
        assert done.returncode, words
        assert "panic" not in done.stderr


@row("create --dry-run=server --validate=strict")
def test_dry_run_and_strict(pair: Replicas, namespace: str) -> None:
    words = ("create", "-n", namespace, "--dry-run=server", "--validate=strict", "-f", "-")
    assert "created (server dry run)" in pair.kubectl(*words, stdin=text(instance("x")))
    assert pair.kubectl("get", RESOURCE, "-n", namespace, "-o", "name") == ""
    unknown = instance("x")
    unknown["spec"]["imag"] = "x"
    assert 'unknown field "spec.imag"' in pair.kubectl(*words, stdin=text(unknown), check=False)
    warned = pair.kubectl("create", "-n", namespace, "--validate=warn", "-f", "-", stdin=text(unknown), check=False)
    assert 'Warning: unknown field "spec.imag"' in warned
