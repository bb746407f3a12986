"""The Pod of an Instance: spec 05 §8.1-§8.3, §8.5, its rows by name."""

from __future__ import annotations

from typing import Any

import pytest

from api.settings import DEFAULTS, Settings
from controllers.instance_images import image_reference
from controllers.instance_pod import PodFacts, is_own_pod, render_pod, variables_left_out
from controllers.instance_resources import card_resources, general_resources, visibility_requirements
from nodefeature.fields import at
from tests.builders.chain import manufacturers
from tests.builders.instances import CPU_POOL, ENTRANCE, instance, own_pod, pool_type

SETTINGS = DEFAULTS


def render(spec: dict[str, Any], *, settings: Settings = DEFAULTS, of: Any = None, **facts: Any) -> Any:
    """Return the Pod of an Instance with these fields."""
    return render_pod(
        PodFacts(
            instance=instance(**spec),
            instance_type=of if of is not None else pool_type(),
            settings=settings,
            registry=manufacturers(),
            **facts,
        )
    )


def container(pod: Any, name: str) -> Any:
    return next(c for c in pod["spec"]["containers"] if c["name"] == name)


def resources(cpu: str = "", ram: str = "", storage: str = "", **more: Any) -> dict[str, Any]:
    known = {"cpu": cpu, "ram": ram, "localStorage": storage}
    return {key: value for key, value in known.items() if value} | more


GENERAL = [
    (("4", "16Gi", "32Gi"), False, False, ("4", "16Gi", "32Gi")),
    (("4", "16Gi", "32Gi"), False, True, ("3200m", "2Gi", "4Gi")),
    (("16", "64Gi", "128Gi"), True, True, ("1600m", "8Gi", "16Gi")),
    (("8", "32Gi", "64Gi"), True, True, ("800m", "4Gi", "8Gi")),
    (("4", "8Gi", "15Gi"), False, True, ("3200m", "1Gi", "1920Mi")),
    (("100m", "1Gi", "1Gi"), False, True, ("100m", "128Mi", "128Mi")),
    (("1500m", "1Gi", "1Gi"), False, True, ("1500m", "128Mi", "128Mi")),
    (("2", "4Gi", "512Mi"), False, True, ("1600m", "512Mi", "0")),
    (("2", "512Mi", "10Gi"), False, True, ("1600m", "0", "1280Mi")),
    (("2", "16Gi", "10Gi"), False, True, ("1600m", "2Gi", "1280Mi")),
]


@pytest.mark.parametrize(("asked", "accelerated", "overcommit", "want"), GENERAL, ids=str)
def test_general_resources(
    asked: tuple[str, str, str], accelerated: bool, overcommit: bool, want: tuple[str, str, str]
) -> None:
    limits, requests = general_resources(resources(*asked), accelerated=accelerated, overcommit=overcommit)
    assert tuple(limits.values()) == asked
    assert tuple(requests.values()) == want
    assert list(requests) == ["cpu", "memory", "ephemeral-storage"]


@pytest.mark.parametrize("bad", [None, "", "x", "0", "-1", 0, [], {}, True])
def test_a_general_resource_that_is_none_is_left_out(bad: Any) -> None:
    assert general_resources({"cpu": bad, "ram": bad}, accelerated=True, overcommit=True) == ({}, {})


def sliced(memory: int, cores: int, accelerator: str | None = "1") -> dict[str, Any]:
    asked: dict[str, Any] = {
        "acceleratorSlicedMemoryPercentage": memory,
        "acceleratorSlicedCoresPercentage": cores,
    }
    return asked | ({"accelerator": accelerator} if accelerator is not None else {})


