"""Launches made to fill memory or time, and numbers that no framework takes: each ends in words."""

import time
from contextlib import suppress

import pytest

from slipstick.frameworks.reading import read_launch
from slipstick.frameworks.shell.script import read_script
from slipstick.ir.errors import ParseError

MEGATRON = "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --swiglu"
TITAN = "torchrun -m torchtitan.train --model.name llama3 --model.flavor 8B"
LAUNCHES = {
    MEGATRON: (
        "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
        "expert-model-parallel-size", "expert-tensor-parallel-size", "micro-batch-size", "global-batch-size",
        "seq-length", "num-query-groups", "num-distributed-optimizer-instances",
    ),
    TITAN: (
        "parallelism.tensor_parallel_degree", "parallelism.pipeline_parallel_degree",
        "parallelism.context_parallel_degree", "parallelism.expert_parallel_degree",
        "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree",
        "training.local_batch_size", "training.seq_len",
    ),
    "vllm serve m": ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "max-num-seqs",
                     "block-size", "gpu-memory-utilization"),
    "python -m sglang.launch_server --model m": ("tp-size", "dp-size", "ep-size", "mem-fraction-static"),
    "accelerate launch train.py": (
        "per_device_train_batch_size", "gradient_accumulation_steps", "max_seq_length",
    ),
}  # fmt: skip
COUNTS = [(launch, name) for launch, names in LAUNCHES.items() for name in names]


@pytest.mark.parametrize("value", ["0", "-2", "nan", "true", "inf"])
@pytest.mark.parametrize(("launch", "name"), COUNTS)
def test_no_count_is_read_as_another(launch: str, name: str, value: str) -> None:
    with pytest.raises(ParseError, match=name.rpartition(".")[2].replace("-", "[-_]")):
        read_launch(f"{launch} --{name} {value}", framework="transformers" if "accelerate" in launch else None)


@pytest.mark.parametrize("number", ["0", "-5", "true", "1.5", '"3"'])
def test_a_number_of_drafts_is_one_or_more(number: str) -> None:
    said = f'{{"method": "eagle", "num_speculative_tokens": {number}}}'
    with pytest.raises(ParseError, match="num_speculative_tokens"):
        read_launch(f"vllm serve m --speculative-config '{said}'")


X = "X=aaaaaaaaaaaaaaaa\n" + "X=$X$X\n" * 17
GROWING = {
    "copies": X + "".join(f"A{number}=${{X}}b\n" for number in range(2500)),
    "arrays": "A=(a)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60,
    "joined": X + "A=(" + "$X " * 100 + ')\nB="${A[*]}${A[*]}"\n',
    "added": X + "X+=b\n" * 2500,
    "replaced": X + "Y=${X//a/" + "b" * 5000 + "}\n",
    "suffixes": "X=" + "a" * 9999 + "\n" + "Y=${X%%" + "*a" * 50 + "b}\n" * 50,
    "patterns": X + "if [[ $X == " + "*a" * 300 + "*b ]]; then\nrun\nfi\n",
    "cases": X + "case $X in\n" + "*a*a*b) run;;\n" * 300 + "esac\n",
    "indices": "run ${A[" + "${b}" * 60 + "B[1]]}\n",
    "scripts": X + 'bash -c "echo $X"\n' * 300,
    "conditions": "if true; then\n" * 3000 + "fi\n" * 3000,
    "sums": "X=$((" + "(" * 3000 + "1" + ")" * 3000 + "))\n",
}


@pytest.mark.parametrize("kind", GROWING)
def test_a_script_that_grows_without_end_ends(kind: str) -> None:
    start = time.process_time()
    with suppress(ParseError, RecursionError):
        read_script(GROWING[kind])
    assert time.process_time() - start < 10.0


def test_what_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(ParseError, match="nested too deep"):
        read_launch(f"{GROWING['sums']}{MEGATRON}")


@pytest.mark.parametrize("layout", ["(t*99999)*9999", "t*99999" * 1000, f"(({'t' * 9000})*9999)*9999", "(t*9)*" * 2000])
def test_a_layout_is_not_written_out_without_end(layout: str) -> None:
    with pytest.raises(ParseError, match="layout"):
        read_launch(f"{MEGATRON} --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout '{layout}'")
