"""Commands that start servers: degrees in the meaning of the engine, limits, types, drafts."""

import pytest

from slipstick.frameworks.reading import read_launch
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
        ("vllm serve m --no-enable-chunked-prefill --max-model-len 8192",
         {"chunked_prefill": 0, "max_model_len": 8192}),
        ("vllm serve m --max-model-len 8192", {"max_model_len": None}),
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


def test_ranks_that_spread_a_cache_are_those_of_tp_by_both_names() -> None:
    whole, short = (
        read_launch(f"vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 8 {flag} 4").words
        for flag in ("--decode-context-parallel-size", "-dcp")
    )
    assert whole == short
    assert (short["tp"], short["cp"]) == (2, 4)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("-tp 8 -dcp 8 --enable-expert-parallel", {"tp": 1, "cp": 8, "etp": 1}),
        ("-tp 8 -dcp 4 --enable-expert-parallel", {"tp": 2, "cp": 4, "ep": 2, "etp": 1}),
        ("-tp 8 -dp 2 -dcp 8 --enable-expert-parallel", {"tp": 1, "cp": 8, "dp": 2, "ep": 2, "etp": 1}),
        ("-tp 8 -dcp 8", {"tp": 1, "cp": 8}),
    ],
)
def test_experts_lie_whole_over_ranks_that_spread_a_cache(flags: str, words: dict[str, int]) -> None:
    found = read_launch(f"vllm serve deepseek-ai/DeepSeek-R1 {flags}").words
    assert {name: found[name] for name in ("tp", "cp", "dp", "ep", "etp") if name in found} == words


@pytest.mark.parametrize(
    ("ep", "words", "left_out"),
    [(8, {"etp": 1}, {}), (4, {}, {"--ep": "4"}), (12, {}, {"--ep": "12"}), (1, {}, {})],
)
def test_experts_over_a_part_of_a_spread_cache_are_left_out(
    ep: int, words: dict[str, int], left_out: dict[str, str]
) -> None:
    # Four groups of eight ranks lie split in two inside: no plan says so, and it is not eight ways inside.
    launch = read_launch(f"python3 -m sglang.launch_server --model m --tp 8 --dcp-size 8 --ep {ep}")
    assert {name: launch.words[name] for name in ("ep", "etp") if name in launch.words} == words
    assert (launch.words["tp"], launch.words["cp"]) == (1, 8)
    assert launch.left_out == left_out


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


def test_a_file_of_options_that_the_script_writes_is_read() -> None:
    text = """
TP=8
cat > opts.yml << EOF
enable_attention_dp: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.8
speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}
hf_overrides: {a: 1}
EOF
mpirun -n 1 --allow-run-as-root trtllm-serve m --tp_size=$TP --ep_size=8 --extra_llm_api_options=opts.yml
"""
    launch = read_launch(text)
    found = {name: launch.words.get(name) for name in ("tp", "dp", "ep", "kv_dtype", "memory_utilization", "mtp")}
    assert found == {"tp": 1, "dp": 8, "ep": 8, "kv_dtype": "fp8", "memory_utilization": 0.8, "mtp": 3}
    assert set(launch.left_out) == {"hf_overrides.a"}


def test_a_file_of_options_that_is_not_there_is_left_out() -> None:
    assert read_launch("trtllm-serve m --extra_llm_api_options o.yml").left_out == {"--extra_llm_api_options": "o.yml"}


def test_a_tree_of_drafts_is_left_out_and_a_chain_is_not() -> None:
    command = "sglang serve --model m --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk"
    assert "--speculative-eagle-topk" in read_launch(f"{command} 4").left_out
    assert not read_launch(f"{command} 1").left_out


def test_an_engine_that_is_read_as_another_says_so() -> None:
    launch = read_launch("python3 -m atom.entrypoints.openai_server --model m -tp 4 --kv_cache_dtype fp8")
    assert (launch.words["engine"], launch.words["tp"]) == ("vllm", 4)
    assert any("ATOM" in line for line in launch.assumed)
