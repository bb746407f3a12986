"""One replica of the API server as the operating system and its own metrics see it.

For: `hack.bench.api`. In: its process id and address. Out: CPU seconds, memory, how long its loop was held.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from hack.bench.processes import cpu_seconds
from hack.controlplane.pki import Pair

_LONGEST = "apiserver_loop_held_longest_seconds"


class Replica:
    """A running replica; `client` is a person's certificate that may read `/metrics`."""

    def __init__(self, pid: int, address: tuple[str, int], client: Pair) -> None:
        self._pid = pid
        self._proc = Path(f"/proc/{pid}")
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the bench started it; nobody else can stand there
        context.load_cert_chain(client.certificate, client.key)
        host, port = address
        self._http = httpx.Client(base_url=f"https://{host}:{port}", verify=context, trust_env=False)

    def close(self) -> None:
        """Close the connection to it."""
        self._http.close()

    def cpu_s(self) -> float:
        """Return the CPU seconds it has used, user and system."""
        return cpu_seconds(self._pid)

    def memory_mib(self) -> float:
        """Return what it holds resident."""
        return self._status("VmRSS:")

    def peak_mib(self) -> float:
        """Return the most it held resident since the last call of `forget_peak`."""
        return self._status("VmHWM:")

    def forget_peak(self) -> None:
        """Let the peak start from now."""
        (self._proc / "clear_refs").write_text("5")

    def is_ready(self) -> bool:
        """Say whether `/readyz` is green."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def longest_hold_ms(self) -> float:
        """Return the longest its loop was held since this was last asked."""
        text = self._http.get("/metrics").raise_for_status().text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == _LONGEST:
                    return sample.value * 1000
        return float("nan")

    def _status(self, key: str) -> float:
        for line in (self._proc / "status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
        return float("nan")
