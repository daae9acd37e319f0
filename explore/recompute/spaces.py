"""Which memory policies a framework can run: the space of the search, and what of it its settings say.

Names were read in NVIDIA/Megatron-LM (`--recompute-modules` of selective recomputation, `block` and `uniform` of full),
pytorch/torchtitan (selective by operator, full), AI-Hypercomputer/maxtext (src/maxtext/configs/base.yml: `remat_policy:
custom` with a place for each tensor) and deepspeedai/DeepSpeed (`activation_checkpointing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

from ...frameworks.training.maxtext_policy import INPUT, TENSORS
from ...ir.errors import UnknownNameError
from ...ir.plan.training.decisions import MEGATRON_MODULES
from ...ir.records import dataclass

Words = Mapping[str, object]
# Policies that frameworks have, by what people call them.
KNOWN: Mapping[str, Words] = MappingProxyType(
    {
        "none": {},
        "selective": {"recompute": "selective"},
        "ops": {"recompute": "ops"},
        "full": {"recompute": "full"},
        "none, activations offloaded": {"offload": ("activations",)},
        "full, inputs offloaded": {"recompute": "full", "offload": ("activations",)},
    }
)
# Groups of layers of `uniform`.
_GROUPS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class PolicySpace:
    """The policies that a framework runs.

    Attributes:
        saves: whether it keeps results by name; else it has modules and layers alone.
        names: those that it may keep; None for all.
        mixes: whether layers may differ.
        kinds: values of `recompute` that it has.
        offloads: whether activations may go to the host by name, or only inputs of layers.
        first_layers: whether full recomputation may be of the first layers alone.
        modules: names of selective recomputation, of which every subset is tried.
        groups: numbers of layers that are recomputed together.
        to_host: whether activations may go to the host at all.
        by_stage: whether pipeline stages may recompute different numbers of layers, where layers may differ.
    """

    saves: bool = True
    names: frozenset[str] | None = None
    mixes: bool = True
    kinds: tuple[str, ...] = ("none", "selective", "ops", "full", "save")
    offloads: bool = True
    first_layers: bool = True
    modules: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    to_host: bool = True
    by_stage: bool = True

    def says(self, words: Words) -> bool:
        """Whether the framework has the words of a known policy."""
        kind = str(words.get("recompute", "none"))
        if kind not in self.kinds or ("recompute_layers" in words and not self.first_layers):
            return False
        return "offload" not in words or (self.to_host and (self.offloads or kind == "full"))

    def settings(self, blocks: Sequence[int]) -> Iterator[Words]:
        """Yield the policies of modules and of groups of layers, for stages of so many layers."""
        for num in range(1, len(self.modules) + 1):
            for some in combinations(self.modules, num):
                yield {"recompute": "selective", "recompute_modules": some}
        # Groups of layers inside of stages are not modelled.
        for num in self.groups if len(blocks) == 1 else ():
            if blocks[0] % num == 0:
                yield {"recompute": "full", "recompute_every": num}


FRAMEWORKS: Mapping[str, PolicySpace] = MappingProxyType(
    {
        "megatron": PolicySpace(
            saves=False,
            mixes=False,
            kinds=("none", "selective", "full"),
            offloads=False,
            modules=MEGATRON_MODULES,
            groups=_GROUPS,
        ),
        "torchtitan": PolicySpace(
            saves=False, mixes=False, kinds=("none", "ops", "full"), offloads=False, first_layers=False
        ),
        "maxtext": PolicySpace(
            names=frozenset(TENSORS.values()) - {":elementwise"},
            mixes=False,
            kinds=("none", "full", "save"),
            first_layers=False,
        ),
        "deepspeed": PolicySpace(saves=False, mixes=False, kinds=("none", "full"), offloads=False, first_layers=False),
    }
)


def space_of(framework: str | None) -> PolicySpace:
    """Return the space of a framework, of none the whole one; UnknownNameError names the nearest."""
    if framework is None:
        return PolicySpace()
    if framework not in FRAMEWORKS:
        raise UnknownNameError.of("framework of memory policies", framework, FRAMEWORKS)
    return FRAMEWORKS[framework]


def maxtext_settings(words: Words) -> Mapping[str, str]:
    """Return a policy as settings of MaxText: a place for each tensor that it names.

    >>> maxtext_settings({"recompute": "full"})
    {'remat_policy': 'full'}
    >>> maxtext_settings({"recompute": "save", "recompute_save": ("mlp.gate_proj",)})["mlpwi_0"]
    'device'
    """
    kind = str(words.get("recompute", "none"))
    if kind != "save":
        return {"remat_policy": kind}
    kept, away = words.get("recompute_save", ()), words.get("offload_modules", ())
    assert isinstance(kept, tuple)
    assert isinstance(away, tuple)
    places = {
        tensor: "offload" if name in away else "device" if name in kept else "remat" for tensor, name in TENSORS.items()
    }
    places[INPUT] = "offload" if ":elementwise" in away else "device"
    return {"remat_policy": "custom", **places}
