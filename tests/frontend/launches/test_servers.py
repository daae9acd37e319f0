"""Commands that start servers: degrees in the meaning of the engine, limits, types, drafts."""

import pytest

from slipstick.frontend.launches.reading import read_launch
from slipstick.ir.errors import ParseError


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("vllm serve m -tp 8", {"engine": "vllm", "model": "m", "tp": 8}),
        ("vllm serve m --tensor-parallel-size 4 --data-parallel-size 2", {"tp": 4, "dp": 2, "ep": None}),
        ("vllm serve m --tensor-parallel-size 8 --enable-expert-parallel", {"tp": 8, "ep": 8, "etp": 1}),
        ("vllm serve m -tp 2 -dp 8 --enable-expert-parallel", {"tp": 2, "dp": 8, "ep": 16}),
        ("python -m vllm.entrypoints.openai.api_server --model m --pipeline-parallel-size 2", {"model": "m", "pp": 2}),
        ("vllm serve m --max-num-seqs 64 --max-num-batched-tokens 4096 --gpu-memory-utilization 0.85 --block-size 32",
         {"max_num_seqs": 64, "chunked_prefill": 4096, "memory_utilization": 0.85, "block_size": 32}),
        ("vllm serve m --no-enable-chunked-prefill", {"chunked_prefill": 0}),
        ("vllm serve m --kv-cache-dtype fp8 --quantization fp8 --enforce-eager",
         {"kv_dtype": "fp8", "precision": "fp8", "cuda_graph": False}),
        ("vllm serve m --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 2}'", {"mtp": 2}),
        ("python3 -m sglang.launch_server --model m --tp 8 --ep 8", {"engine": "sglang", "tp": 8, "ep": 8, "etp": 1}),
        ("python3 -m sglang.launch_server --model-path m --tp 8 --dp 8 --enable-dp-attention --ep 8",
         {"tp": 1, "dp": 8, "ep": 8}),
        ("python3 -m sglang.launch_server --model-path m --tp 4 --dp 2", {"tp": 4, "dp": 2}),
        ("python3 -m sglang.launch_server --model m --tp 8 --ep 4", {"tp": 8, "ep": 4, "etp": None}),
        ("python3 -m sglang.launch_server --model m --chunked-prefill-size -1", {"chunked_prefill": 0}),
        ("trtllm-serve m --tp_size 4 --ep_size 4 --max_batch_size 256 --max_num_tokens 8192",
         {"engine": "tensorrt-llm", "model": "m", "tp": 4, "ep": 4, "max_num_seqs": 256}),
        ("lmdeploy serve api_server m --tp 2", {"engine": "lmdeploy", "model": "m", "tp": 2}),
    ],
)  # fmt: skip
def test_a_command_says_what_a_plan_file_says(command: str, found: dict[str, object]) -> None:
    launch = read_launch(command)
    assert launch.words["phase"] == "serve"
    assert {name: launch.words.get(name) for name in found} == found
    assert not launch.left_out


def test_weights_are_those_of_the_checkpoint_where_no_quantization_is_named() -> None:
    assert read_launch("vllm serve m").words["precision"] == "as-published"
    assert read_launch("vllm serve m --quantization awq").words["precision"] == "w4a16"
    # One that is not known is left out, and nothing is said in its place.
    assert "precision" not in read_launch("vllm serve m --quantization new").words


def test_an_unknown_flag_is_listed() -> None:
    launch = read_launch("vllm serve m --port 8000 --cpu-offload-gb 10")
    assert launch.ignored == ("--port",)
    assert launch.left_out == {"--cpu-offload-gb": "10"}


def test_ranks_that_attend_apart_divide_those_of_sglang() -> None:
    with pytest.raises(ParseError, match="no multiple of the 3 ranks that attend apart"):
        read_launch("python3 -m sglang.launch_server --model m --tp 8 --dp 3 --enable-dp-attention")


def test_a_draft_that_is_no_json_is_refused() -> None:
    with pytest.raises(ParseError, match=r"--speculative-config: '\{x' is no JSON"):
        read_launch("vllm serve m --speculative-config '{x'")
