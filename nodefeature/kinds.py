"""Names of the Kubernetes kinds this product touches.

For: every layer that builds a path, a watch, an RBAC rule or a manifest.
In/Out: frozen constants.
Promises: one spelling of group, version and plural in the whole project; nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One served resource: where it lives in the API and what its objects are called."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """Return the value of an object's `apiVersion` field."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """Return `<plural>.<group>`: the CRD's name, and the word used in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return self.group_resource


# Core
NODE = Kind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACE = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
POD = Kind("", "v1", "pods", "Pod", namespaced=True)
SECRET = Kind("", "v1", "secrets", "Secret", namespaced=True)
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap", namespaced=True)
SERVICE = Kind("", "v1", "services", "Service", namespaced=True)
SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
EVENT = Kind("", "v1", "events", "Event", namespaced=True)
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
PERSISTENT_VOLUME = Kind("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
RUNTIME_CLASS = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
API_SERVICE = Kind("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
MUTATING_WEBHOOK_CONFIGURATION = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOK_CONFIGURATION = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_ADMISSION_POLICY = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
VALIDATING_ADMISSION_POLICY_BINDING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)

# Node Feature Discovery
NODE_FEATURE = Kind("nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", "NodeFeature", namespaced=True)
NODE_FEATURE_RULE = Kind("nfd.k8s-sigs.io", "v1alpha1", "nodefeaturerules", "NodeFeatureRule", namespaced=False)

# Kueue
RESOURCE_FLAVOR = Kind("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
CLUSTER_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False)
LOCAL_QUEUE = Kind("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue", namespaced=True)
WORKLOAD = Kind("kueue.x-k8s.io", "v1beta2", "workloads", "Workload", namespaced=True)
ADMISSION_CHECK = Kind("kueue.x-k8s.io", "v1beta2", "admissionchecks", "AdmissionCheck", namespaced=False)
TOPOLOGY = Kind("kueue.x-k8s.io", "v1beta2", "topologies", "Topology", namespaced=False)

# Ours. Internal traffic speaks v1alpha1 only (design §4).
DEVICES = Kind("worker.gpustack.ai", "v1alpha1", "devices", "Devices", namespaced=False)
INSTANCE = Kind("worker.gpustack.ai", "v1alpha1", "instances", "Instance", namespaced=True)
INSTANCE_TYPE = Kind("worker.gpustack.ai", "v1alpha1", "instancetypes", "InstanceType", namespaced=False)
