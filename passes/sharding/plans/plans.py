"""Tensor-parallel plans: which parameter is split how, by wildcards over module paths."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType

from ....ir.errors import UnknownNameError
from ....ir.plan.training.adapters import DOWN, adapted_layer
from ....ir.plan.training.wildcards import matches
from ....ir.records import dataclass


class Style(StrEnum):
    """How a layer is split, in the words of transformers' own plans."""

    COLWISE = "colwise"
    COLWISE_GATHER = "colwise_gather_output"
    PACKED_COLWISE = "packed_colwise"
    ROWWISE = "rowwise"
    ROWWISE_SPLIT = "rowwise_split_input"
    PACKED_ROWWISE = "packed_rowwise"
    EMBEDDING = "embedding_rowwise"
    EMBEDDING_COLWISE = "embedding_colwise"
    PER_HEAD = "per_head"
    REPLICATE = "replicate"


# Styles that split what is summed over.
ROWS = (Style.ROWWISE, Style.ROWWISE_SPLIT, Style.PACKED_ROWWISE)


@dataclass(frozen=True, slots=True)
class TpPlan:
    """Wildcards over paths (`layers.*` included) to styles; the first match wins, no match replicates.

    A pattern names parameters or the modules that own them; all patterns are tried on the parameter first.
    `eager_grads` reduces the input gradient of every column-parallel layer, and the output of every row-parallel one,
    on its own, as a module-by-module DTensor plan does, instead of once for all layers that share the input or the sum.
    `note` is what a user should know of how the plan came about.
    """

    name: str
    entries: tuple[tuple[str, Style], ...]
    eager_grads: bool = False
    doc: str = ""
    note: str = ""

    def style(self, parameter: str) -> Style:
        """Return the style of a parameter by its path.

        >>> tp_plan("megatron").style("model.layers.*.mlp.down_proj.weight")
        <Style.ROWWISE: 'rowwise'>
        """
        layer, part = adapted_layer(parameter)
        if layer:
            # The matrix at the side that the layer is split at is split, the other one is whole.
            style = self.style(layer)
            splits = (part == DOWN) == (style in ROWS)
            return style if splits else Style.REPLICATE
        module = parameter.rpartition(".")[0]
        styles = (s for path in (parameter, module) for pattern, s in self.entries if matches(path, pattern))
        return next(styles, Style.REPLICATE)

    def names(self, parameter: str) -> bool:
        """Return whether some pattern is meant for a parameter, be it to keep it whole."""
        parameter = adapted_layer(parameter)[0] or parameter
        module = parameter.rpartition(".")[0]
        return any(matches(path, pattern) for path in (parameter, module) for pattern, _ in self.entries)

    def unmatched(self, parameters: Collection[str]) -> list[str]:
        """Return the patterns that name no parameter and no module that owns one."""
        paths = {path for p in parameters for path in (p, p.rpartition(".")[0])}
        return [pattern for pattern, _ in self.entries if not any(matches(path, pattern) for path in paths)]


def _entries(style: Style, *names: str) -> tuple[tuple[str, Style], ...]:
    return tuple((f"*{n}{tail}", style) for n in names for tail in (".weight", ".bias"))


