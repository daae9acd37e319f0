"""Operators of a user's own, priced by the formulas that are given for them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import slipstick
from slipstick.driver.estimate import estimate
from slipstick.frontend.semantic import costs
from slipstick.ir.errors import TraceError, UnsupportedOpError, UsageError
from slipstick.ir.graph import Graph, Phase
from slipstick.ir.ops import work_of
from slipstick.ir.text.parse import parse_graph
from slipstick.ir.text.printer import print_graph

from ..sums import flops

WIDTH, OUT = 32, 48
IDS = torch.zeros(2, 16, dtype=torch.int64)


@torch.library.custom_op("slipstick_tests::fancy", mutates_args=())
def fancy(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


@fancy.register_fake
def _(x: Tensor, w: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:-1], w.shape[1])


@torch.library.custom_op("slipstick_tests::fancy_bwd", mutates_args=())
def fancy_bwd(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return grad @ w.t(), x.flatten(0, 1).t() @ grad.flatten(0, 1)


@fancy_bwd.register_fake
def _(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(w)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


fancy.register_autograd(lambda ctx, grad: fancy_bwd(grad, *ctx.saved_tensors), setup_context=_setup)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.weight = nn.Embedding(100, WIDTH), nn.Parameter(torch.zeros(WIDTH, OUT))

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = fancy(self.tokens(ids), self.weight)
        return out


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "_COSTS", {})


def priced(phase: str = "train") -> Graph:
    slipstick.register_cost(fancy, flops="2 * x.numel * w[1]")
    slipstick.register_cost("slipstick_tests::fancy_bwd", flops="4 * x.numel * w[-1]")
    return slipstick.trace(Net(), IDS, phase=phase)


def test_formulas_count_in_both_phases_and_bytes_once_each() -> None:
    graph = priced()
    product = 2 * 2 * 16 * WIDTH * OUT
    env = {"batch": 2, "seq": 16}
    assert flops(graph).evaluate(env) == product
    assert flops(graph, Phase.BACKWARD).evaluate(env) == 2 * product
    moved = [work_of(r, n).num_bytes for r in graph.regions for n in r.nodes if n.op == "custom"]
    assert moved[0].evaluate(env) == 4 * (2 * 16 * (WIDTH + OUT) + WIDTH * OUT)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


def test_vector_work_and_bytes_of_their_own() -> None:
    slipstick.register_cost("slipstick_tests::fancy", flops="out.numel ** 2 / x[0]", bytes="x.bytes", unit="vector")
    graph = slipstick.trace(Net(), IDS, phase="prefill")
    (work,) = (work_of(r, n) for r in graph.regions for n in r.nodes if n.op == "custom")
    env = {"batch": 2, "seq": 16}
    assert work.tensor_flops == 0
    assert work.vector_flops.evaluate(env) == (2 * 16 * OUT) ** 2 / 2
    assert work.num_bytes.evaluate(env) == 4 * 2 * 16 * WIDTH


def test_each_replica_runs_it_on_its_own_samples() -> None:
    graph, system = priced(), slipstick.load_system("dgx-h100")
    times = []
    for replicas in (1, 64):
        plan = slipstick.make_plan(num_gpus=replicas, seq_len=2048, micro_batch=4, family=slipstick.Family())
        found = estimate(graph, system, plan).breakdown_s
        times.append(sum(t for name, t in found.items() if name.startswith("compute")))
    assert times[1] == pytest.approx(times[0], rel=0.01)


def test_an_operator_without_a_cost_names_what_to_write() -> None:
    with pytest.raises(UnsupportedOpError, match=r"register_cost\('slipstick_tests::fancy', flops='..'\).*x, w, out"):
        slipstick.trace(Net(), IDS, phase="prefill")


@pytest.mark.parametrize(
    ("formula", "said"), [("2 * y.numel", "'y.numel' is no size; there are tensors x, w, out"), ("x[5]", "dims 0 to 2")]
)
def test_what_is_no_size_of_the_arguments_is_refused_where_it_is_met(formula: str, said: str) -> None:
    slipstick.register_cost("slipstick_tests::fancy", flops=formula)
    with pytest.raises(TraceError, match=f"the cost of 'slipstick_tests.fancy': .*{said}"):
        slipstick.trace(Net(), IDS, phase="prefill")


def test_what_is_no_formula_is_refused_at_once() -> None:
    for wrong in ("2 *", "2 % 3"):
        with pytest.raises(UsageError, match="formula"):
            slipstick.register_cost("slipstick_tests::fancy", flops=wrong)
    with pytest.raises(UsageError, match="legal are tensor and vector"):
        slipstick.register_cost("slipstick_tests::fancy", unit="cuda")
    with pytest.raises(UsageError, match="namespace::name"):
        slipstick.register_cost("fancy")
