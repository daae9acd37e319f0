"""What a table calls an accelerator, and the system of the catalogue that it is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .rows import NotJudged, Row

SYSTEMS = MappingProxyType(
    {
        "A100 (8 per node, 800 Gb/s inter-node)": "dgx-a100-80gb",
        "A100 (NVIDIA Ampere, 80GB assumed)": "dgx-a100-80gb",
        "A100 (one 8-GPU node)": "dgx-a100-80gb",
        "A100-SXM4-40GB": "dgx-a100-40gb",
        "A100-SXM4-40GB (DGX-A100)": "dgx-a100-40gb",
        "A100-SXM4-80GB": "dgx-a100-80gb",
        "A100-SXM4-80GB (4-GPU node)": "dgx-a100-80gb",
        "A100-SXM4-80GB (Selene)": "dgx-a100-80gb",
        "A100 (8-GPU node, NVSwitch)": "dgx-a100-80gb",
        "A100-80GB (8x, CUDA 11.8)": "dgx-a100-80gb",
        "A100-80GB PCIe, pairwise NVLink": "a100-pcie-80gb-pairs",
        "A40-48GB": "a40-server",
        "B200": "dgx-b200",
        "B200 (DGX)": "dgx-b200",
        "B200-180GB (DGX)": "dgx-b200",
        "B200-SXM": "dgx-b200",
        "B300 (DGX)": "dgx-b300",
        "B300-SXM": "dgx-b300",
        "GB200": "gb200-nvl72",
        "GB200 (NVL72)": "gb200-nvl72",
        "GB200 NVL72": "gb200-nvl72",
        "GB200 192GB (NVL72)": "gb200-nvl72",
        "GB300 (NVL72)": "gb300-nvl72",
        "GH200 96GB": "gh200-cluster",
        "H100-96GB HBM2e 2.4TB/s, 500W (Grand Teton)": "dgx-h100",
        "H100-SXM-80GB (DGX)": "dgx-h100",
        "H100-SXM-80GB (RoCE 400Gb/s)": "dgx-h100",
        "H200-SXM-141GB, 400Gb/s RDMA per GPU": "dgx-h200",
        "H100 NVL/PCIe, pairwise NVLink": "h100-nvl-pairs",
        "H100-SXM-80GB": "dgx-h100",
        "H100-SXM-80GB (8-GPU node)": "dgx-h100",
        "H100-SXM5-80GB": "dgx-h100",
        "H200-SXM-141GB": "dgx-h200",
        "H800-SXM-80GB": "hgx-h800",
        "H800 (RoCE)": "hgx-h800",
        "H800-SXM5": "hgx-h800",
        "L40S": "l40s-server",
        "L40S-48GB": "l40s-server",
        "MI210": "mi210-server",
        "MI210 (one GCD-class card)": "mi210-server",
        "V100 (8-GPU node)": "dgx-1-v100",
        "V100-SXM3-32GB (DGX-2)": "dgx-1-v100",
    }
)
# What a machine has other than the system of the catalogue that is nearest to it.
OVERRIDES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "A100 (8 per node, 800 Gb/s inter-node)": ("network.infiniband.bandwidth=100Gbit/s",),
        "H100-96GB HBM2e 2.4TB/s, 500W (Grand Teton)": (
            "chip.memory.hbm.bandwidth=2.4TB/s",
            "chip.memory.hbm.capacity=96GiB",
            "chip.power_limit=500W",
        ),
        "H100-SXM-80GB (RoCE 400Gb/s)": ("network.infiniband.efficiency=0.8", "network.infiniband.latency=8us"),
        # Sixteen GPUs behind NVSwitch; a switch has every link for any pair.
        "V100-SXM3-32GB (DGX-2)": (),
    }
)
# Text such as 'H800-SXM (NVLink ~160 GB/s, CX7 400 Gb/s per GPU)' is told by its first word.
_BY_FIRST_WORD = MappingProxyType({"H800-SXM": "hgx-h800"})


def system_of(row: Row) -> str:
    """Return the system of a row; NotJudged where the catalogue has none."""
    given = row.text("accelerator")
    found = SYSTEMS.get(given) or _BY_FIRST_WORD.get(given.split(" ")[0])
    if found is None:
        raise NotJudged(f"no system of the catalogue is a '{given}'")
    return found


def overrides_of(row: Row) -> tuple[str, ...]:
    """Return what the machine of a row has other than its system: assignments as `load_system` takes them."""
    return OVERRIDES.get(row.text("accelerator"), ())
