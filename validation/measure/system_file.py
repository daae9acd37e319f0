"""A measured machine as a system file: a rank of it is a chip, its network what ranks were measured to have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import yaml

from ...ir.text.files import write_whole
from ...ir.types import DType
from ..kernels.measured import ATTENTION_KIND, LIBRARY
from .collectives import MeasuredLink
from .device import Device, Facts
from .silicon import Silicon

Tree: TypeAlias = Mapping[str, "str | Tree | list[Tree] | float"]
# Of a hardware thread under load, where nobody measures power: server processors of 2020 to 2025 have 280 to 400 W for
# 64 to 128 threads.
_WATTS_A_THREAD, _WATTS_CUDA = 4, 500


def write_system(
    path: Path, device: Device, facts: Facts, silicon: Silicon, link: MeasuredLink | None, when: str, calibration: str
) -> None:
    """Write the file, whole; it refers to its calibration by the name of a file beside it."""
    how = f"slipstick calibrate --device {device.kind}, {facts.versions}"
    # Eager PyTorch; no context of a driver takes memory on a CPU.
    stack = {
        "name": "eager",
        "launch_overhead": _measured(silicon.dispatch_s * 1e6, "us", f"an op on one element; {how}", when),
        "collective_overhead": _estimated(50, "us", "a collective of gloo, or of NCCL from eager code"),
        "memory_reserve": _estimated(0, "B", "what the process itself needs is not counted"),
        "library": LIBRARY,
        "attention": ATTENTION_KIND,
    }
    tree = {
        "name": path.stem,
        "chip": _chip(device, facts, silicon, how, when),
        "node": {"num_chips": _count(1, "ranks that were measured")},
        "network": [_network(silicon, link, how, when)],
        "stack": stack,
        "calibration": calibration,
    }
    heading = f"# {facts.name}, measured by `slipstick calibrate --device {device.kind}` on {when}.\n"
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120)
    write_whole(path, heading + text)


def _measured(value: float, unit: str, source: str, when: str) -> dict[str, object]:
    return {"value": float(f"{value:.4g}"), "unit": unit, "confidence": "measured", "source": source, "as_of": when}


def _estimated(value: float, unit: str, source: str) -> dict[str, object]:
    return {"value": value, "unit": unit, "confidence": "estimated", "source": source}


def _count(value: int, source: str) -> dict[str, object]:
    return {"value": value, "confidence": "measured", "source": source}


def _chip(device: Device, facts: Facts, silicon: Silicon, how: str, when: str) -> dict[str, object]:
    rate = f"a large product and a tenth more, for none reaches a peak; {how}"
    peaks = {d.value: _measured(r / 1e12, "TFLOP/s", rate, when) for d, r in silicon.flop_per_s.items()}
    watts = _WATTS_CUDA if device.is_cuda else _WATTS_A_THREAD * device.threads
    power = _estimated(watts, "W", "not measured: what processors of its kind draw")
    if facts.power_w is not None:
        power = _measured(facts.power_w, "W", "the limit that its driver holds it to", when)
    units = "multiprocessors" if device.is_cuda else "threads used; a thread counts as an SM"
    # On a CPU products run on the vector units; on a GPU those in fp32 do.
    source = "products in fp32, which no tensor core takes" if device.is_cuda else "products run on the vector units"
    return {
        "name": facts.name,
        "num_sms": _count(facts.num_sms, units),
        "clock": _measured(facts.clock_hz / 1e9, "GHz", "the system says so", when),
        "power": power,
        "matmul": peaks,
        "vector": {"fp32": {**peaks[DType.FP32.value], "source": source}},
        "memory": {
            "hbm": {
                "capacity": _measured(facts.memory_bytes / 1e9, "GB", "the system says so", when),
                "bandwidth": _measured(silicon.memory_bytes_per_s / 1e9, "GB/s", f"a large copy or sum; {how}", when),
            },
            "l2": {
                "capacity": {
                    "value": facts.cache_bytes / 2**20,
                    "unit": "MiB",
                    "confidence": "measured",
                    "source": "the system says so: the last cache before the memory",
                }
            },
        },
    }


def _network(silicon: Silicon, link: MeasuredLink | None, how: str, when: str) -> dict[str, object]:
    """Other ranks are on the same host: what they send each other goes through its memory."""
    level: dict[str, object] = {"name": "host", "topology": "switch"}
    if link is not None:
        return level | {
            "bandwidth": _measured(link.bytes_per_s / 1e9, "GB/s", f"large messages between two ranks; {how}", when),
            "latency": _measured(link.latency_s * 1e6, "us", f"small messages between two ranks; {how}", when),
            "efficiency": _count(1, "the bandwidth is what messages reach"),
        }
    return level | {
        "bandwidth": _estimated(
            float(f"{silicon.memory_bytes_per_s / 2e9:.4g}"), "GB/s", "half of what a large copy or sum moves"
        ),
        "latency": _estimated(20, "us", "a message between processes of one host"),
        "efficiency": _estimated(0.5, "", "what messages between processes of one host reach"),
    }