BASE = "nvidia.com/gpu"
CARDS = {
    "acc 2 exclusive": ({"accelerator": "2"}, pool_type(), {BASE: "2"}),
    "acc 4": ({"accelerator": "4"}, pool_type(), {BASE: "4"}),
    "acc 1, 20/20 sliceable": (
        sliced(20, 20),
        pool_type(),
        {f"{BASE}.sliced": "1", f"{BASE}.sliced.memory-percentage": "20", f"{BASE}.sliced.cores-percentage": "20"},
    ),
    "acc 2, 20/30 sliceable": (
        sliced(20, 30, "2"),
        pool_type(),
        {f"{BASE}.sliced": "2", f"{BASE}.sliced.memory-percentage": "20", f"{BASE}.sliced.cores-percentage": "30"},
    ),
    "acc 2, 0/0 sliceable": (sliced(0, 0, "2"), pool_type(), {BASE: "2"}),
    "memory alone": (
        sliced(20, 0),
        pool_type(),
        {f"{BASE}.sliced": "1", f"{BASE}.sliced.memory-percentage": "20"},
    ),
    "20/20 not sliceable": (sliced(20, 20), pool_type(sliceable=False), {BASE: "1"}),
    "partitioned": (
        {"accelerator": "1", "acceleratorPartitionedProfile": "3g.40gb"},
        pool_type(profiles=("3g.40gb",)),
        {f"{BASE}.partitioned": "1", f"{BASE}.partitioned.mig-3g.40gb": "1"},
    ),
    "profile on a manufacturer without a kind": (
        {"accelerator": "1", "acceleratorPartitionedProfile": "3g.40gb"},
        pool_type(manufacturer="ascend"),
        {"huawei.com/npu": "1"},
    ),
    "profile without accelerator": ({"acceleratorPartitionedProfile": "3g.40gb"}, pool_type(), {}),
    "acc nil": ({}, pool_type(), {}),
    "acc 0": ({"accelerator": "0"}, pool_type(), {}),
    "acc negative": ({"accelerator": "-1"}, pool_type(), {}),
    "acc not a quantity": ({"accelerator": "two"}, pool_type(), {}),
    "CPU type, acc 2": ({"accelerator": "2"}, pool_type(CPU_POOL, manufacturer=""), {}),
    "unknown manufacturer": ({"accelerator": "2"}, pool_type(manufacturer="acme"), {}),
    "percentage of a wrong type": (
        {"accelerator": "1", "acceleratorSlicedMemoryPercentage": "20"},
        pool_type(),
        {BASE: "1"},
    ),
}


@pytest.mark.parametrize("row", CARDS)
def test_cards_of_main(row: str) -> None:
    asked, pool, want = CARDS[row]
    assert card_resources(asked, pool, manufacturers()) == want


SEEN = {
    "acc 2": ({"accelerator": "2"}, {"device.gpustack.ai/nvidia.visibility": "2"}),
    "acc 1, 60/100 sliceable": (sliced(60, 100), {"device.gpustack.ai/nvidia.visibility": "1"}),
    "partitioned": (
        {"accelerator": "1", "acceleratorPartitionedProfile": "3g.40gb"},
        {"device.gpustack.ai/nvidia.visibility": "1"},
    ),
    "acc nil": ({}, {}),
    "acc 0": ({"accelerator": 0}, {}),
}


@pytest.mark.parametrize("row", SEEN)
def test_what_the_ssh_container_sees(row: str) -> None:
    asked, want = SEEN[row]
    needs = visibility_requirements(asked, pool_type(), manufacturers())
    assert (needs.limits, needs.requests) == (want, want)


def test_labels_owner_and_plain_fields() -> None:
    pod = render({})
    assert pod["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": ENTRANCE,
        "app.kubernetes.io/part-of": "uid-box",
        "resource.gpustack.ai/type": "instances",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "worker.gpustack.ai/v1alpha1",
            "kind": "Instance",
            "name": "box",
            "uid": "uid-box",
            "controller": True,
        }
    ]
    spec = pod["spec"]
    assert spec["hostIPC"] is spec["shareProcessNamespace"] is True
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    assert set(spec) == {
        "hostIPC",
        "shareProcessNamespace",
        "automountServiceAccountToken",
        "enableServiceLinks",
        "schedulingGates",
        "volumes",
        "containers",
    }


