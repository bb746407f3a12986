"""The words by which an Instance says how far it is: condition types, their reasons, and the reasons of its Events.

For: the instance controller, which writes them; `explain`, the CLI and people's scripts, which read them
(`kubectl wait --for=condition=Ready instance/x`).
In/Out: constants.
Promises: one spelling in the whole project; a reason is one word in CamelCase and never removed, only added;
`Admitted`, `Scheduled` and `Ready` are always all three there once a status was written, in this order of the way.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """The three steps of an Instance's way."""

    ADMITTED = "Admitted"
    """Kueue gave it quota and every admission check is ready: nothing of Kueue's holds the Pod back any more."""
    SCHEDULED = "Scheduled"
    """Its Pod has a node."""
    READY = "Ready"
    """Its containers run and are ready; true exactly when `status.phase` is `Ready`."""


class Reason(StrEnum):
    """Why a condition has its status."""

    # True
    ADMITTED = "Admitted"
    SCHEDULED = "Scheduled"
    READY = "Ready"

    # False of any of the three: the Instance as a whole is not meant to run
    STOPPED = "Stopped"
    STOPPING = "Stopping"
    DELETING = "Deleting"

    # False of Admitted: before there is a Pod
    INSTANCE_TYPE_NOT_READY = "InstanceTypeNotReady"
    """The type has published no entrance yet, or its cards' detail is not known yet."""
    VOLUME_NOT_READY = "VolumeNotReady"
    """A claim that the Pod would mount does not exist or is not bound."""
    POD_NOT_CREATED = "PodNotCreated"
    """The Pod is about to be created."""
    POD_REFUSED = "PodRefused"
    """The API server refused the Pod; the message has its words."""
    FOREIGN_POD = "ForeignPod"
    """A Pod of the Instance's name exists that is not the Instance's."""

    # False of Admitted: the Pod waits for Kueue
    QUEUED = "Queued"
    """No quota is reserved yet."""
    CHECKS_PENDING = "ChecksPending"
    """Quota is reserved; an admission check (the cards of one node) is not ready yet."""
    EVICTED = "Evicted"
    """Kueue took the admission back."""

    # False of Scheduled
    NOT_ADMITTED = "NotAdmitted"
    WAITING_FOR_SCHEDULER = "WaitingForScheduler"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULING_GATED = "SchedulingGated"
    """A gate that is not Kueue's holds the Pod back."""

    # False of Ready
    NOT_SCHEDULED = "NotScheduled"
    INITIALIZING = "Initializing"
    CONTAINERS_NOT_READY = "ContainersNotReady"
    """Images are pulled, containers are created or not ready yet."""
    IMAGE_NOT_PULLED = "ImageNotPulled"
    CRASH_LOOP = "CrashLoop"
    CONTAINER_ENDED = "ContainerEnded"
    POD_FAILED = "PodFailed"
    POD_FINISHED = "PodFinished"
    ADMISSION_REJECTED = "AdmissionRejected"
    """The node's kubelet refused the Pod (`UnexpectedAdmissionError`)."""
    POD_NOT_READY = "PodNotReady"
    """Any other reason of the Pod's Ready condition, for example a lost node; the message has its words."""


class EventReason(StrEnum):
    """Reasons of the Events that the controller writes on an Instance, in the order of its life."""

    CREATED = "PodCreated"
    WAITING_FOR_TYPE = "WaitingForInstanceType"
    WAITING_FOR_VOLUME = "WaitingForVolume"
    VARIABLES_LEFT_OUT = "VariablesLeftOut"
    QUEUED = "Queued"
    CHECKS_PENDING = "ChecksPending"
    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULED = "Scheduled"
    PULLING = "Pulling"
    READY = "Ready"
    NOT_READY = "NotReady"
    REBUILT = "PodRebuilt"
    FOREIGN_POD = "ForeignPod"
    POD_REFUSED = "PodRefused"
    NO_PORTS = "PortsNotPublished"
    """The Service cannot be made, or its name is taken; the message says which."""
    STOPPING = "Stopping"
    DRAINED = "Drained"
    """The controller stopped the Instance because its pool drains or is gone; the message says which."""
    STOPPED = "Stopped"


KUEUE_GATES = frozenset({"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"})
"""Scheduling gates that Kueue puts on a Pod and takes away when it admits it."""
