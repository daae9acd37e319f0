"""Tensor-parallel plans: which parameter is split how, by wildcards over module paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType

from ...ir.errors import UnknownNameError


class Style(StrEnum):
    """How a layer is split, in the words of transformers' own plans."""

    COLWISE = "colwise"
    COLWISE_GATHER = "colwise_gather_output"
    PACKED_COLWISE = "packed_colwise"
    ROWWISE = "rowwise"
    EMBEDDING = "embedding_rowwise"
    PER_HEAD = "per_head"
    REPLICATE = "replicate"


@dataclass(frozen=True, slots=True)
class TpPlan:
    """Wildcards over parameter paths (`layers.*` included) to styles; the first match wins, no match replicates.

    `eager_grads` reduces the input gradient of every column-parallel layer on its own, as a module-by-module DTensor
    plan does, instead of once for all layers that share the input.
    """

    name: str
    entries: tuple[tuple[str, Style], ...]
    eager_grads: bool = False
    doc: str = ""

    def style(self, parameter: str) -> Style:
        """Return the style of a parameter by its path.

        >>> tp_plan("megatron").style("model.layers.*.mlp.down_proj.weight")
        <Style.ROWWISE: 'rowwise'>
        """
        for pattern, style in self.entries:
            if fnmatchcase(parameter, pattern):
                return style
        return Style.REPLICATE


def _entries(style: Style, *names: str) -> tuple[tuple[str, Style], ...]:
    return tuple((f"*{n}{tail}", style) for n in names for tail in (".weight", ".bias"))


_EXPERTS = (
    ("*.experts.gate_up_proj", Style.PACKED_COLWISE), ("*.experts.gate_up_proj_bias", Style.PACKED_COLWISE),
    ("*.experts.up_proj", Style.COLWISE), ("*.experts.down_proj", Style.ROWWISE),
    ("*.experts.w1", Style.COLWISE), ("*.experts.w3", Style.COLWISE), ("*.experts.w2", Style.ROWWISE),
)  # fmt: skip
_LAYERS = (
    *_entries(Style.PACKED_COLWISE, ".c_attn", ".qkv_proj", ".Wqkv", ".gate_up_proj", ".qkv", ".w13"),
    *_entries(Style.COLWISE, ".q_proj", ".k_proj", ".v_proj", ".gate_proj", ".up_proj", ".q_b_proj", ".kv_b_proj",
              ".c_fc", ".fc1", ".fc_in", ".wq", ".wk", ".wv", ".w1", ".w3", ".dense_h_to_4h", ".linear_fc1"),
    *_entries(Style.ROWWISE, ".o_proj", ".down_proj", ".c_proj", ".fc2", ".fc_out", ".wo", ".w2", ".out_proj",
              ".dense_4h_to_h", ".linear_proj", ".linear_fc2"),
    ("*.sinks", Style.PER_HEAD),
)  # fmt: skip
_TABLES = _entries(Style.EMBEDDING, "embed_tokens", ".wte", "tok_embeddings", "word_embeddings")
_HEADS = ("lm_head", "embed_out", "output_layer", "output")

_MEGATRON = TpPlan(
    "megatron",
    (*_EXPERTS, *_TABLES, *_entries(Style.COLWISE, *_HEADS), *_LAYERS),
    doc="vocabulary-parallel embedding, head and loss; latent attention split by heads; sums reduced once",
)
_DTENSOR = TpPlan(
    "dtensor",
    (*_EXPERTS, *_TABLES, *_entries(Style.COLWISE_GATHER, *_HEADS), *_LAYERS),
    doc="DTensor with prepared module inputs: as megatron, with the head's output gathered for an ordinary loss",
)
_NAIVE = TpPlan(
    "dtensor-naive",
    (*_EXPERTS, *_LAYERS),
    eager_grads=True,
    doc="DTensor module by module: attention and MLP only, each column-parallel layer reduces its own input gradient",
)

TP_PLANS: Mapping[str, TpPlan] = MappingProxyType({p.name: p for p in (_MEGATRON, _DTENSOR, _NAIVE)})


def tp_plan(name: str) -> TpPlan:
    """Return a plan by name; UnknownNameError names the nearest."""
    if name not in TP_PLANS:
        raise UnknownNameError.of("tensor-parallel plan", name, TP_PLANS)
    return TP_PLANS[name]
