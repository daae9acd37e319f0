import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from slipstick.ir.types import DType
from slipstick.validation.measure.device import Device, facts_of
from slipstick.validation.measure.kernels.products import LARGE, QUICK, product_probes
from slipstick.validation.measure.run import check_sizes


def test_a_quick_sweep_of_a_gpu_takes_every_fifth_of_its_sizes() -> None:
    """Sizes that keep a core busy tell nothing of a GPU but its launches."""
    gpu, core = Device("cuda", 1), Device("cpu", 1)
    assert gpu.sizes(True, "few", "full", "abcdefghijklm") == "afk"
    assert gpu.sizes(True, "few", "full", "abc") == "abc"
    assert (gpu.sizes(False, "few", "full", "large"), core.sizes(True, "few", "full", "large")) == ("large", "few")
    probes = list(product_probes(gpu, (DType.BF16,), quick=True))
    # Six sizes of thirty, of all shapes, in three layouts.
    assert len(probes) == 3 * len(LARGE[::5]) == 18
    assert {str(probe.cells["m"]) for probe in probes}.isdisjoint(str(size[0]) for size in QUICK[:3] if size[0] != 64)
    assert check_sizes(gpu, quick=True) == check_sizes(gpu, quick=False)


@pytest.mark.parametrize(("said", "watts"), [("700.00", 700.0), ("[N/A]", None), (None, None)])
def test_the_limit_of_a_gpus_power_is_asked_of_its_driver(
    said: str | None, watts: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said is not None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\necho '{said}'\n", encoding="utf-8")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin" if said else str(tmp_path))
    found = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", multi_processor_count=132, clock_rate=1980000, L2_cache_size=50 * 2**20,
        total_memory=85017493504,
    )  # fmt: skip
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: found)
    facts = facts_of(Device("cuda", 1))
    assert (facts.power_w, facts.num_sms, facts.clock_hz) == (watts, 132, 1.98e9)
