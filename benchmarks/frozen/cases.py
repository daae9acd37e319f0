"""The questions: commands over all models and systems in which each word of a plan has another value at least once."""

from __future__ import annotations

from collections.abc import Iterator

# The models that stand for a dense one and for one with experts; small graphs, many words.
_DENSE, _EXPERTS, _LATENT = "llama-3.1-8b", "mixtral-8x7b", "deepseek-v3"
_ESTIMATE = "--format json --no-sensitivity --allow-infeasible -q"
# Words of a training plan of a dense model, each beside those that it needs.
_TRAINED = (
    "", "--gpus 16 --tp 8", "--gpus 16 --tensor-model-parallel-size 4 --dp 4", "--gpus 64 --tp 4 --cp 4",
    "--tp 2 --no-sp", "--gpus 16 --pp 4 --gbs 64", "--pp 2 --gbs 32 --tp 2 --no-sp --stack megatron-core",
    "--pp 2 --gbs 32 --tp 2 --no-sp --scatter-p2p", "--pp 2 --gbs 32 --tp 2 --no-sp --stack megatron-core "
    "--no-scatter-p2p", "--gpus 16 --pp 4 --vpp 2 --gbs 64", "--gpus 8 --pp 4 --vpp 2 --schedule interleaved --gbs 64",
    *(f"--gpus 8 --pp 4 --gbs 64 --schedule {word}" for word in ("gpipe", "zb-h1", "zb-h2", "dualpipe")),
    *(f"--gpus 8 --pp 4 --gbs 64 --vpp 2 --schedule {word}" for word in ("zb-v", "dualpipe-v")),
    "--gpus 8 --pp 4 --gbs 64 --pp-layout 9,8,8,7", "--gpus 8 --pp 4 --gbs 64 --pp-layout balanced",
    "--gpus 8 --pp 4 --gbs 64 --pp-layout even", "--gpus 64 --tp 2 --pp 4 --gbs 64 --order tp-cp-ep-pp-dp",
    "--cp 4 --cp-method ring", "--cp 4 --cp-method ulysses", "--cp 4 --cp-ulysses 2 --cp-method ring",
    "--tp 2 --async-tp", "--tp 2 --tp-plan dtensor", "--tp 2 --tp-plan auto", "--tp 2 --replicate-unknown",
    *(f"--gpus 16 --zero {stage}" for stage in (1, 2, 3)), "--gpus 64 --zero 3 --dp-shard 8",
    "--gpus 16 --zero 3 --reshard microbatch --gbs 64", "--gpus 16 --zero 3 --reshard step --gbs 64",
    *(f"--kernels {word}" for word in ("plain", "eager", "merged", "torch", "compiled", "fused")),
    *(f"--precision {word}" for word in ("fp8", "fp8-rowwise", "fp8-block", "fp8-delayed")),
    "--system dgx-h100 --precision int8",
    "--precision fp8 --zero 3 --fp8-param-gather", "--precision fp8 --fp8-attention",
    "--system dgx-b200 --precision mxfp8 --zero 1 --fp8-param-gather",
    "--system dgx-b200 --precision mxfp8 --fp8-output-proj",
    "--precision fp8 --bf16-first 2 --bf16-last 1", "--mtp-num-layers 1",
    "--recompute selective", "--recompute selective --recompute-modules mlp,layernorm", "--recompute ops",
    "--recompute full", "--recompute full --recompute-layers 8", "--recompute full --recompute-every 4",
    "--recompute full --no-early-stop", "--recompute save --recompute-save core_attn --recompute-layers 8 "
    "--recompute-save-rest core_attn,mlp.gate_proj", "--gpus 8 --pp 4 --gbs 64 --recompute save --recompute-save "
    "core_attn --recompute-by-chunk 4,3,1,0", "--recompute save --recompute-save core_attn,mlp.gate_proj --offload "
    "activations --offload-modules mlp.gate_proj", "--zero 1 --offload optimizer", "--offload activations",
    "--zero 3 --offload optimizer,params", "--grad-dtype bf16", "--zero 2 --reduce-dtype fp32",
    "--main-params-dtype none --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", "--exp-avg-dtype int8 --exp-avg-sq-dtype "
    "int8", "--mbs 2 --gbs 64", "--no-fuse", "--dtype fp32", "--seq 2048",
    "--gpus 64 --tp 4 --system tpu-v5p-pod --placement blocks", "--flops-convention causal",
    "--cuda-graph", "--set chip.memory.hbm.bandwidth=4.8TB/s", "--rent", "--basis build", "--stack torchtitan",
    "--lora-rank 16 --lora-modules q_proj,v_proj --lora-dropout 0.1", "--lora-rank 8 --lora-base nf4 --zero 1",
    "--tokens 1T --mtbf 50000h/gpu --checkpoint-every 30min --checkpoint-bandwidth 200GB/s",
)  # fmt: skip
_OF_EXPERTS = (
    "--gpus 16 --ep 8", "--gpus 16 --tp 2 --ep 4 --etp 2", "--gpus 16 --tp 2 --ep 8 --etp 1",
    "--gpus 16 --ep 8 --capacity-factor 1.25", "--gpus 16 --ep 8 --expert-imbalance 1.5",
    "--gpus 16 --ep 8 --dispatch-dtype fp8",
    "--gpus 16 --ep 8 --expert-popularity power:1.2", "--gpus 32 --ep 8 --routing-nodes 2 --order tp-ep-cp-dp-pp",
    "--gpus 32 --ep 8 --zero 3 --dp-shard 2", "--tp 4 --replicate-unknown --kernels fused",
)  # fmt: skip
_INFERRED = (
    "", "--tp 4 --kernels fused", "--gpus 16 --tp 8 --mbs 8", "--tp 2 --stack vllm", "--kv-dtype fp8",
    "--kv-dtype int8", "--precision int8", "--precision w4a16", "--precision fp8 --precision-of lm_head=fp8",
    "--precision-of *mlp*=w8a16", "--pp 2", "--engine vllm --tp 2", "--bf16-first 1 --precision fp8-block",
)  # fmt: skip
_INFERRED_EXPERTS = (
    "--gpus 16 --ep 8 --expert-popularity power:1.2 --eplb --redundant-experts 8",
    "--gpus 8 --ep 8", "--gpus 8 --ep 8 --ep-exchange allgather", "--gpus 8 --tp 4 --etp 8",
    "--gpus 8 --tp 2 --ep 8 --etp 1",
)  # fmt: skip
_SERVED = (
    "llama-3.1-8b --tp 2 --request-rate 4", "llama-3.1-8b --tp 2 --concurrency 32 --isl 2000 --osl 300",
    "llama-3.1-8b --kv-dtype fp8 --concurrency 64 --ttft 500ms --tpot 20ms", "llama-3.1-70b --gpus 8 --tp 4",
    "mixtral-8x7b --gpus 8 --tp 2 --ep 8 --etp 1 --concurrency 64", "gpt-oss-20b --precision as-published --batch 16",
    "llama-3.1-8b --concurrency 16 --ngram 3 --acceptance 0.7", "llama-3.1-8b --disagg 2:2 --request-rate 3",
    "deepseek-v3 --gpus 16 --tp 8 --ep 16 --etp 1 --precision fp8-block --concurrency 128", "qwen3-8b --engine sglang",
    "llama-3.1-8b --serve poisson:2,n=50 --isl 500 --osl 50", "llama-3.1-8b --isl 500 --osl 50 --ttft 1s --serve "
    "steps:2@1min+40@1min+2@1min --autoscale 1:3,target=8,startup=10s,down=30s",
    "llama-3.1-8b --chunked-prefill 0 --request-rate 2",
)  # fmt: skip
_SEARCHED = (
    "llama-3.1-8b --gpus 16 --gbs 16 --fix tp=8 --fix cp=1 --fix vpp=1 --fix schedule=1f1b --fix sp=true --fix mbs=1",
    "llama-3.1-8b --gpus 16 --gbs 16 --tp 4 --pp 2 --cp 1 --zero 1 --sp --vary recompute=all "
    "--vary kernels=torch,fused --vary offload=none,optimizer --schedule interleaved",
    "llama-3.1-8b --gpus 16 --gbs 16 --tp 2 --pp 1 --sp --recompute none --vary cp-method=all --vary cp_ulysses=1,2",
    "llama-3.1-8b --gpus 16 --gbs 16 --tp 2 --pp 1 --cp 1 --sp --recompute none --vary dp_shard=2,4 --vary zero=2,3 "
    "--vary reshard=all --objective step_time_s,peak_mem_bytes",
    "mixtral-8x7b --gpus 16 --gbs 16 --pp 1 --cp 1 --zero 1 --recompute none --mbs 1 --capacity-factor 1.25 "
    "--vary dispatch-dtype=same,fp8",
    "mixtral-8x7b --gpus 16 --gbs 16 --pp 1 --cp 1 --tp 2 --zero 1 --recompute none --mbs 1 --expert-imbalance 1.3 "
    "--vary etp=1,tp",
    "llama-3.1-8b --gpus 8 --phase decode --mbs 8 --pp 1 --vary kv-dtype=same,fp8 --vary precision=none,fp8",
    "llama-3.1-8b --gpus 8 --phase prefill --mbs 1 --cp 1 --pp 1 --vary kernels=all",
    "llama-3.1-8b --gpus 8 --phase serve --isl 1000 --osl 200 --vary tp=1,2 --vary kv_dtype=same,fp8 --ttft 1s",
    "llama-3.1-8b --gpus 16 --gbs 16 --tp 4 --pp 1 --cp 1 --zero 1 --sp --recompute none --vary "
    "system.hbm.bandwidth=3TB/s,4TB/s",
)  # fmt: skip
# Plans that are refused: the message is the answer.
_REFUSED = (
    "--gpus 8 --tp 3", "--gpus 8 --dp 3 --tp 4", "--gpus 8 --ep 3", "--gpus 8 --tp 2 --etp 3", "--gpus 8 --cp 3",
    "--cp 4 --cp-ulysses 3", "--cp 4 --cp-method ulysses --cp-ulysses 2", "--gpus 8 --gbs 3", "--tp 2 --no-sp "
    "--async-tp", "--zero 4", "--zero 2 --reshard step", "--offload params", "--zero 3 --offload params",
    "--offload gradients", "--offload disks", "--recompute ful", "--recompute full --recompute-modules mlp",
    "--recompute none --no-early-stop", "--recompute-layers 0", "--recompute full --recompute-layers 2 "
    "--recompute-every 2", "--recompute full --recompute-every 2 --pp 2 --gbs 16", "--order tp-dp",
    "--schedule interleaved", "--pp 3 --gpus 9 --schedule dualpipe --gbs 27", "--pp 4 --schedule zb-v --vpp 3 --gbs 8",
    "--schedule zb-h1", "--pp-layout odd", "--phase decode --cp 2", "--phase decode --sp", "--phase prefill --zero 1",
    "--phase prefill --kernels torch", "--mla expanded", "--precision w8a16", "--phase prefill --precision fp8-delayed",
    "--precision as-published", "--exp-avg-dtype int8", "--exp-avg-dtyp int8", "--fp8-param-gather", "--bf16-first 2",
    "--kv-dtype fp8", "--dispatch-dtype fp8", "--routing-nodes 2", "--ep-exchange allgather",
    "--ep 2 --capacity-factor 0", "--ep 2 --gpus 4 --expert-imbalance 3", "--expert-imbalance 2",
    "--dp-shard 2 --gpus 4", "--zero 1 --dp-shard 3 --gpus 4", "--tp 0", "--mbs 0", "--seq 0", "--tp-plan megatro",
    "--kernels fusd",     "--precision-of lm_head=fp8",
)  # fmt: skip
_EXPORTED = (
    "--to megatron --gpus 16 --tp 4 --pp 2 --vpp 2 --gbs 64 --zero 1", "--to torchtitan --gpus 16 --tp 4 --zero 3 "
    "--recompute full", "--to deepspeed --gpus 16 --zero 3 --offload optimizer,params", "--to megatron --cp 2 --gpus 8 "
    "--recompute full --recompute-layers 4 --precision fp8-delayed", "--to torchtitan --pp 2 --gbs 16 --schedule gpipe "
    "--async-tp --tp 2 --gpus 8", "--to megatron --kernels torch --grad-dtype bf16 --exp-avg-dtype bf16 --zero 1",
    "--to vllm --phase serve --system dgx-h100 --tp 2 --kv-dtype fp8",
)  # fmt: skip
# Options of the shared sections that no command moves: code of a user, progress, files.
UNMOVED = frozenset({"loss", "fixed", "leaves", "caches", "cache"})
_VERBS = ("estimate", "compile", "search", "size", "export", "sweep", "trace")


