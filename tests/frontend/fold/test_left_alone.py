"""A module is after a recording what it was before, whether the recording succeeded or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from torch import nn

from slipstick.frontend.fold.blocks import Identity
from slipstick.frontend.fold.trace import trace
from slipstick.frontend.huggingface.configs.models import read_config
from slipstick.frontend.runs.factories import run_from_factory
from slipstick.ir.errors import TraceError
from slipstick.ir.graph import Workload
from slipstick.ir.types import DType


@dataclass(frozen=True, slots=True)
class Look:
    """Everything a recording touches: parts by identity, their own attributes, tensors, modes and the config."""

    parts: tuple[tuple[str, int], ...]
    attributes: tuple[tuple[str, str], ...]
    tensors: tuple[tuple[str, int], ...]
    modes: tuple[bool, ...]
    config: str

    @classmethod
    def at(cls, module: nn.Module) -> Look:
        parts = list(module.named_modules())
        tensors = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        return cls(
            parts=tuple((name, id(part)) for name, part in parts),
            attributes=tuple((name, f"{key}={_plain(value)}") for name, part in parts for key, value in _own(part)),
            tensors=tuple((name, id(tensor)) for name, tensor in tensors),
            modes=tuple(part.training for _, part in parts),
            config=str(getattr(module, "config", "")),
        )


def _own(part: nn.Module) -> list[tuple[str, object]]:
    return [(key, value) for key, value in sorted(vars(part).items()) if not key.startswith("_") or "hooks" in key]


def _plain(value: object) -> str:
    return str(value) if isinstance(value, int | float | str | bool | dict | None) else str(id(value))


@pytest.mark.parametrize("workload", list(Workload))
@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2"])
def test_a_recorded_model_is_left_as_it_was(name: str, workload: Workload, configs: Path) -> None:
    pytest.importorskip("transformers", reason="builds the models; install slipstick[hf]")
    from slipstick.frontend.huggingface.configs.building import build

    module = build(read_config(str(configs / f"{name}.json")).text, DType.BF16)
    next(module.children()).eval()
    before = Look.at(module)
    trace(module, Identity(name, workload, DType.BF16), is_transformers=True)
    assert Look.at(module) == before


@pytest.mark.parametrize("factory", ["odd_layers", "skips", "routed", "pair"])
def test_a_users_module_is_left_as_it_was_even_when_it_fails(factory: str, nets: str) -> None:
    module = run_from_factory(f"{nets}:{factory}", DType.BF16).module
    before = Look.at(module)
    try:
        trace(module, Identity(factory, Workload.TRAIN, DType.BF16), is_transformers=False)
    except TraceError:
        assert factory in ("routed", "pair")
    assert Look.at(module) == before
