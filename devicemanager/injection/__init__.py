"""What an allocation becomes inside a container (spec 06 §8, §9). `port` has the words, `injectors` the entrance."""

from devicemanager.injection.port import (
    Card,
    ContainerClaim,
    DeviceNode,
    HostFile,
    Injection,
    InjectionRefused,
    Injector,
    Mount,
    Partition,
    Request,
)

__all__ = [
    "Card",
    "ContainerClaim",
    "DeviceNode",
    "HostFile",
    "Injection",
    "InjectionRefused",
    "Injector",
    "Mount",
    "Partition",
    "Request",
]
