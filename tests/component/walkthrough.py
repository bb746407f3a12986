"""The four machines of spec 07 §10 and the names that come of them."""

from __future__ import annotations

from tests.builders.machines import a10g, machine, t4

NODE_CPU = machine("node-cpu", cores=16, vendor="AMD", cpu="AMD EPYC 7R13")
NODE_A10G = machine("node-a10g", vendor="AMD", cpu="AMD EPYC 7R32", cards=[a10g()])
NODE_T4_A = machine("node-t4-a", cards=[t4()])
NODE_T4_B = machine("node-t4-b", cores=48, cards=[t4()] * 4)
FLEET = (NODE_CPU, NODE_A10G, NODE_T4_A, NODE_T4_B)

CPU_POOL = "gpustack-generic-linux-amd64"
A10G_POOL = "gpustack-nvidia-a10g-linux-amd64"
T4_POOL = "gpustack-nvidia-tesla-t4-linux-amd64"
A10G_FLAVOR = "gpustack-nvidia-a10g-linux-amd64-1d"
A10G_CPU_FLAVOR = "gpustack-amd-epyc-7r32-linux-amd64-4c"
CPU_FLAVORS = (
    "gpustack-amd-epyc-7r13-linux-amd64-16c",
    A10G_CPU_FLAVOR,
    "gpustack-intel-xeon-platinum-8259cl-linux-amd64-48c",
    "gpustack-intel-xeon-platinum-8259cl-linux-amd64-4c",
)
T4_FLAVORS = ("gpustack-nvidia-tesla-t4-linux-amd64-1d", "gpustack-nvidia-tesla-t4-linux-amd64-4d")

A10G_IDLE = ("8/64Gi/100Gi", "1/1 1/10 100/100 0/0", "0/0", "Active")
T4_IDLE = ("8/32Gi/100Gi", "4/5 4/50 100/500 0/0", "0/0", "Active")
NOTHING = "0/0 0/0 0/0 0/0"

FREE = {"mode": 0, "remaining": 1_600_000}
WHOLE = {"mode": 1, "remaining": 0}
SLICE_20 = {"mode": 3, "remaining": 1_280_000}
