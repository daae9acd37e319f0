"""`slipstick estimate --phase serve`: what it prints, what adds up, what it refuses."""

import json
from pathlib import Path

import pytest

from ..conftest import Cli
from .conftest import report

LOAD = ("--isl", "64", "--osl", "32", "--concurrency", "8")


def requests_of(serve: Cli, *words: str) -> dict[str, float]:
    found: dict[str, dict[str, dict[str, float]]] = json.loads(serve("--format", "json", *words).stdout)
    return found["inputs"]["requests"]


def engine_of(serve: Cli, *words: str) -> dict[str, float]:
    found: dict[str, dict[str, dict[str, float]]] = json.loads(serve("--format", "json", *words).stdout)
    return found["inputs"]["engine"]


def test_a_screen_says_latencies_rates_memory_and_where_the_time_goes(serve: Cli) -> None:
    done = serve(*LOAD)
    assert done.returncode == 0
    for words in ("TTFT", "TPOT", "E2EL", "tokens/s/user", "MBU", "KV cache in use", "host: steps", "At other loads",
                  "engine: vllm", "cost: $"):  # fmt: skip
        assert words in done.stdout


def test_parts_add_up_and_rates_agree_with_each_other(serve: Cli) -> None:
    found = report(serve, *LOAD, "--inclusive-tpot")
    m = found["metrics"]
    assert m["inclusive_tpot_s"] == pytest.approx(m["e2el_s"] / 32)
    assert sum(found["breakdown"].values()) == pytest.approx(m["e2el_s"])
    assert m["e2el_s"] == pytest.approx(m["ttft_s"] + 31 * m["tpot_s"])
    # Little's law, and tokens of an answer.
    assert m["requests_per_s"] == pytest.approx(8 / m["e2el_s"])
    assert m["tokens_per_s"] == pytest.approx(32 * m["requests_per_s"])
    assert m["total_tokens_per_s"] == pytest.approx(96 * m["requests_per_s"])
    assert m["tokens_per_s"] <= m["batch"] / m["tpot_s"]
    assert m["ttft_low_s"] <= m["ttft_s"] <= m["ttft_high_s"]
    memory = dict(found["memory"])
    capacity = memory.pop("capacity")
    assert sum(memory.values()) == pytest.approx(0.9 * capacity)


def test_a_number_of_the_engine_may_be_set(serve: Cli) -> None:
    usual, slow = (report(serve, *LOAD, *more) for more in ((), ("--set", "engine.overheads.step=10ms")))
    assert slow["metrics"]["tpot_s"] - usual["metrics"]["tpot_s"] > 9e-3
    assert "[estimated] --set" in serve(*LOAD, "--set", "engine.overheads.step=10ms", "--explain", "tpot_s").stdout


def test_cached_tokens_cost_no_prefill(serve: Cli) -> None:
    usual, hit, share = (
        report(serve, "--isl", "500", "--osl", "8", "--concurrency", "1", *more)["metrics"]
        for more in ((), ("--cached", "250"), ("--prefix-hit", "0.5"))
    )
    assert hit["ttft_s"] <= usual["ttft_s"]
    assert hit["flops_per_request"] < usual["flops_per_request"]
    assert hit == pytest.approx(share)


def test_tokens_that_are_cached_are_as_many_of_each_prompt(serve: Cli) -> None:
    words = ("--osl", "4", "--serve", "burst:9", "--cached", "49")
    alike, differ = (requests_of(serve, "--isl", isl, *words) for isl in ("98", "60..100"))
    assert alike == {"isl": 98.0, "osl": 4.0, "cached": 49.0, "shared": False}
    assert differ["cached"] == 49.0


def test_causal_flops_count_half_of_the_attention_of_a_prompt(serve: Cli) -> None:
    """Of 256 tokens on 2 layers of 4 heads of 16: 2 products x 2 FLOP x 256^2 x 64 x 2 layers, and half of it."""
    words = ("--isl", "256", "--osl", "1", "--concurrency", "1")
    full, causal = (report(serve, *words, "--flops-convention", name) for name in ("full", "causal"))
    lost = full["metrics"]["flops_per_request"] - causal["metrics"]["flops_per_request"]
    assert lost == pytest.approx(2 * 2 * 256**2 * 64 * 2 / 2, rel=0.01)
    assert causal["inputs"]["flops_convention"] == "causal"  # type: ignore[comparison-overlap]
    assert causal["metrics"]["mfu"] < full["metrics"]["mfu"]


