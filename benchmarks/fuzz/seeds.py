"""What is mutated: small files of each format, most of them those of the product and of its tests."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import cast

import yaml

from slipstick.cli import run
from slipstick.validation.kernels.measured import CLASSES

from .judge import MARKER
from .mutate import Tree

ROOT = Path(__file__).resolve().parents[2]
MODELS = (
    "tiny-llama.json", "tiny-mixtral.json", "tiny-gpt2.json", "tiny-mamba2.json", "tiny-deepseek.json",
    "tiny-gpt-oss.json", "tiny-bamba.json", "tiny-gemma3n.json",
)  # fmt: skip
GRAPHS = ("tiny-llama.train", "tiny-gpt2.train", "tiny-mixtral.train", "tiny-mamba2.train", "tiny-llama.decode")
SYSTEMS = ("dgx-h100", "gb200-nvl72", "tpu-v5p-pod", "mi300x-platform", "a100-pcie-80gb-pairs", "dgx-a100-80gb")
_PLAN: dict[str, Tree] = {
    "schema": "slipstick/plan/1", "model": "tiny.graph", "system": "dgx-h100", "phase": "train", "gpus": 8, "tp": 2,
    "mbs": 1, "gbs": 16, "seq": 512, "sp": True, "zero": 1, "recompute": "full", "pp": 2, "offload": ["optimizer"],
}  # fmt: skip
TRAINING = (
    _PLAN,
    {**_PLAN, "tp": 1, "schedule": "zb-h1", "zero": 0, "recompute": "selective", "sp": False},
    {**_PLAN, "cp": 2, "pp": 1, "mbs": 2, "gbs": 64, "zero": 3, "precision": "fp8", "recompute": "none"},
    {**_PLAN, "system": "gb200-nvl72", "gpus": 4, "gbs": 8, "offload": [], "grad_dtype": "bf16", "kernels": "fused"},
)  # fmt: skip
INFERENCE: tuple[dict[str, Tree], ...] = (
    {
        "schema": "slipstick/plan/1", "model": "decode.graph", "system": "dgx-h100", "phase": "decode", "tp": 2,
        "mbs": 16, "seq": 256, "precision": "fp8", "kv_dtype": "fp8",
    },
    {
        "schema": "slipstick/plan/1", "model": "tiny.json", "system": "dgx-h100", "phase": "serve", "gpus": 2, "tp": 2,
        "isl": 128, "osl": 64, "concurrency": 8, "engine": "vllm",
    },
)  # fmt: skip
SPACES: tuple[Tree, ...] = ({
    "schema": "slipstick/space/1", "model": "tiny.graph", "system": "dgx-h100", "gpus": 4, "seq": 256, "gbs": 8,
    "pp": 1, "cp": 1, "recompute": "none", "tp": [1, 2], "zero": [0, 1], "objectives": ["step_time_s"],
    "constraints": ["peak_mem_bytes<=70GiB"], "set": ["chip.memory.hbm.bandwidth=3TB/s"],
    "vary": {"chip.clock": ["1.5GHz", "1.8GHz"]},
}, {
    "schema": "slipstick/space/1", "model": "tiny.graph", "system": "gb200-nvl72", "gpus": 8, "seq": 512, "gbs": 16,
    "pp": [1, 2], "cp": [1, 2], "tp": 2, "zero": 3, "recompute": ["none", "full"], "objectives": ["peak_mem_bytes"],
})  # fmt: skip
STYLES: Tree = {
    "model.layers.*.self_attn.q_proj": "colwise", "model.layers.*.self_attn.k_proj": "colwise",
    "model.layers.*.self_attn.v_proj": "colwise", "model.layers.*.self_attn.o_proj": "rowwise",
    "model.layers.*.mlp.gate_proj": "colwise", "model.layers.*.mlp.up_proj": "colwise",
    "model.layers.*.mlp.down_proj": "rowwise", "lm_head": "colwise_gather_output",
    "model.embed_tokens": "embedding_rowwise", "eager_grads": True,
}  # fmt: skip
LAUNCHES: Mapping[str, str] = {
    "sh": "#!/bin/bash\nexport N=8\nTP=2\ntorchrun --nproc_per_node $N --nnodes 2 pretrain_gpt.py \\\n"
    "  --tensor-model-parallel-size ${TP:-4} --pipeline-model-parallel-size 2 --num-layers 32 --hidden-size 4096 \\\n"
    "  --num-attention-heads 32 --ffn-hidden-size 14336 --swiglu --group-query-attention --num-query-groups 8 \\\n"
    "  --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --use-distributed-optimizer --bf16 --lr 3e-4\n",
    "bash": "vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4 --max-num-seqs 64 --quantization fp8 "
    '--speculative-config \'{"method": "eagle", "num_speculative_tokens": 3}\' --max-model-len 8192\n',
    "toml": '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\nsteps = 1000\n'
    "[parallelism]\ndata_parallel_replicate_degree = 1\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n"
    'pipeline_parallel_degree = 1\n[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n',
    "json": json.dumps(
        {
            "train_batch_size": 64,
            "train_micro_batch_size_per_gpu": 2,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 5e8},
        }
    ),
    "yaml": "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nmodel_name_or_path: llama-3.1-8b\n"
    "bf16: true\nfsdp: full_shard auto_wrap\nfsdp_config:\n  activation_checkpointing: true\nmax_seq_length: 4096\n",
}
MEASURED: Mapping[str, str] = {
    "log": "iteration 1/9 | elapsed time per iteration (ms): 9000.0 | x\n"
    "[Rank 0] memory (MB) | allocated: 1.0 | max allocated: 1024.0 | reserved: 2048.0\n"
    "iteration 2/9 | elapsed time per iteration (ms): 101.0 | x\niteration 3/9 | elapsed time per iteration (ms): 102.0"
    "\n"
    "step: 1  loss: 7.1  memory: 45.50GiB(57.7%)  tps: 6,200  tflops: 300.5  mfu: 30.4%\n"
    ':::MLLOG {"namespace": "", "time_ms": 1, "key": "tracked_stats", "value": {"throughput": 20.0, '
    '"train_step_time": 0.4}}\n'
    "iteration: 1 / 10 | elapsed_time_per_iteration_ms: 1.2K | tokens_per_sec: 300K | tokens_per_sec_per_gpu: 4.5K\n",
    "json": json.dumps({"mean_ttft_ms": 120.0, "p99_ttft_ms": 300.0, "mean_tpot_ms": 12.0, "request_throughput": 2.0}),
    "trainer.json": json.dumps({"log_history": [{"step": 1, "loss": 2.0}, {"step": 9, "train_steps_per_second": 2.5}]}),
    "snapshot.json": json.dumps(
        {
            "segments": [{"device": 0, "total_size": 2_000_000}, {"device": 1, "total_size": 3_000_000}],
            "device_traces": [[{"action": "segment_alloc", "size": 9}, {"action": "segment_free", "size": 7}], []],
        }
    ),
    "genai.json": json.dumps({"time_to_first_token": {"unit": "ms", "avg": 50.0}, "request_throughput": {"avg": 9.0}}),
}
# Those of servers.
OF_SERVERS = ("json", "genai.json")
# Names of fields of requests as JSON has them, and as tables.
TRAFFIC = {"timestamp": "arrival_s", "input_length": "input_tokens", "output_length": "output_tokens"}
REQUESTS: Tree = [{"timestamp": 100 * k, "input_length": 100 + k, "output_length": 20 + k} for k in range(12)]


def _event(cat: str, name: str, start: float, lasting: float, tid: int, **args: int | str) -> Tree:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": lasting, "args": {**args}}


_MESSAGE: Mapping[str, int | str] = {
    "Group size": 4,
    "In msg nelems": 100,
    "Out msg nelems": 100,
    "dtype": "BFloat16",
}
TRACE: Tree = {
    "schemaVersion": 1,
    "traceEvents": [
        _event("user_annotation", "ProfilerStep#1", 0, 50, 1),
        _event("cpu_op", "aten::linear", 0, 10, 1),
        _event("cpu_op", "aten::mm", 1, 5, 1),
        _event("cuda_runtime", "cudaLaunchKernel", 2, 1, 1, correlation=1),
        _event("kernel", "sm90_xmma_gemm", 20, 10, 9, correlation=1, stream=7),
        _event("kernel", "ncclDevKernel_AllReduce_Sum_bf16", 26, 8, 8, correlation=3, stream=8, **_MESSAGE),
        _event("gpu_memcpy", "Memcpy HtoD", 40, 2, 9, stream=7),
    ],
}  # fmt: skip


@cache
def written(folder: str) -> tuple[str, ...]:
    """Return texts of the catalogue, of the kind that a folder of `backends` holds."""
    found = sorted((ROOT / "backends" / folder).rglob("*.yaml"), key=lambda path: path.stat().st_size)
    return tuple(path.read_text(encoding="utf-8") for path in found[:12])


@cache
def trees(folder: str) -> tuple[Tree, ...]:
    """Return the texts of a kind as trees."""
    return tuple(cast(Tree, yaml.safe_load(text)) for text in written(folder))


@cache
def systems() -> tuple[Tree, ...]:
    """Return systems, and one that holds its chip and its network itself."""
    texts = [(ROOT / "backends" / "systems" / f"{name}.yaml").read_text(encoding="utf-8") for name in SYSTEMS]
    found = [yaml.safe_load(text) for text in texts]
    whole = dict(found[0])
    whole["chip"] = yaml.safe_load((ROOT / "backends/chips/h100-sxm-80gb.yaml").read_text(encoding="utf-8"))
    return (*found, *[cast(Tree, whole)] * 4)


@cache
def configs() -> tuple[Tree, ...]:
    """Return configs of models."""
    return tuple(json.loads((ROOT / "tests" / "data" / "configs" / name).read_text("utf-8")) for name in MODELS)


@cache
def tables() -> tuple[str, ...]:
    """Return the first rows of each table of measurements."""
    return tuple(_head(path, 6) for path in sorted((ROOT / "tests" / "validation").glob("*.csv")))


@cache
def kernels() -> tuple[str, ...]:
    """Return as many rows of each table of kernels as constants are fitted to."""
    return tuple(_head(ROOT / "tests" / "validation" / f"{name}.csv", 60) for name in CLASSES)


def _head(path: Path, count: int) -> str:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row, _ in zip(csv.reader(file), range(count), strict=False)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[c.replace("\n", " ") for c in row] for row in rows])
    return out.getvalue()


def prepare(folder: Path) -> None:
    """Write into a folder what commands refer to beside the hostile file: a model, a graph, a report, a ledger."""
    shutil.copy(ROOT / "tests/data/configs/tiny-llama.json", folder / "tiny.json")
    shutil.copy(ROOT / "tests/golden/tiny-llama.train.graph", folder / "tiny.graph")
    shutil.copy(ROOT / "tests/golden/tiny-llama.decode.graph", folder / "decode.graph")
    where = ["tiny.graph", "--system", "dgx-h100", "--gpus", "8", "--seq", "512", "--gbs", "16"]
    _ran(["estimate", *where, "--format", "json", "-o", "base.json"])
    served = ["tiny.json", "--system", "dgx-h100", "--gpus", "2", "--phase", "serve", "--isl", "128", "--osl", "64"]
    _ran(["estimate", *served, "--format", "json", "-o", "served.json"])
    (folder / "evil.py").write_text(f"open({MARKER.name!r}, 'w').close()\n\n\ndef make():\n    raise ValueError\n")
    fixed = ["--pp", "1", "--cp", "1", "--zero", "1", "--recompute", "none", "--mbs", "1"]
    _ran(["search", *where, *fixed, "--jobs", "1", "-q", "--runs", "runs", "--no-why"])
    (next((folder / "runs").glob("*.*"))).rename(folder / "base.ledger")


def _ran(command: Sequence[str]) -> None:
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = run(command)
    if code not in (0, 3):
        sys.exit(f"slipstick {' '.join(command)}: exit code {code}\n{said.getvalue()}")
