"""TensorRT-LLM: `trtllm-serve` and its file of options.

Names as in TensorRT-LLM 1.0, tensorrt_llm/commands/serve.py and llmapi/llm_args.py: fields of LlmArgs in YAML, of which
some have flags too. Experts lie over the ranks that `tensor_parallel_size` counts; with `enable_attention_dp` each of
these attends to requests of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..export import ExportSubject, Flag, nested, yaml_text
from ..rows import Writing
from .engine import ServerFlags, ServerTraits, engine

OPTIONS = "trtllm.yaml"


def _write_speculation(w: Writing) -> None:
    drafts, c = w.subject.drafts, "speculative_config"
    if "mtp" in drafts:
        w.say(f"{c}.decoding_type", "MTP")
        w.say(f"{c}.num_nextn_predict_layers", drafts["mtp"])
    elif length := drafts.get("ngram") or drafts.get("draft_length"):
        w.say(f"{c}.decoding_type", "NGram" if "ngram" in drafts else "DraftTarget")
        w.say(f"{c}.max_draft_len", length)
        if "draft" in drafts:
            w.say(f"{c}.speculative_model_dir", drafts["draft"])


def options(flags: Sequence[Flag]) -> str:
    """Return the file of options."""
    return yaml_text(nested(flags))


def _render(subject: ExportSubject, flags: Sequence[Flag]) -> str:
    model = subject.weights or subject.model
    return f"cat > {OPTIONS} << 'EOF'\n{options(flags)}EOF\ntrtllm-serve {model} --config {OPTIONS}\n"


# fmt: off
TENSORRT_LLM = engine(
    "tensorrt-llm",
    "TensorRT-LLM",
    "TensorRT-LLM 1.0",
    ServerFlags(
        tp="tensor_parallel_size tp_size", pp="pipeline_parallel_size pp_size", ep="moe_expert_parallel_size ep_size",
        seqs="max_batch_size", tokens="max_num_tokens",
        memory="kv_cache_config.free_gpu_memory_fraction kv_cache_free_gpu_memory_fraction",
        block="kv_cache_config.tokens_per_block tokens_per_block", kv_dtype="kv_cache_config.dtype",
        longest="max_seq_len", model="model", attends_apart="enable_attention_dp",
        traits=ServerTraits(
            unchunked=(("enable_chunked_prefill", False),), memory_of_free=True, ranks_are_tp=True,
            caches={"fp8": "fp8", "fp4": "nvfp4"}, speculates=_write_speculation,
        ),
    ),
    _render,
    "python -m tensorrt_llm.serve.scripts.benchmark_serving --backend openai --model {model} --dataset-name random "
    "--random-input-len {isl} --random-output-len {osl} --random-ids",
)
# fmt: on
