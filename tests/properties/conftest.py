"""Small models with sixteen layers, lowered once a family, and plans of every family drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import strategies as st

from slipstick.backends.machine.chip import HostLink, HostMemory
from slipstick.backends.machine.system import System
from slipstick.driver.estimate import Lowered, lower
from slipstick.ir.graph import Graph
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.case import divisors
from slipstick.ir.plan.precision import RECIPES
from slipstick.ir.types import DType

MODELS = ("tiny-llama", "tiny-gpt2", "tiny-mixtral")
# Key-value heads; beyond them tensor-parallel ranks hold copies.
HEADS = {"tiny-llama": 2, "tiny-gpt2": 4, "tiny-mixtral": 2}
LAYERS, EXPERTS, SEQ = 16, 4, 64
RECOMPUTED = (
    Family(), Family(recompute="selective"), Family(recompute="ops"), Family(recompute="full"),
    Family(recompute="full", early_stop=False),
    Family(recompute="selective", recompute_modules=("core_attn", "layernorm")),
    Family(recompute="selective", recompute_modules=("layernorm",)),
)  # fmt: skip
WHOLE_LAYERS = (Family(recompute="full", recompute_layers=5), Family(recompute="full", recompute_every=3))
UNEVEN = {2: "9,7", 3: "4,8,4", 4: "5,4,4,3"}


@pytest.fixture(scope="session")
def deep(traced: Callable[[str], Graph]) -> Callable[[str], Graph]:
    """Return a small training graph by the name of its model, with sixteen layers."""

    def made(name: str) -> Graph:
        graph = traced(f"{name}.train")
        runs = tuple(replace(r, count=LAYERS) if r.count > 1 else r for r in graph.schedule)
        return replace(graph, schedule=runs)

    return cache(made)


@pytest.fixture(scope="session")
def lowered(deep: Callable[[str], Graph]) -> Callable[[str, Family], Lowered]:
    """Return a small model lowered for a family."""
    return cache(lambda name, family: lower(deep(name), family))


@pytest.fixture(scope="session")
def machine(made_up: System) -> System:
    """The machine of round numbers, with a host to copy to and units for low precision."""
    peaks = replace(made_up.chip.peak_flop_per_s, fp8=200e12, int8=200e12, fp4=400e12)
    chip = replace(made_up.chip, host_link=HostLink(50e9, 0.8, 1e-5), peak_flop_per_s=peaks)
    return replace(made_up, chip=chip, host=HostMemory(2**40, 400e9, 0.8))


@pytest.fixture(scope="session")
def cases() -> st.SearchStrategy[tuple[str, Plan]]:
    """A model and a legal plan of any family of training."""
    return _case()


@st.composite
def _case(draw: st.DrawFn) -> tuple[str, Plan]:
    model = draw(st.sampled_from(MODELS))
    pp = draw(st.sampled_from([1, 1, 2, 3, 4, 7, 16]))
    family = draw(_family(model, pp))
    # Heads that ranks exchange are not copied.
    most = HEADS[model] if family.usp or family.cp == "ulysses" else 4
    tp = draw(st.sampled_from([n for n in (1, 2, 4) if n <= most]))
    outer, inner = draw(_context(family, HEADS[model] // tp))
    within = draw(st.sampled_from(divisors(EXPERTS // (1 if family.etp else tp)))) if family.ep else 1
    ep = within * (1 if family.etp or not family.ep else tp) if model == "tiny-mixtral" else 1
    shard = draw(st.sampled_from([1, 2])) if family.hsdp else 1
    dp = (within if ep > 1 else 1) * shard * draw(st.sampled_from([1, 2, 8]))
    chunks = draw(st.integers(1, 16 // pp)) if pp > 1 and family.schedule == "1f1b" else 1
    vpp = 1 if family.pp_layout in UNEVEN.values() else chunks
    micro = draw(st.integers(1, 3))
    plan = make_plan(
        num_gpus=tp * outer * inner * pp * dp, tp=tp, cp=outer * inner, cp_ulysses=inner if family.usp else 1,
        pp=pp, vpp=vpp, ep=ep, dp_shard=shard, seq_len=SEQ, micro_batch=micro,
        global_batch=micro * dp * pp * draw(st.integers(1, 4)),
        capacity_factor=draw(st.sampled_from([0.5, 1.25])) if family.capacity else None,
        expert_imbalance=draw(st.sampled_from([1.0, 1.5])) if family.imbalance and ep > 1 else 1.0, family=family,
    )  # fmt: skip
    return model, plan


@st.composite
def _context(draw: st.DrawFn, family: Family, heads: int) -> tuple[int, int]:
    """Ranks that pass keys and values on, and ranks that exchange sequence for the heads of a rank."""
    exchanged = divisors(max(heads, 1)) if family.usp or family.cp == "ulysses" else [1]
    outer = draw(st.sampled_from([1, 2])) if family.cp in ("ring", "allgather") else 1
    return outer, draw(st.sampled_from(exchanged))


@st.composite
def _family(draw: st.DrawFn, model: str, pp: int) -> Family:
    routes = model == "tiny-mixtral"
    sp, zero, ep = draw(st.booleans()), draw(st.integers(0, 3)), draw(st.booleans())
    cp = draw(st.sampled_from(["none", "none", "allgather", "ring", "ulysses"]))
    offload = [(), ("optimizer",), ("activations",), ("optimizer", "activations")]
    layouts = ["auto", "even", "balanced", *([UNEVEN[pp]] if pp in UNEVEN else [])]
    again = draw(st.sampled_from(RECOMPUTED if pp > 1 else RECOMPUTED + WHOLE_LAYERS))
    precision = draw(st.sampled_from(["none", "none", *RECIPES]))
    away = draw(st.sampled_from([*offload, ("optimizer", "params")] if zero == 3 else offload))
    gathers_low = precision in ("fp8", "fp8-block") and "optimizer" not in away and draw(st.booleans())
    return Family(
        sp=sp, zero=zero, ep=ep, cp=cp, recompute=again.recompute, early_stop=again.early_stop,
        recompute_modules=again.recompute_modules, recompute_layers=again.recompute_layers,
        recompute_every=again.recompute_every,
        etp=not (routes and sp and draw(st.booleans())),
        pp=pp > 1 or draw(st.booleans()), schedule=draw(st.sampled_from(["1f1b", "gpipe"])),
        pp_layout=draw(st.sampled_from(layouts)),
        order=draw(st.sampled_from(["tp-cp-ep-dp-pp", "tp-ep-cp-pp-dp", "pp-dp-ep-cp-tp"])),
        usp=cp in ("allgather", "ring") and draw(st.booleans()), hsdp=zero > 0 and draw(st.booleans()),
        reshard=draw(st.sampled_from(["layer", "microbatch", "step"])) if zero == 3 else "layer",
        async_tp=sp and draw(st.booleans()), capacity=routes and draw(st.booleans()),
        imbalance=routes and ep and draw(st.booleans()),
        routing_nodes=draw(st.sampled_from([0, 1])) if routes and ep else 0,
        dispatch_dtype=draw(st.sampled_from(["same", "fp8"])) if routes and ep else "same",
        offload=away,
        grad_dtype=draw(st.sampled_from([DType.FP32, DType.BF16])),
        reduce_dtype=draw(st.sampled_from([None, DType.FP32, DType.BF16])),
        kernels=draw(st.sampled_from(["eager", "torch", "fused"])),
        attention=draw(st.sampled_from(["flash", "unfused"])) if model == "tiny-gpt2" else "flash",
        tp_plan=draw(st.sampled_from(["megatron", "dtensor", "dtensor-naive"])), fused=draw(st.booleans()),
        precision=precision, fp8_param_gather=gathers_low,
    )  # fmt: skip
