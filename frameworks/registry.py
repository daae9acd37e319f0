"""The vocabularies by name: those that are read and written, and the readers of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from .launch import Launch, Value
    from .rows import Framework

T = TypeVar("T")
Reader: TypeAlias = "Callable[[Mapping[str, Value], Mapping[str, str], int | None], Launch]"


class NamesInModules(Mapping[str, T]):
    """Objects by name, each in a module of this room that is loaded when it is asked for: `servers.vllm:VLLM`."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        return cast("T", getattr(import_module(f".{module}", __package__), attribute))

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


_ENGINES = {
    "vllm": "servers.vllm:VLLM",
    "sglang": "servers.sglang:SGLANG",
    "tensorrt-llm": "servers.tensorrt_llm:TENSORRT_LLM",
    "lmdeploy": "servers.lmdeploy:LMDEPLOY",
}
_WRITTEN = {
    "megatron": "training.megatron:MEGATRON",
    "megatron-bridge": "training.bridge:MEGATRON_BRIDGE",
    "torchtitan": "training.torchtitan:TORCHTITAN",
    "deepspeed": "training.deepspeed:DEEPSPEED",
}
_READERS = {
    "transformers": "training.trainers:trainer",
    "nanotron": "training.nanotron:nanotron",
    "maxtext": "training.maxtext:maxtext",
}
ENGINES: Mapping[str, Framework] = NamesInModules(_ENGINES)
VOCABULARIES: Mapping[str, Framework] = NamesInModules({**_WRITTEN, **_ENGINES})
# Frameworks of which training launches are read; a Bridge recipe is code and is written alone.
TRAINERS = ("megatron", "torchtitan", "deepspeed", *_READERS)
FRAMEWORKS = (*TRAINERS, *_ENGINES)


def reader_of(framework: str) -> Reader:
    """Return what reads training launches of a framework."""
    readers: Mapping[str, Reader] = NamesInModules(_READERS)
    return readers[framework] if framework in _READERS else VOCABULARIES[framework].read