def commands() -> Iterator[str]:
    """Yield every command line."""
    yield from _steps()
    yield from (f"estimate --phase serve --system dgx-h100 --format json -q {words}" for words in _SERVED)
    search = "search --system dgx-h100 --seq 4096 --format json -q --no-ledger --no-why --top 5"
    yield from (f"{search} {words}" if "serve" not in words else f"{search} {words}".replace(" --seq 4096", "")
                for words in _SEARCHED)  # fmt: skip
    yield from (f"export {_DENSE} --seq 4096 {words}" if "serve" not in words else f"export {_DENSE} {words}"
                for words in _EXPORTED)  # fmt: skip
    yield f"mixed {_DENSE} --stages dgx-h100:3,dgx-a100-80gb:1 --gpus 32 --tp 8 --gbs 32 --seq 4096 --format json -q"
    yield f"export {_EXPERTS} --to megatron --gpus 32 --ep 8 --routing-nodes 2 --capacity-factor 1.5 --seq 4096"
    yield from (f"cost {system} --format json" for system in names("systems"))
    yield from (f"schema {kind}" for kind in ("plan", "space"))
    yield from (f"{verb} --help" for verb in _VERBS)
    yield from (f"estimate {_DENSE} --system dgx-h100 --seq 4096 -q {words}" for words in _REFUSED)
    yield from (
        f"compile {model} --seq 512 --emit sharded -q {words}" for model, words in (
            ("gpt2", "--tp 2 --gpus 4 --zero 1"), ("gpt2", "--cp 2 --recompute full --kernels fused"),
            (_EXPERTS, "--ep 4 --gpus 8 --zero 3"), ("gpt2", "--pp 2 --gbs 8 --precision fp8"),
            (_DENSE, "--phase decode --tp 2 --kernels fused --kv-dtype fp8"),
        )
    )  # fmt: skip