def test_a_pod_is_gated_from_the_first_moment() -> None:
    assert render({})["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]


def test_main() -> None:
    main = container(
        render(
            {
                "command": ["sleep", "infinity"],
                "ports": [
                    {"port": 22},
                    {"port": 8080, "protocol": "TCP", "name": "http"},
                    {"port": 53, "protocol": "UDP"},
                ],
                "env": [{"name": "MODE", "value": "train"}],
            }
        ),
        "main",
    )
    assert main["image"] == "registry.example/app:1"
    assert main["imagePullPolicy"] == "IfNotPresent"
    assert main["command"] == ["sleep", "infinity"]
    assert main["securityContext"] == {"runAsUser": 0}
    assert main["ports"] == [
        {"name": "tcp-22", "containerPort": 22, "protocol": "TCP"},
        {"name": "tcp-8080", "containerPort": 8080, "protocol": "TCP"},
        {"name": "udp-53", "containerPort": 53, "protocol": "UDP"},
    ]
    assert main["env"] == [{"name": "MODE", "value": "train"}]
    assert main["volumeMounts"] == [{"name": "workspace", "mountPath": "/workspace"}]
    assert not {"readinessProbe", "livenessProbe", "lifecycle", "args"} & main.keys()


@pytest.mark.parametrize(("asked", "want"), [(True, True), (False, None), (None, None), ("yes", None)])
def test_privileged_only_if_asked(asked: Any, want: Any) -> None:
    assert container(render({"privileged": asked}), "main")["securityContext"].get("privileged") is want


def test_pull_secret() -> None:
    assert render({"imagePullSecret": {"name": "regcred"}})["spec"]["imagePullSecrets"] == [{"name": "regcred"}]


def test_ssh_container() -> None:
    pod = render({"sshPublicKey": {"name": "k1"}, "imagePullPolicy": "Always", "volumeMount": "/home"})
    assert pod["spec"]["volumes"][0] == {
        "name": "sshd-authorized-keys",
        "secret": {"secretName": "k1", "defaultMode": 0o600},
    }
    assert container(pod, "sshd") == {
        "name": "sshd",
        "image": "gpustack/ssh-server:v1.3.0",
        "imagePullPolicy": "Always",
        "stdin": True,
        "tty": True,
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN", "SYS_PTRACE"]}},
        "env": [{"name": "VOLUME_MOUNT_PATH", "value": "/home"}],
        "volumeMounts": [
            {"name": "sshd-authorized-keys", "mountPath": "/var/run/sshd-authorized-keys", "readOnly": True}
        ],
        "resources": {
            "limits": {"device.gpustack.ai/nvidia.visibility": "1"},
            "requests": {"device.gpustack.ai/nvidia.visibility": "1"},
        },
    }


@pytest.mark.parametrize("key", [None, {}, {"name": ""}, {"name": None}, [], "k1"])
def test_no_ssh_container_without_a_key(key: Any) -> None:
    assert [c["name"] for c in render({"sshPublicKey": key})["spec"]["containers"]] == ["main"]


IMAGES = [
    ("gpustack/ssh-server:v1.3.0", "reg.io", "mirror", "reg.io/mirror/ssh-server:v1.3.0"),
    ("gpustack/ssh-server:v1.3.0", "", "", "gpustack/ssh-server:v1.3.0"),
    ("gpustack/ssh-server:v1.3.0", "", "mirror", "mirror/ssh-server:v1.3.0"),
    ("gpustack/gpustack-operator:dev", "docker.io/", "", "docker.io/gpustack/gpustack-operator:dev"),
    ("reg.example.com:5000/a/op:v1", "", "team", "reg.example.com:5000/team/op:v1"),
    ("reg.example.com/a/op:v1", "m.local", "team", "m.local/team/op:v1"),
    ("ssh-server:v1", "reg.io", "mirror", "reg.io/mirror/ssh-server:v1"),
    ("localhost/a/op@sha256:00", "", "team", "localhost/team/op@sha256:00"),
]


@pytest.mark.parametrize(("image", "registry", "namespace", "want"), IMAGES)
def test_image_reference(image: str, registry: str, namespace: str, want: str) -> None:
    assert image_reference(image, registry=registry, namespace=namespace) == want


def test_worked_example_ssh_and_half_a_slice() -> None:
    """Spec 05 §8.3, without the units that the Pod webhook folds."""
    pod = render(
        {
            "resources": {**resources("8", "20Gi", "15Gi"), **sliced(50, 50)},
            "sshPublicKey": {"name": "k1"},
            "ports": [{"port": 22}, {"port": 8080}],
        }
    )
    cards = {
        f"{BASE}.sliced": "1",
        f"{BASE}.sliced.memory-percentage": "50",
        f"{BASE}.sliced.cores-percentage": "50",
    }
    assert [v["name"] for v in pod["spec"]["volumes"]] == ["sshd-authorized-keys", "workspace"]
    assert container(pod, "main")["resources"] == {
        "limits": {"cpu": "8", "memory": "20Gi", "ephemeral-storage": "15Gi", **cards},
        "requests": {"cpu": "800m", "memory": "2560Mi", "ephemeral-storage": "1920Mi", **cards},
    }
    seen = {"device.gpustack.ai/nvidia.visibility": "1"}
    assert container(pod, "sshd")["resources"] == {"limits": seen, "requests": seen}


@pytest.mark.parametrize(
    ("hostname", "want"), [("", None), ("node-1.internal", {"kubernetes.io/hostname": "node-1.internal"})]
)
def test_node_pin(hostname: str, want: Any) -> None:
    pod = render({"nodeName": "node-1"}, hostname=hostname)
    assert pod["spec"].get("nodeSelector") == want
    assert "nodeName" not in pod["spec"]


def test_runtime_class_also_for_a_card_less_request() -> None:
    pod = render({"resources": {"cpu": "1"}}, runtime_class="nvidia")
    assert pod["spec"]["runtimeClassName"] == "nvidia"


ADDITIONAL = [
    {"mountPath": "/data", "persistent": {"name": "sets"}, "readOnly": True, "subPath": "a"},
    {"mountPath": "/etc/app", "configMap": {"name": "app"}},
    {"mountPath": "/keys", "secret": {"name": "keys"}},
    {"mountPath": "/mnt", "hostPath": {"path": "/mnt/models", "type": "Directory"}},
    {"mountPath": "/none"},
    {"mountPath": "/host", "hostPath": {"path": "/srv"}},
]


def test_additional_volumes_with_ssh() -> None:
    pod = render({"additionalVolumes": ADDITIONAL, "sshPublicKey": {"name": "k1"}})
    assert pod["spec"]["volumes"][1:] == [
        {"name": "workspace", "emptyDir": {"sizeLimit": "10Gi"}},
        {"name": "additional-0", "persistentVolumeClaim": {"claimName": "sets"}},
        {"name": "additional-1", "configMap": {"name": "app"}},
        {"name": "additional-2", "secret": {"secretName": "keys"}},
        {"name": "additional-3", "hostPath": {"path": "/mnt/models", "type": "Directory"}},
        {"name": "additional-5", "hostPath": {"path": "/srv"}},
    ]
    assert container(pod, "main")["volumeMounts"] == [
        {"name": "workspace", "mountPath": "/workspace"},
        {"name": "additional-0", "mountPath": "/data", "readOnly": True, "subPath": "a"},
        {"name": "additional-1", "mountPath": "/etc/app"},
        {"name": "additional-2", "mountPath": "/keys"},
        {"name": "additional-3", "mountPath": "/mnt"},
        {"name": "additional-5", "mountPath": "/host"},
    ]
    assert len(container(pod, "sshd")["volumeMounts"]) == 1


def test_rendering_again_gives_the_same() -> None:
    spec = {"additionalVolumes": ADDITIONAL, "sshPublicKey": {"name": "k1"}}
    assert render(spec) == render(spec)


def test_a_persistent_workspace_keeps_its_place() -> None:
    pod = render({"volume": {"persistent": {"name": "ws"}}, "sshPublicKey": {"name": "k1"}})
    assert pod["spec"]["volumes"][1] == {"name": "workspace", "persistentVolumeClaim": {"claimName": "ws"}}


def test_volumes_restrict_the_nodes() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = render({}, node_terms=(term,))["spec"]["affinity"]
    assert at(affinity, "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution") == {
        "nodeSelectorTerms": [term]
    }


def test_b012_variables_that_widen_what_is_seen_are_left_out() -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "MODE", "value": "x"}]
    env.append({"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "999999m"})
    assert container(render({"env": env}), "main")["env"] == [{"name": "MODE", "value": "x"}]
    named = ["CUDA_DEVICE_MEMORY_LIMIT_0", "NVIDIA_VISIBLE_DEVICES"]
    assert variables_left_out({"env": env}, pool_type()) == named
    cpu = pool_type(CPU_POOL, manufacturer="")
    assert variables_left_out({"env": env}, cpu) == []
    assert len(container(render({"env": env}, of=cpu), "main")["env"]) == 3


HOSTILE: list[dict[str, Any]] = [
    {
        "ports": [
            None,
            7,
            {"port": 0},
            {"port": 70000},
            {"port": "22"},
            {"port": True},
            {"port": 22, "protocol": "ICMP"},
        ]
    },
    {"ports": [{"port": 22}, {"port": 22, "protocol": None}]},
    {"env": [None, {"name": None}, {"name": 5, "value": 5}, {"name": "A", "value": None}]},
    {"command": [None, 1, "x"], "image": None, "imagePullPolicy": None, "volumeMount": None},
    {"resources": None, "volume": None, "additionalVolumes": None, "sshPublicKey": None, "imagePullSecret": None},
    {"resources": [], "volume": [], "additionalVolumes": {}, "ports": {}, "env": "x", "command": "x"},
    {"additionalVolumes": [None, {"persistent": None}, {"hostPath": {"path": 5}}, {"secret": {"name": []}}]},
]


@pytest.mark.parametrize("spec", HOSTILE, ids=range(len(HOSTILE)))
def test_nulls_and_wrong_types_render_what_remains(spec: dict[str, Any]) -> None:
    whole = {**instance()["spec"], **spec}
    facts = PodFacts(
        instance={"metadata": {"name": "box", "namespace": "a", "uid": "u"}, "spec": whole},
        instance_type=pool_type(),
        settings=SETTINGS,
        registry=manufacturers(),
    )
    pod = render_pod(facts)
    assert pod["spec"]["containers"][0]["name"] == "main"
    assert len(pod["spec"]["containers"][0].get("ports", ())) <= 1


@pytest.mark.parametrize("broken", [{}, {"metadata": None}, {"metadata": {"name": "x"}, "spec": None}, {"spec": []}])
def test_an_instance_with_nulls_renders(broken: Any) -> None:
    facts = PodFacts(instance=broken, instance_type={}, settings=SETTINGS, registry=manufacturers())
    assert render_pod(facts)["spec"]["containers"]


def test_whose_a_pod_is() -> None:
    mine = instance()
    assert is_own_pod(mine, own_pod(mine))
    assert not is_own_pod(mine, None)
    assert not is_own_pod(mine, own_pod(instance("other")))
    assert not is_own_pod({"metadata": {}}, own_pod({"metadata": {"name": "x", "namespace": "n", "uid": ""}}))
    labelled = own_pod(mine)
    del labelled["metadata"]["ownerReferences"]
    assert not is_own_pod(mine, labelled), "labels and names can be anybody's"
