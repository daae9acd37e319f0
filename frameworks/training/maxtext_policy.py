"""What MaxText keeps of a layer, computes again or holds in host memory, tensor by tensor, as words of a plan.

Names and policies as in AI-Hypercomputer/maxtext at commit e591f30cbbf2: src/maxtext/configs/base.yml (`remat_policy`)
and src/maxtext/layers/decoders.py (`get_remat_policy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...ir.errors import ParseError
from ..launch import Reading

# What a layer begins with: kept by every policy, at the latest as the start of what is computed again.
INPUT = "decoder_layer_input"
# Tensors of a layer that MaxText names, and the results of a plan that they are.
TENSORS: Mapping[str, str] = MappingProxyType(
    {
        INPUT: ":elementwise",
        "query_proj": "self_attn.q_proj",
        "key_proj": "self_attn.k_proj",
        "value_proj": "self_attn.v_proj",
        "context": "self_attn:attention",
        "out_proj": "self_attn.o_proj",
        "mlpwi_0": "mlp.gate_proj",
        "mlpwi_1": "mlp.up_proj",
        "mlpwo": "mlp.down_proj",
    }
)
_ATTENTION = ("query_proj", "key_proj", "value_proj", "out_proj")
_DOTS = (*_ATTENTION, "mlpwi_0", "mlpwi_1", "mlpwo")
# Names of more than one tensor, or of one under another name.
_SAME: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "qkv_proj": _ATTENTION[:3],
        "kv_proj": _ATTENTION[1:3],
        "mlpwi": ("mlpwi_0",),
        "attention_out": ("context",),
        "moe_mlpwi_0": ("mlpwi_0",),
        "moe_mlpwi_1": ("mlpwi_1",),
        "moe_mlpwo": ("mlpwo",),
    }
)
# What is called otherwise in latent attention, and in layers of experts.
_LATENT: Mapping[str, str] = MappingProxyType(
    {
        "query_wa_proj": "self_attn.q_a_proj",
        "mla_q": "self_attn.q_a_layernorm",
        "query_proj": "self_attn.q_b_proj",
        "kv_wa_proj": "self_attn.kv_a_proj_with_mqa",
        "mla_kv": "self_attn.kv_a_layernorm",
        "key_proj": "self_attn.kv_b_proj",
        "value_proj": "self_attn.kv_b_proj",
    }
)
_EXPERTS: Mapping[str, str] = MappingProxyType({"mlpwi_0": "", "mlpwi_1": "", "mlpwo": "mlp.experts"})
_LATENT_MODELS = ("deepseek", "kimi")
_EXPERT_MODELS = ("mixtral", "gpt-oss", "qwen3-30b", "qwen3-235b", "llama4", "llama-4")
# Policies by what they keep, and what of it in host memory; `selective` computes attention again, as `minimal` does.
_POLICIES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = MappingProxyType(
    {
        "minimal_with_context": ((*_DOTS, "context"), ()),
        "minimal_flash": ((*_DOTS, "context"), ()),
        "minimal_offloaded": (_DOTS, _DOTS),
        "save_dot_with_context_except_mlp": ((*_ATTENTION, "context"), ()),
        "save_dot_except_mlpwi": ((*_ATTENTION, "mlpwo"), ()),
        "save_dot_except_mlp": (_ATTENTION, ()),
        "save_qkv_proj": (_ATTENTION[:3], ()),
        "qkv_proj_offloaded": (_ATTENTION[:3], _ATTENTION[:3]),
        "save_out_proj": (("out_proj",), ()),
    }
)
_KINDS: Mapping[str, str] = MappingProxyType({"full": "full", "minimal": "selective", "none": "none"})
_PLACES = ("remat", "device", "offload")


def memory_policy(r: Reading) -> None:
    """Say what of a layer is kept and where, and what of the state of training is in host memory.

    Raises:
        ParseError: a tensor has a place that is none.
    """
    policy = r.text("remat_policy") or "full"
    custom = {name: r.text(name) or "remat" for name in (*TENSORS, *_SAME, *_LATENT) if r.has(name)}
    if wrong := [f"{name}={place}" for name, place in custom.items() if place not in _PLACES]:
        raise ParseError(f"{', '.join(wrong)}: a tensor's place is one of {', '.join(_PLACES)}")
    activations = False
    if policy in _KINDS:
        r.say("recompute", _KINDS[policy], "remat_policy")
        r.understand(f"of no influence under {policy}", *custom)
    elif policy in _POLICIES or policy == "custom":
        kept, away = _POLICIES.get(policy, ((), ()))
        places = {name: "offload" if name in away else "device" for name in kept}
        activations = _keep(r, custom if policy == "custom" else places)
        r.understand(f"of {policy}", "remat_policy", *custom)
    optimizer = r.flag("optimizer_memory_host_offload")
    params = r.flag("parameter_memory_host_offload")
    moved = {"activations": activations, "optimizer": optimizer, "params": params}
    r.say(
        "offload",
        ",".join(word for word, is_away in moved.items() if is_away) or None,
        "optimizer_memory_host_offload",
        "parameter_memory_host_offload",
    )


def _keep(r: Reading, places: Mapping[str, str]) -> bool:
    """Say what is kept beside a layer's input, and what of all that goes to the host; whether anything does."""
    model = str(r.words.get("model", ""))
    names: Mapping[str, str] = TENSORS
    if model.startswith(_LATENT_MODELS):
        names = {**names, **_LATENT}
    if model.startswith((*_LATENT_MODELS, *_EXPERT_MODELS)):
        names = {**names, **_EXPERTS}
    kept: dict[str, str] = {}
    lost = []
    for said, place in places.items():
        if place == "remat" or said == INPUT:
            continue
        for tensor in _SAME.get(said, (said,)):
            if names.get(tensor):
                kept[names[tensor]] = place
            else:
                lost.append(said)
    if lost:
        r.assume(f"computed again: {', '.join(lost)}, which a plan of {model or 'this model'} does not keep by name")
    r.words["recompute"] = "save" if kept else "full"
    if kept:
        r.words["recompute_save"] = ",".join(kept)
    away = [name for name, place in kept.items() if place == "offload"]
    if places.get(INPUT) == "offload":
        away.append(names[INPUT])
    # All that is kept goes by itself; a part of it is named.
    if away and len(away) < len(kept) + 1:
        r.words["offload_modules"] = ",".join(away)
    return bool(away)