def test_latents_may_be_expanded_in_decode_alone(cli: Cli, data: Path) -> None:
    config = str(data / "configs" / "tiny-deepseek.json")
    words = ("estimate", config, "--system", "dgx-h100", "--phase", "serve", *LOAD, "--format", "json")
    latent, expanded = (json.loads(cli(*words, "--mla", how).stdout) for how in ("latent", "expanded"))
    assert [any("as the module writes it" in w for w in one["warnings"]) for one in (latent, expanded)] == [False, True]
    assert latent["phases"]["prefill"]["breakdown"] == expanded["phases"]["prefill"]["breakdown"]
    assert latent["phases"]["decode"]["breakdown"] != expanded["phases"]["decode"]["breakdown"]


@pytest.mark.parametrize("more", [("--isl", "8"), ("--osl", "8"), ("--cached", "2"), ("--prefix-hit", "0.5")])
def test_a_trace_says_lengths_itself(serve: Cli, tmp_path: Path, more: tuple[str, str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt,output\n0,8,8\n", encoding="utf-8")
    assert serve("--serve", str(path)).returncode == 0
    done = serve("--serve", str(path), *more)
    assert (done.returncode, f"{more[0]}: the trace" in done.stderr) == (2, True)


def test_limits_of_the_engine_may_be_given(serve: Cli) -> None:
    found = report(serve, *LOAD, "--max-num-seqs", "4", "--block-size", "64", "--chunked-prefill", "128")
    assert found["metrics"]["max_batch"] == 4
    engine = engine_of(serve, *LOAD, "--max-num-seqs", "4", "--block-size", "64", "--chunked-prefill", "128")
    assert (engine["block_tokens"], engine["max_batched_tokens"], engine["chunked_prefill"]) == (64, 128, True)
    assert engine_of(serve, *LOAD, "--chunked-prefill", "0")["chunked_prefill"] is False


def test_a_longest_request_takes_memory_where_prompts_are_never_split(serve: Cli) -> None:
    longest = ("--max-model-len", "16384")
    cut, whole = (report(serve, *LOAD, *words)["memory"] for words in ((), ("--chunked-prefill", "0")))
    assert cut == report(serve, *LOAD, *longest)["memory"]
    long = (*LOAD, "--chunked-prefill", "0", *longest)
    assert report(serve, *long)["memory"]["temporary"] > whole["temporary"]
    assert engine_of(serve, *long)["max_batched_tokens"] == 16384


def test_without_a_load_it_answers_as_much_as_it_can(serve: Cli) -> None:
    most = report(serve, "--isl", "64", "--osl", "32")["metrics"]
    assert most["serve_utilization"] == pytest.approx(1.0)
    asked = f"{2 * most['requests_per_s']:.6g}"
    done = serve("--isl", "64", "--osl", "32", "--request-rate", asked)
    assert done.returncode == 3
    assert "2 replicas would do" in done.stderr or "3 replicas would do" in done.stderr


def test_a_target_picks_the_load_or_says_what_is_least(serve: Cli) -> None:
    most = report(serve, "--isl", "64", "--osl", "32")["metrics"]
    least = report(serve, "--isl", "64", "--osl", "32", "--concurrency", "1")["metrics"]
    asked = (most["tpot_s"] + least["tpot_s"]) / 2
    found = report(serve, "--isl", "64", "--osl", "32", "--tpot", f"{asked:.9f}s")["metrics"]
    assert least["tpot_s"] <= found["tpot_s"] <= asked
    assert found["request_goodput_rps"] == found["requests_per_s"]
    done = serve("--isl", "64", "--osl", "32", "--tpot", "1us")
    assert done.returncode == 3
    assert "1 us" in done.stderr


def test_simulated_requests_spread(serve: Cli) -> None:
    found = report(serve, "--isl", "16..128", "--osl", "32", "--serve", "poisson:50,n=200", "--ttft", "1s")
    m = found["metrics"]
    assert m["num_requests"] == 200
    assert m["ttft_p50_s"] <= m["ttft_p90_s"] <= m["ttft_p99_s"]
    assert m["request_goodput_share"] == 1.0
    assert found["simulated"]["mean_ttft_ms"] == pytest.approx(m["ttft_s"] * 1e3)
    assert sum(found["breakdown"].values()) == pytest.approx(m["e2el_s"])
    assert "99 %" in serve("--isl", "64", "--osl", "32", "--serve", "closed:4,n=50").stdout


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0,8,8\n-1,8,8\n", "line 3"),
        ("3,8,8\n1,8,8\n", "in order of time"),
        ("nan,8,8\n", "must be a number"),
        ("0,0,8\n", "line 2"),
        ("", "no request"),
    ],
)
def test_a_trace_that_cannot_be_is_refused_with_its_line(serve: Cli, tmp_path: Path, rows: str, words: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"arrival_s,prompt,output\n{rows}", encoding="utf-8")
    done = serve("--serve", str(path))
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.parametrize(("of", "mtbf_s"), [("gpu", 30.0), ("node", 60.0), ("job", 120.0)])
def test_replicas_fail_as_their_parts_do(serve: Cli, of: str, mtbf_s: float) -> None:
    words = ("--isl", "64", "--osl", "32", "--gpus", "4", "--tp", "2", "--serve", "poisson:5,n=500")
    found = report(serve, *words, "--mtbf", f"60s/{of}", "--restart-time", "10s")
    m = found["metrics"]
    assert m["replica_mtbf_s"] == mtbf_s
    assert m["replica_availability"] == pytest.approx(mtbf_s / (mtbf_s + 10.0))
    assert m["replica_failures"] >= 1
    assert 0.0 < m["replica_up_share"] < 1.0
    assert m["num_requests"] == 500
    usual = report(serve, *words)["metrics"]
    assert m["ttft_p99_s"] > usual["ttft_p99_s"]
    assert "replica_mtbf_s" not in usual
    assert f"{m['replica_failures']:.0f} failures of replicas" in " ".join(found["warnings"])