def _steps() -> Iterator[str]:
    """Every model once a phase, every system once, and every word once."""
    for model in names("models"):
        shape = "--gpus 64 --tp 8 --pp 1 --gbs 64 --zero 1" if "gpt2" not in model else "--gpus 8 --gbs 64"
        yield f"estimate {model} --system dgx-h100 --seq 1024 {shape} {_ESTIMATE}"
        for phase in ("prefill", "decode"):
            yield f"estimate {model} --system dgx-h200 --seq 512 --phase {phase} --gpus 8 --mbs 2 {_ESTIMATE}"
    yield from (f"estimate gpt2 --system {name} --seq 512 --gpus 8 {_ESTIMATE}" for name in names("systems"))
    sized = "--system dgx-b200 --seq 4096"
    yield from (f"estimate {_DENSE} {sized} {_ESTIMATE} {words}" for words in _TRAINED)
    yield from (f"estimate {_EXPERTS} {sized} {_ESTIMATE} {words}" for words in _OF_EXPERTS)
    for phase in ("prefill", "decode"):
        yield from (f"estimate {_DENSE} {sized} {_ESTIMATE} --phase {phase} {words}" for words in _INFERRED)
        yield from (f"estimate {_EXPERTS} {sized} {_ESTIMATE} --phase {phase} {words}" for words in _INFERRED_EXPERTS)
    yield f"estimate gpt2 --system dgx-b200 --seq 512 {_ESTIMATE} --attention unfused"
    yield f"estimate gpt2 --system dgx-b200 --images 1 --dim batch=mbs {_ESTIMATE}"
    yield f"estimate {_DENSE} {sized} {_ESTIMATE} --allow-unpriced --input ids:int64[batch,seq]"
    yield f"estimate {_LATENT} {sized} {_ESTIMATE} --phase decode --gpus 16 --tp 16 --mla expanded"
    yield f"estimate gpt-oss-20b {sized} {_ESTIMATE} --phase decode --precision as-published"


def names(kind: str) -> list[str]:
    """Return the names of the catalogue's models or systems."""
    if kind == "models":
        from slipstick.frontend.huggingface.configs.models import index

        return sorted(index())
    from slipstick.backends.machine.load import system_names

    return sorted(system_names())
