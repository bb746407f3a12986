"""The fleet of thirty machines: its file, and what its pools must become.

For: the fixture that lets it join, and the scenarios. Promises: figures were counted by hand from `hack/recorded`, not
taken from what the product said.
"""

from __future__ import annotations

from pathlib import Path

FLEET = Path(__file__).with_name("fleet-30.yaml")
MOVING = ("mi308x-02", "mlu-01", "t4-01", "t4-02")
"""Machines that leave and return."""

H100 = "gpustack-nvidia-h100-80gb-hbm3-linux-amd64"
H200 = "gpustack-nvidia-h200-linux-amd64"
MI308X = "gpustack-amd-instinct-mi308x-oam-linux-amd64"
MLU = "gpustack-cambricon-mlu590-m9-linux-amd64"
T4 = "gpustack-nvidia-tesla-t4-linux-amd64"
RISCV = "gpustack-generic-linux-riscv64"

# Pool, unit and storage, largest request / what is left as EX SH SL PT. Counted by hand from hack/recorded.
POOLS = {
    MI308X: ("12/192Gi/100Gi", "8/16 8/160 100/1600 0/0"),
    "gpustack-ascend-910-linux-arm64": ("4/16Gi/100Gi", "16/16 16/160 100/1600 0/0"),
    "gpustack-ascend-910b4-1-linux-arm64": ("8/64Gi/100Gi", "8/16 8/160 100/1600 0/0"),
    MLU: ("8/64Gi/100Gi", "8/8 8/80 100/800 0/0"),
    "gpustack-generic-linux-amd64": ("1/2Gi/100Gi", "0/0 0/0 0/0 0/0"),
    "gpustack-generic-linux-arm64": ("1/2Gi/100Gi", "0/0 0/0 0/0 0/0"),
    "gpustack-hygon-bw100-linux-amd64": ("12/128Gi/100Gi", "0/0 0/0 0/0 1/32"),
    "gpustack-hygon-bw101-linux-amd64": ("4/16Gi/100Gi", "1/1 1/10 100/100 0/0"),
    "gpustack-hygon-k100-ai-linux-amd64": ("12/128Gi/100Gi", "8/8 8/80 100/800 0/0"),
    "gpustack-iluvatar-bi-v150-linux-amd64": ("8/64Gi/100Gi", "16/16 16/160 100/1600 0/0"),
    "gpustack-iluvatar-mr-v100-duo-linux-amd64": ("8/64Gi/100Gi", "2/2 2/20 100/200 0/0"),
    "gpustack-metax-mars-x201-linux-amd64": ("4/16Gi/100Gi", "1/1 1/10 100/100 0/0"),
    "gpustack-metax-mxc550-linux-amd64": ("12/128Gi/100Gi", "8/8 8/80 100/800 0/0"),
    "gpustack-mthreads-mtt-s5000-linux-amd64": ("8/64Gi/100Gi", "8/8 8/80 100/800 0/0"),
    "gpustack-nvidia-a100-sxm4-80gb-linux-amd64": ("12/128Gi/100Gi", "1/1 1/10 100/100 1/21"),
    "gpustack-nvidia-gb200-linux-arm64": ("12/192Gi/100Gi", "4/4 4/40 100/400 0/0"),
    "gpustack-nvidia-geforce-rtx-4090-linux-amd64": ("8/64Gi/100Gi", "7/7 7/70 100/700 0/0"),
    H100: ("12/192Gi/100Gi", "8/24 8/240 100/2400 0/0"),
    H200: ("12/192Gi/100Gi", "8/8 8/80 100/800 0/0"),
    "gpustack-nvidia-rtx-pro-6000-blackwell-server-edition-linux-amd64": ("4/16Gi/100Gi", "4/4 4/40 100/400 1/16"),
    T4: ("8/32Gi/100Gi", "1/2 1/20 100/200 0/0"),
    "gpustack-nvidia-tesla-v100-pcie-16gb-linux-amd64": ("8/32Gi/100Gi", "1/1 1/10 100/100 0/0"),
    "gpustack-thead-ppu-zw810e-linux-amd64": ("8/64Gi/100Gi", "16/16 16/160 100/1600 0/0"),
}