_EXPERTS = (
    ("*.experts.gate_up_proj", Style.PACKED_COLWISE),
    ("*.experts.gate_up_proj_bias", Style.PACKED_COLWISE),
    ("*.experts.up_proj", Style.COLWISE),
    ("*.experts.down_proj", Style.ROWWISE),
    ("*.experts.mlp.ws", Style.PACKED_COLWISE),
    ("*.experts.mlp.w2s", Style.ROWWISE),
    ("*.experts.w1", Style.COLWISE),
    ("*.experts.w3", Style.COLWISE),
    ("*.experts.w2", Style.ROWWISE),
)
_LAYERS = (
    ("*.indexer.*", Style.REPLICATE),  # its heads are summed before keys are chosen: each rank scores them all
    *_entries(Style.PACKED_COLWISE, ".c_attn", ".qkv_proj", ".Wqkv", ".gate_up_proj", ".qkv", ".w13"),
    *_entries(Style.COLWISE, ".query_key_value", ".q_proj", ".k_proj", ".v_proj", ".gate_proj", ".up_proj",
              ".q_b_proj", ".kv_b_proj", ".c_fc", ".fc1", ".fc_in", ".wq", ".wk", ".wv", ".w1", ".w3",
              ".dense_h_to_4h", ".linear_fc1"),
    *_entries(Style.ROWWISE, ".o_proj", ".down_proj", ".c_proj", ".fc2", ".fc_out", ".wo", ".w2", ".out_proj",
              ".dense_4h_to_h", ".linear_proj", ".linear_fc2", ".self_attn.dense", ".attention.dense",
              ".self_attention.dense"),
    ("*.sinks", Style.PER_HEAD),
    # Encoders and encoder-decoders: BERT's names and T5's.
    *_entries(Style.COLWISE, ".self.query", ".self.key", ".self.value", ".intermediate.dense", "Attention.q",
              "Attention.k", "Attention.v", ".wi", ".wi_0", ".wi_1"),
    *_entries(Style.ROWWISE, "Attention.o", ".output.dense"),
    # Mamba, as vLLM and Megatron-LM split it: channels and heads; the gated norm and the skip go with them.
    *_entries(Style.PACKED_COLWISE, ".in_proj", ".conv1d", ".conv.conv"),
    # Delta rules, as vLLM splits them: heads of the projections, of gates behind their low rank, and of decays.
    *_entries(Style.PACKED_COLWISE, ".in_proj_qkv"),
    *_entries(Style.COLWISE, ".in_proj_qkvz", ".in_proj_ba", ".in_proj_z", ".in_proj_a", ".in_proj_b",
              ".f_b_proj", ".g_b_proj", ".self_attn.b_proj", ".linear_attn.a_proj", ".linear_attn.b_proj",
              ".linear_attn.g_proj", ".output_gate"),
    # mLSTM and RG-LRU: heads and channels.
    *_entries(Style.COLWISE, ".mlstm_layer.q", ".mlstm_layer.k", ".mlstm_layer.v", ".mlstm_layer.ogate_preact",
              ".mlstm_layer.igate_preact", ".mlstm_layer.fgate_preact", ".linear_x", ".linear_y", ".conv_1d"),
    *_entries(Style.ROWWISE, ".linear_out"),
    *((f"*.{n}", Style.PER_HEAD) for n in ("mlstm_layer.multihead_norm.weight",
                                           "rg_lru.input_gate_weight", "rg_lru.input_gate_bias",
                                           "rg_lru.recurrent_gate_weight", "rg_lru.recurrent_gate_bias",
                                           "rg_lru.recurrent_param")),
    *_entries(Style.ROWWISE, ".x_proj"),
    *_entries(Style.COLWISE, ".dt_proj"),
    *((f"*.{n}", Style.PER_HEAD) for n in ("A_log", "dt_bias", "mamba.D", "mixer.D", "mamba.norm.weight",
                                           "mixer.norm.weight")),
)  # fmt: skip
_TABLES = _entries(
    Style.EMBEDDING,
    "embed_tokens",
    "embed_tokens_per_layer",
    "embed_in",
    ".wte",
    "tok_embeddings",
    "word_embeddings",
    "backbone.embeddings",
    "model.embeddings",
)
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
# Plans that are made for a model: from what it says itself, and by search.
MADE_PLANS: Mapping[str, str] = MappingProxyType(
    {
        "auto": "found by search: columns, rows or whole for each matrix, by least communication and repeated work",
        "hf": "the model's own: base_model_tp_plan of its transformers class, each layer reduces its own gradient",
    }
)

# Words of transformers (5.23 and older) that move nothing by themselves: what such a module computes lies as its
# parameters and inputs make it, and a sum is completed where it is used.
_FOLLOWING = (
    "all_reduce",
    "ep_dispatch_experts",
    "ep_router",
    "gather",
    "grouped_gemm",
    "local",
    "local_params",
    "mla_kv_a_proj",
    "moe_identity_expert",
    "moe_tp_experts",
    "replicated_with_grad_allreduce",
    "sequence_parallel",
)
_SYNONYMS = {
    "colwise_rep": Style.COLWISE_GATHER,
    "local_colwise": Style.COLWISE,
    "local_packed_rowwise": Style.PACKED_ROWWISE,
    "local_rowwise": Style.ROWWISE,
    "rowwise_rep": Style.ROWWISE_SPLIT,
}
STYLES: Mapping[str, Style] = MappingProxyType(
    {**{str(s): s for s in Style}, **_SYNONYMS, **dict.fromkeys(_FOLLOWING, Style.REPLICATE)}
)


def tp_plan(name: str) -> TpPlan:
    """Return a plan by name; UnknownNameError names the nearest."""
    if name not in TP_PLANS:
        raise UnknownNameError.of(
            "tensor-parallel plan", name, [*TP_PLANS, *MADE_PLANS, "a .yaml, .json or .toml file"]
        )
    return TP_PLANS[name]


def style_of(word: str) -> Style:
    """Return what a word for a style means; UnknownNameError names the nearest.

    >>> style_of("colwise_rep")
    <Style.COLWISE_GATHER: 'colwise_gather_output'>
    """
    if word not in STYLES:
        raise UnknownNameError.of("tensor-parallel style", word, STYLES)
    return STYLES[word]