def test_the_life_of_a_request_is_a_trace(serve: Cli, tmp_path: Path) -> None:
    out = tmp_path / "life.json"
    assert serve(*LOAD, "--emit", "trace", "-o", str(out)).returncode == 0
    trace = json.loads(out.read_text(encoding="utf-8"))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert max(e["ts"] + e["dur"] for e in slices) == pytest.approx(
        trace["otherData"]["metrics"]["e2el_s"] * 1e6, rel=1e-6
    )
    assert sum(e["name"].startswith("token ") for e in slices) == 31


def test_simulated_steps_are_a_trace(serve: Cli, tmp_path: Path) -> None:
    out = tmp_path / "steps.json"
    words = ("--isl", "64", "--osl", "8", "--serve", "poisson:100,n=20", "--dp", "2", "--emit", "trace", "-o", str(out))
    assert serve(*words).returncode == 0
    events = json.loads(out.read_text(encoding="utf-8"))["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"requests", "replica 0", "replica 1"}
    assert {e["name"] for e in events if e["ph"] == "C"} == {"batch", "KV cache"}


@pytest.mark.parametrize(
    "wanted", ["ttft_s", "TPOT", "e2el_s", "max_batch", "mfu", "mbu", "load", "usd_per_mtok_output", "decode:lm_head"]
)
def test_numbers_explain_themselves(serve: Cli, wanted: str) -> None:
    done = serve(*LOAD, "--explain", wanted)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 1


def test_memory_is_that_of_the_server(serve: Cli) -> None:
    shown = serve(*LOAD, "--explain", "memory").stdout
    for part in (
        "memory of a GPU =",
        "90% of",
        "KV cache in use",
        "KV cache free",
        "weights",
        "gpu_memory_utilization",
    ):
        assert part in shown
    assert serve(*LOAD, "--explain", "decode:memory").stdout not in ("", shown)


def test_drafts_and_pools_are_said(serve: Cli, data: Path) -> None:
    small = str(data / "configs" / "tiny-llama.json")
    words = ("--disagg", "2:1", "--prefill-tp", "2", "--draft", small, "--acceptance", "0.8", "--stream-kv")
    done = serve(*LOAD, *words)
    assert done.returncode == 0, done.stderr
    for said in ("5 x H100", "prefill tp2 dp2, decode tp1 dp1", "tokens a round 3.36", "layer by layer", "pool busy"):
        assert said in " ".join(done.stdout.split()) or said in done.stdout
    inputs = json.loads(serve(*LOAD, *words, "--format", "json").stdout)["inputs"]
    assert inputs["system"]["num_gpus"] == 5
    assert (inputs["pools"]["prefill"]["workers"], inputs["pools"]["decode"]["tp"]) == (2, 1)
    assert inputs["speculation"] == {"length": 4, "acceptance": 0.8}


def test_a_screen_says_how_near_the_engine_came_or_that_it_was_never_measured(cli: Cli, data: Path) -> None:
    words = ("estimate", str(data / "configs" / "tiny-llama.json"), "--phase", "serve", *LOAD, "--system")
    fitted, never = cli(*words, "dgx-h100").stdout, cli(*words, "dgx-a100-80gb").stdout
    assert "error: median" in fitted
    assert "judgement" not in fitted
    assert "host times of vllm are judgement on A100-SXM4-80GB: no measured requests" in never
    assert "judgement" not in cli(*words, "mi300x-platform", "--engine", "ideal").stdout


def test_a_simulation_says_what_it_leaves_out(serve: Cli, cli: Cli, data: Path) -> None:
    words = ("--isl", "64", "--osl", "8", "--serve")
    together, apart, alone = (serve(*words, f"closed:{text},n=20").stdout for text in ("4", "4,ramp=1s", "1"))
    assert ["clients start together" in shown for shown in (together, apart, alone)] == [True, False, False]
    experts = ("estimate", str(data / "configs" / "tiny-mixtral.json"), "--system", "dgx-h100", "--phase", "serve")
    shared, whole = (cli(*experts, "--dp", "2", *more, *words, "burst:8").stdout for more in (("--ep", "2"), ()))
    assert ["share experts are simulated apart" in shown for shown in (shared, whole)] == [True, False]
    assert (
        "sequences a rank over"
        in cli(*experts, "--dp", "2", "--ep", "2", *words, "burst:8", "--explain", "TPOT").stdout
    )


@pytest.mark.parametrize("heads", [0, 1])
def test_heads_that_a_model_does_not_have_are_told_of(cli: Cli, data: Path, tmp_path: Path, heads: int) -> None:
    fields = json.loads((data / "configs" / "tiny-llama.json").read_text()) | {"num_nextn_predict_layers": heads}
    path = tmp_path / "model.json"
    path.write_text(json.dumps(fields))
    words = ("--system", "dgx-h100", "--phase", "serve", *LOAD, "--mtp", "1", "--acceptance", "0.8", "--format", "json")
    done = cli("estimate", str(path), *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["memory"]["draft_weights"] > 0
    assert any("has no heads that predict" in text for text in found["warnings"]) == (not heads)


def test_an_unknown_number_names_the_nearest(serve: Cli) -> None:
    done = serve(*LOAD, "--explain", "ttft")
    assert done.returncode == 0  # its label
    done = serve(*LOAD, "--explain", "tpot_ms")
    assert (done.returncode, "did you mean 'tpot_s'" in done.stderr) == (2, True)


def test_two_reports_can_be_compared(serve: Cli, cli: Cli, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{n}.json") for n in "ab"]
    for path, clients in zip(paths, ("4", "8"), strict=True):
        serve("--isl", "64", "--osl", "32", "--concurrency", clients, "--format", "json", "-o", path)
    done = cli("compare", *paths)
    assert "tpot_s" in done.stdout or "TPOT" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--seq", "8"), 2, "--seq: of single steps"),
        (("--concurrency", "2", "--batch", "2"), 2, "give one"),
        (("--concurrency", "0"), 2, "1 or more"),
        (("--isl", "0"), 2, "--isl 0"),
        (("--isl", "8..16"), 2, "--serve"),
        (("--isl", "8", "--cached", "8"), 2, "cached=8"),
        (("--isl", "8", "--cached", "1", "--prefix-hit", "0.5"), 2, "give one"),
        (("--isl", "1M"), 2, "positions"),
        (("--engine", "vlm"), 2, "did you mean 'vllm'"),
        (("--serve", "poison:3"), 2, "did you mean 'poisson'"),
        (("--concurrency", "1", "--dp", "2"), 2, "2 or more"),
        (("--isl", "64", "--osl", "64", "--max-model-len", "100"), 2, "--max-model-len 128 or more"),
        (("--memory-utilization", "0.02"), 3, "no memory is left for a KV cache"),
        (("--tp", "3"), 2, "legal tp"),
        (("--mtp", "1"), 2, "give --acceptance"),
        (("--acceptance", "0.5"), 2, "say what drafts"),
        (("--mtp", "1", "--ngram", "2", "--acceptance", "0.5"), 2, "three ways"),
        (("--disagg", "2"), 2, "as in 2:6"),
        (("--disagg", "1:1", "--gpus", "4"), 2, "--gpus and --dp"),
        (("--prefill-tp", "2"), 2, "--prefill-tp: of pools"),
        (("--disagg", "1:1", "--batch", "2"), 2, "one pool"),
        (("--schedule", "gpipe"), 2, "a server has none"),
        (("--vpp", "2", "--pp", "2"), 2, "stages of a server"),
        (("--serve", "closed:2", "--gpus", "4"), 2, "4 or more"),
        (("--cut", "0.1"), 2, "add --serve"),
        (("--mtbf", "1h"), 2, "add --serve"),
        (("--restart-time", "1min", "--serve", "burst:2"), 2, "say how often with --mtbf"),
        (("--mtbf", "1h", "--disagg", "1:1", "--serve", "burst:2"), 2, "--disagg has two"),
        (("--mtbf", "0h", "--serve", "burst:2"), 2, "--mtbf is 0 s"),
        (("--tokens", "1B"), 2, "--tokens: of single steps"),
        (("--shared-prefix",), 2, "--cached N or --prefix-hit X"),
        (("--cached", "1", "--prefix-hit", "0.5", "--serve", "burst:2"), 2, "give one"),
        (("--cached", "64", "--serve", "burst:2"), 2, "has 64 tokens of 64 in the cache"),
        (("--cached", "8", "--shared-prefix", "--serve", "burst:2"), 2, "closed forms"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(serve: Cli, words: tuple[str, ...], code: int, said: str) -> None:
    done = serve("--isl", "64", "--osl", "32", *words)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_model_too_large_for_a_gpu_says_how_many_hold_it(cli: Cli) -> None:
    """16.06 GB of weights and all that is beside them: 3/5 of 16 GB hold them from two GPUs on."""
    words = ("estimate", "llama-3.1-8b", "--system", "dgx-h100", "--phase", "serve", "--isl", "64", "--osl", "8")
    small = ("--set", "chip.memory.hbm.capacity=25GB", "--memory-utilization", "0.6")
    done = cli(*words, *small)
    assert done.returncode == 3
    assert "DOES NOT FIT: needs 17." in done.stderr
    assert "--tp 2 (" in done.stderr
    assert cli(*words, *small, "--tp", "2").returncode == 0


def test_flags_of_servers_are_not_ignored_elsewhere(tiny: Cli, cli: Cli, data: Path) -> None:
    done = tiny("--concurrency", "2")
    assert (done.returncode, "--concurrency: needs --phase serve, not train" in done.stderr) == (2, True)
    done = cli("compile", str(data / "configs" / "tiny-llama.json"), "--phase", "serve")
    assert (done.returncode, "two graphs" in done.stderr) == (2, True)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_single_steps_take_the_stack_of_an_engine_and_say_their_mbu(tiny: Cli, phase: str) -> None:
    usual, engine = (tiny("--phase", phase, *more) for more in ((), ("--engine", "vllm")))
    assert "MBU" in usual.stdout
    assert usual.stdout != engine.stdout
    found = json.loads(tiny("--phase", phase, "--engine", "vllm", "--format", "json").stdout)
    assert found["inputs"]["system"]["stack"] == "vllm"
    assert ("TTFT" if phase == "prefill" else "TPOT") in engine.stdout
    assert "bandwidth:" in tiny("--phase", phase, "--explain", "mbu").stdout
