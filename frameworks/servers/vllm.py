"""vLLM: the command `vllm serve`.

Names are those of vLLM 0.25: flags are fields of vllm/config (parallel.py, cache.py, scheduler.py, model.py), words
of --quantization stand in vllm/model_executor/layers/quantization/__init__.py.
"""

from __future__ import annotations

from ...ir.text.json_text import json_text
from ..export import command
from ..rows import Writing
from .engine import ServerFlags, ServerTraits, engine


def _write_speculation(w: Writing) -> None:
    drafts = w.subject.drafts
    length = drafts.get("draft_length") or drafts.get("mtp") or drafts.get("ngram")
    method = {"model": drafts["draft"]} if "draft" in drafts else {"method": next(iter(drafts), "")}
    if length:
        w.say("--speculative-config", json_text({**method, "num_speculative_tokens": length}))


# fmt: off
VLLM = engine(
    "vllm",
    "vLLM",
    "vLLM 0.25",
    ServerFlags(
        tp="--tensor-parallel-size tp", spread="--decode-context-parallel-size", pp="--pipeline-parallel-size pp",
        dp="--data-parallel-size dp", whole_experts="--enable-expert-parallel ep", seqs="--max-num-seqs",
        tokens="--max-num-batched-tokens", memory="--gpu-memory-utilization", block="--block-size",
        kv_dtype="--kv-cache-dtype", longest="--max-model-len", quantization="--quantization q", model="model",
        eager="--enforce-eager",
        traits=ServerTraits(
            unchunked=(("--no-enable-chunked-prefill", None),),
            online={"fp8": "fp8_per_tensor", "fp8-rowwise": "fp8_per_channel", "fp8-block": "fp8_per_block",
                    "mxfp8": "mxfp8", "w8a16": "int8_per_channel_weight_only", "nvfp4": "nvfp4_per_token"},
            caches={"fp8": "fp8", "int8": "int8_per_token_head", "fp4": "nvfp4"}, speculates=_write_speculation,
        ),
    ),
    lambda subject, flags: command(f"vllm serve {subject.weights or subject.model}", flags),
    "vllm bench serve --model {model} --dataset-name random --random-input-len {isl} --random-output-len {osl}",
)
# fmt: on
