"""`--verify numeric`: a user's own module beside its sharded graph; what was not run is not proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")

import slipstick
from slipstick.ir.errors import GateError, UnknownNameError, UsageError
from slipstick.ir.placement import PARTIAL, REPLICATE
from slipstick.passes import manager
from slipstick.passes.sharding import rules
from slipstick.passes.sharding.ask import Answer, Ask
from slipstick.verify.numeric.call import Local
from tests.cli.conftest import Cli

pytestmark = pytest.mark.oracle
NETS = Path(__file__).parents[1] / "data" / "own_nets.py"

GPTS = ("packed", "separate")
PLANS: tuple[str, ...] = (
    "", "--dp 2", "--tp 2", "--tp 4", "--tp 2 --sp", "--tp 2 --tp-plan auto", "--tp 2 --tp-plan dtensor",
    "--dp 2 --zero 1", "--dp 2 --zero 2", "--dp 2 --tp 2 --zero 3", "--cp 2", "--cp 2 --cp-method ulysses --tp 2",
    "--pp 2", "--pp 2 --tp 2 --dp 2", "--tp 2 --recompute full", "--tp 2 --recompute selective",
    "--tp 2 --kernels fused", "--phase prefill --tp 2",
)  # fmt: skip
STEP = "--phase decode --input ids:int64[batch,1] --input keys:bf16[batch,4,kv,16] --input values:bf16[batch,4,kv,16] "
STEP += "--kv-cache keys --kv-cache values"
OTHERS = (
    ("positions", "--seq 32 --tp 2"), ("Merged", "--tp 2"), ("Stepping", f"{STEP} --tp 2"),
    ("Perceptron", "--input x:bf16[batch,32] --dp 2"), ("checkpointed", "--dp 2 --zero 3"),
)  # fmt: skip
PAIRS = tuple((net, plan) for net in GPTS for plan in PLANS) + OTHERS


def numeric(cli: Cli, net: str, plan: str, *more: str) -> tuple[int, str]:
    """Exit code and what is said, on either stream."""
    done = cli("compile", f"{NETS}:{net}", *plan.split(), *more, "--verify", "numeric", "--quiet")
    return done.returncode, done.stdout + done.stderr


# Every sixth pair always; all of them with --deep.
@pytest.mark.parametrize(
    ("net", "plan"), [pytest.param(*p, marks=[pytest.mark.deep] if i % 6 else []) for i, p in enumerate(PAIRS)]
)
def test_an_own_module_is_run_and_is_equal(cli: Cli, net: str, plan: str) -> None:
    code, text = numeric(cli, net, plan)
    assert (code, "numeric    equal to the module" in text) == (0, True), text
    assert " tokens at " in text
    assert "of 1e-09 allowed" in text


def test_a_module_too_large_is_not_run_until_its_factory_gets_small_sizes(cli: Cli) -> None:
    code, text = numeric(cli, "large", "--tp 8")
    assert code == 5
    # 48 layers of 12 and 6 squares of 8192 numbers: 32 G parameters, in float64 with gradients, of module and ranks.
    assert "not run    32,214,630,400 parameters take 1031 GB in float64" in text
    code, text = numeric(cli, "large", "--tp 8", "--verify-sizes", "seq=16,batch=2,dim=32,layers=2")
    assert (code, "ran        2 x 16 tokens at tp4" in text) == (0, True), text


@pytest.mark.parametrize(
    ("model", "words", "why"),
    [
        ("gpt2", "--phase decode --cp 2 --seq 64", "parts of a softmax"),
        (f"{NETS}:dropping", "--tp 2", "draws random numbers"),
    ],
)
def test_what_is_not_run_ends_with_5_and_says_why(cli: Cli, model: str, words: str, why: str) -> None:
    done = cli("compile", model, *words.split(), "--verify", "numeric", "--quiet")
    assert (done.returncode, done.stdout) == (5, "")
    assert "not run    " in done.stderr
    assert why in done.stderr
    assert "not run is not proven" in done.stderr


OF_NUMBERS = """import torch
class Net(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.w = kind, torch.nn.Parameter(torch.ones(8))
    def forward(self, x):
        y = x * self.w
        if self.kind == "nan": return y / (y - y)
        if self.kind == "inf": return torch.where(y > 0, y, float("-inf"))
        z = torch.complex(y, y + 1.0)
        return torch.view_as_real(z.conj() * z if self.kind == "conj" else z * z)
def nan(): return Net("nan")
def inf(): return Net("inf")
def conj(): return Net("conj")
def square(): return Net("square")
"""


@pytest.mark.parametrize(
    ("net", "code", "why"),
    [
        ("nan", 5, "not run    the module itself gives inf or nan"),
        ("inf", 0, "equal to the module"),
        ("conj", 5, "not run    a conjugate"),
        ("square", 5, "not run    'aten.copy_' is recorded without its 'self'"),
    ],
)
def test_numbers_that_are_none_and_conjugates_are_not_judged(
    cli: Cli, tmp_path: Path, net: str, code: int, why: str
) -> None:
    (tmp_path / "net.py").write_text(OF_NUMBERS, encoding="utf-8")
    words = ("--phase", "prefill", "--input", "x:fp32[batch,8,8]", "--verify", "numeric", "--quiet")
    done = cli("compile", f"{tmp_path / 'net.py'}:{net}", *words)
    assert (done.returncode, why in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


def test_a_saved_graph_has_no_module_and_ends_with_5(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "net.graph"
    cli("compile", f"{NETS}:packed", "-o", str(path))
    done = cli("compile", str(path), "--tp", "2", "--verify", "numeric")
    assert done.returncode == 5
    assert "is a saved graph, which has no module to compare with" in done.stderr


@pytest.mark.parametrize(
    ("plan", "sizes", "kind", "why"),
    [
        ("", {"width": 3}, UnknownNameError, "argument of"),
        ("", {"seq": 0}, UsageError, "a whole number, 1 or more"),
        ("", {"kv": 8}, UsageError, "the phase train has batch and seq"),
        ("--dp", {"batch": 3}, UsageError, "give a multiple of 2"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(
    plan: str, sizes: Mapping[str, object], kind: type[Exception], why: str
) -> None:
    compiled = slipstick.compile(f"{NETS}:Net", None, dp=2 if plan else 1)
    with pytest.raises(kind, match=why):
        compiled.verify("numeric", sizes)


def test_sizes_without_the_check_are_refused(cli: Cli) -> None:
    done = cli("compile", f"{NETS}:Net", "--verify-sizes", "seq=16")
    assert (done.returncode, "is of --verify numeric" in done.stderr) == (2, True)


def test_python_runs_the_same_check() -> None:
    text = slipstick.compile(f"{NETS}:Net", None, tp=2).verify("numeric", {"seq": 16, "batch": 2, "layers": 1})
    assert "ran        2 x 16 tokens at tp2" in text


def test_a_rule_that_forgets_a_partial_sum_ends_with_5(monkeypatch: pytest.MonkeyPatch) -> None:
    rule_of = rules.rule_of
    sound = rule_of("matmul")
    assert sound is not None

    def forgetful(ask: Ask) -> Answer:
        made = sound(ask)
        return Answer(made.inputs, tuple(REPLICATE if p == PARTIAL else p for p in made.outputs))

    compiled = slipstick.compile(f"{NETS}:separate", None, tp=2)
    monkeypatch.setattr(rules, "rule_of", lambda op: forgetful if op == "matmul" else rule_of(op))
    monkeypatch.setattr(manager, "verify_layouts", lambda *_: None)  # the numbers alone must tell
    with pytest.raises(GateError, match="DIFFERS from the module") as error:
        compiled.verify()
    assert error.value.exit_code == 5


def test_a_reduction_of_gradients_that_is_dropped_ends_with_5(monkeypatch: pytest.MonkeyPatch) -> None:
    from slipstick.verify.numeric.stages import RankExchange

    exchange = RankExchange.run

    def silent(self: RankExchange, given: Sequence[Sequence[Local]]) -> list[list[Local]]:
        found = exchange(self, given)
        return [list(given[0])] if self.node.op == "all_reduce" and "dp" in self.axes else found

    compiled = slipstick.compile(f"{NETS}:separate", None, dp=2)
    monkeypatch.setattr(RankExchange, "run", silent)
    with pytest.raises(GateError, match="DIFFERS from the module"):
        compiled.verify()
