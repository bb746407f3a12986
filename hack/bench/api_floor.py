"""The floor of `bench-api`: an aggregated API that only passes bytes, by the program `relay`.

For: `hack.bench.api`. In: a control plane. Out: a collection behind the same aggregator, and the relay's CPU seconds.
What it leaves out is what an aggregated API is for: it asks neither who calls nor what he may, and names no version.
"""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

from hack.bench.processes import cpu_seconds
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.layout import free_ports
from nodefeature.fields import as_maps, at
from nodefeature.kinds import API_SERVICE, SERVICE

_GROUP = "floor.gpustack.ai"
_NAME = f"v1.{_GROUP}"
_SERVED = {
    "group": _GROUP,
    "version": "v1",
    "insecureSkipTLSVerify": True,
    "groupPriorityMinimum": 100,
    "versionPriority": 1,
}
_WITHIN_S = 60.0


class Floor:
    """The relay, and what leads to it; `namespace` is where its Service stands. What never stood leaves nothing."""

    def __init__(self, control_plane: ControlPlane, folder: Path, *, namespace: str) -> None:
        self._admin = control_plane.admin
        self._namespace = namespace
        self.path = f"/apis/{_GROUP}/v1"
        port = next(iter(free_ports(random.Random())))
        command = [str(control_plane.tools.binary("relay")), "-kubeconfig", str(control_plane.kubeconfig)]
        command += ["-listen", f"127.0.0.1:{port}", "-from", self.path, "-to", "/apis/worker.gpustack.ai/v1alpha1"]
        with (folder / "relay.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            self._lead_to(port)
            self._until_available()
        except BaseException:
            self.close()
            raise

    def _lead_to(self, port: int) -> None:
        meta = {"name": "floor", "namespace": self._namespace}
        leads = {"type": "ExternalName", "externalName": "localhost"}
        self._admin.apply({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": leads})
        manifest = {"apiVersion": API_SERVICE.api_version, "kind": API_SERVICE.kind, "metadata": {"name": _NAME}}
        self._admin.apply({**manifest, "spec": {**_SERVED, "service": {**meta, "port": port}}})

    def cpu_s(self) -> float:
        """Return the CPU seconds the relay has used, user and system."""
        return cpu_seconds(self._process.pid)

    def close(self) -> None:
        """End the relay and take away what led to it."""
        self._process.kill()
        self._process.wait()
        self._admin.delete(API_SERVICE, _NAME)
        self._admin.delete(SERVICE, "floor", self._namespace)

    def _until_available(self) -> None:
        ends = time.monotonic() + _WITHIN_S
        while time.monotonic() < ends:
            conditions = as_maps(at(self._admin.get(API_SERVICE, _NAME), "status", "conditions"))
            if any(c.get("type") == "Available" and c.get("status") == "True" for c in conditions):
                return
            time.sleep(0.1)
        raise RuntimeError(f"APIService {_NAME} is not available: {conditions}")
