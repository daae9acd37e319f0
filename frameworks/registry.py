"""The vocabularies by name: those that are read and written, and the readers of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from .launch import Launch, Value
from .rows import Framework
from .servers.lmdeploy import LMDEPLOY
from .servers.sglang import SGLANG
from .servers.tensorrt_llm import TENSORRT_LLM
from .servers.vllm import VLLM
from .training.bridge import MEGATRON_BRIDGE
from .training.deepspeed import DEEPSPEED
from .training.maxtext import maxtext
from .training.megatron import MEGATRON
from .training.nanotron import nanotron
from .training.torchtitan import TORCHTITAN
from .training.trainers import trainer

Reader: TypeAlias = Callable[[Mapping[str, Value], Mapping[str, str], "int | None"], Launch]
ENGINES: Mapping[str, Framework] = MappingProxyType({one.name: one for one in (VLLM, SGLANG, TENSORRT_LLM, LMDEPLOY)})
VOCABULARIES: Mapping[str, Framework] = MappingProxyType(
    {**{one.name: one for one in (MEGATRON, MEGATRON_BRIDGE, TORCHTITAN, DEEPSPEED)}, **ENGINES}
)
TRAINERS: Mapping[str, Reader] = MappingProxyType(
    {
        "megatron": MEGATRON.read,
        "torchtitan": TORCHTITAN.read,
        "deepspeed": DEEPSPEED.read,
        "transformers": trainer,
        "nanotron": nanotron,
        "maxtext": maxtext,
    }
)
FRAMEWORKS = (*TRAINERS, *ENGINES)
