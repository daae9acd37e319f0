"""SGLang: the command `python -m sglang.launch_server`.

Names as in SGLang 0.5, python/sglang/srt/server_args.py: `--tp-size` counts all ranks, of which `--dp-size` groups
attend to requests of their own with `--enable-dp-attention`; prompts are whole with `--chunked-prefill-size -1`.
"""

from __future__ import annotations

from ..export import command
from ..rows import Writing
from .engine import ServerFlags, ServerTraits, engine


def _write_speculation(w: Writing) -> None:
    """Write a chain of drafts: as many steps, and one token more to check."""
    drafts = w.subject.drafts
    if "ngram" in drafts:
        w.say("--speculative-algorithm", "NGRAM")
        w.say("--speculative-num-draft-tokens", drafts["ngram"])
        return
    steps = drafts.get("mtp") or drafts.get("draft_length")
    if steps:
        w.say("--speculative-algorithm", "STANDALONE" if "draft" in drafts else "EAGLE")
        if "draft" in drafts:
            w.say("--speculative-draft-model-path", drafts["draft"])
        w.say("--speculative-num-steps", steps)
        w.say("--speculative-eagle-topk", 1)
        w.say("--speculative-num-draft-tokens", int(steps) + 1)


# fmt: off
SGLANG = engine(
    "sglang",
    "SGLang",
    "SGLang 0.5",
    ServerFlags(
        tp="--tp-size tp tensor_parallel_size", pp="--pp-size pp pipeline_parallel_size",
        dp="--dp-size dp data_parallel_size", ep="--ep-size ep expert_parallel_size", seqs="--max-running-requests",
        tokens="--chunked-prefill-size max_prefill_tokens", memory="--mem-fraction-static", block="--page-size",
        kv_dtype="--kv-cache-dtype", longest="--context-length", quantization="--quantization",
        model="model_path model", eager="--disable-cuda-graph", attends_apart="--enable-dp-attention",
        exchange="--moe-a2a-backend",
        traits=ServerTraits(
            unchunked=(("--chunked-prefill-size", -1),), ranks_are_tp=True, online={"fp8": "fp8"},
            caches={"fp8": "fp8_e4m3", "fp4": "fp4_e2m1"}, speculates=_write_speculation,
        ),
    ),
    lambda subject, flags: command(
        "python -m sglang.launch_server", [("--model-path", subject.weights or subject.model), *flags]
    ),
    "python -m sglang.bench_serving --backend sglang --model {model} --dataset-name random --random-input-len {isl} "
    "--random-output-len {osl} --random-range-ratio 1",
)
# fmt: on
