"""Whose launch a text is, and texts that are none."""

from contextlib import suppress

import pytest

from slipstick.frameworks.launch import flattened
from slipstick.frameworks.reading import read_launch
from slipstick.frameworks.registry import FRAMEWORKS
from slipstick.ir.errors import ParseError, UsageError


@pytest.mark.parametrize(
    ("text", "name", "framework"),
    [
        ("torchrun pretrain_gpt.py --tensor-model-parallel-size 2", "", "megatron"),
        ("torchrun -m torchtitan.train --training.seq-len 128", "", "torchtitan"),
        ('{"train_batch_size": 8}', "", "deepspeed"),
        ("per_device_train_batch_size: 2\n", "args.yaml", "transformers"),
        ("srun -N 2 python3 -m sglang.launch_server --tp 2 --model m", "job.sbatch", "sglang"),
        ("export A=1\nvllm serve m &\nsleep 5\n", "serve.sh", "vllm"),
        ("trtllm-serve m", "", "tensorrt-llm"),
        ("lmdeploy serve api_server m", "", "lmdeploy"),
    ],
)
def test_a_launch_tells_whose_it_is(text: str, name: str, framework: str) -> None:
    assert read_launch(text, name).framework == framework
    assert framework in FRAMEWORKS


def test_flags_alone_are_read_as_those_of_the_framework_that_is_named() -> None:
    assert read_launch("--tensor-model-parallel-size 4", framework="megatron").words["tp"] == 4


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("echo hello", "a.sh", "no command of megatron"),
        ("a: 1\n", "a.yaml", "settings of no framework that is known"),
        ("vllm bench serve --tp 8", "", "no command of megatron"),
    ],
)
def test_what_is_no_launch_is_refused_with_what_would_be_one(text: str, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_launch(text, name)


@pytest.mark.parametrize(
    ("text", "name"),
    [("{", "a.json"), ("[x", "a.toml"), ("a: [", "a.yaml"), ("[1]", "a.json"), ("{" * 5000, "a.json")],
)
def test_a_broken_file_is_an_error_with_its_name(text: str, name: str) -> None:
    with pytest.raises(ParseError):
        read_launch(text, name)


@pytest.mark.parametrize("value", [".nan", ".inf", "1e400"])
def test_a_number_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ParseError, match="beyond any number"):
        read_launch(f"MODEL_ARGS:\n  --tensor-model-parallel-size: {value}\n", "model_config.yaml")


def test_a_framework_that_there_is_not_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'megatron'"):
        read_launch("x", framework="megatro")


def test_a_file_nested_beyond_reason_is_refused() -> None:
    tree: object = 1
    for _ in range(60):
        tree = {"a": tree}
    with pytest.raises(ParseError, match="more than 40 deep"):
        flattened(tree)


@pytest.mark.parametrize(
    "text", ["", "\0", "--", "vllm serve", "$(x)", "pretrain_gpt.py --a --b=", "a=(", "if", "fi\nfi"]
)
def test_odd_texts_are_read_or_refused_and_nothing_else(text: str) -> None:
    with suppress(UsageError, ParseError):
        assert read_launch(text).framework in FRAMEWORKS
