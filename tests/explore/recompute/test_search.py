"""Memory policies that are found: never worse than those that frameworks have, and best of all on small models."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from random import Random

import pytest

from slipstick.backends.machine.load import load_system
from slipstick.explore.recompute.pricing import Pricer
from slipstick.explore.recompute.search import FoundPolicy, find_policy, said
from slipstick.explore.recompute.spaces import FRAMEWORKS, PolicySpace, maxtext_settings, space_of
from slipstick.frontend import load
from slipstick.ir.errors import InfeasibleError, UnknownNameError, UsageError
from slipstick.ir.graph import Graph, Workload
from slipstick.ir.plan import Family, Plan, make_plan
from slipstick.ir.plan.structure import Defaults

SYSTEM = load_system("dgx-h100")
GIB = 2.0**30


@cache
def graph(name: str) -> Graph:
    return load(name)


@cache
def plan(pp: int = 1, mbs: int = 1) -> Plan:
    return make_plan(
        num_gpus=8, tp=2, pp=pp, seq_len=4096, micro_batch=mbs, global_batch=64,
        family=Defaults(SYSTEM.stack, Family(zero=1)),
    )  # fmt: skip


@cache
def pricer(pp: int = 1) -> Pricer:
    return Pricer(graph("llama-3.1-8b"), SYSTEM, plan(pp))


def between(low: float, high: float, share: float) -> float:
    return low + share * (high - low)


def limits(pp: int = 1) -> tuple[float, float]:
    """What full recomputation and keeping everything need."""
    full, everything = pricer(pp).price("full", {"recompute": "full"}), pricer(pp).price("none", {})
    assert full is not None
    assert everything is not None
    return full.peak_mem_bytes, everything.peak_mem_bytes


def found(share: float, pp: int = 1, offload: bool = False, by_stage: bool = True) -> FoundPolicy:
    space = PolicySpace(to_host=offload, by_stage=by_stage)
    return find_policy(graph("llama-3.1-8b"), SYSTEM, plan(pp), between(*limits(pp), share), space)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [28, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (29, 30))])
def test_no_known_policy_is_better_on_a_random_plan_and_limit(seed: int) -> None:
    dice = Random(seed)
    pp, share, offload = dice.choice((1, 2, 4)), dice.uniform(0.02, 0.98), dice.random() < 0.5
    answer = found(share, pp, offload)
    assert answer.best.peak_mem_bytes <= answer.limit_bytes
    for known in answer.known:
        if known.peak_mem_bytes <= answer.limit_bytes:
            assert answer.best.step_time_s <= known.step_time_s * (1 + 1e-9)


@pytest.mark.slow
def test_no_subset_of_names_is_better() -> None:
    """Of all sets of six results, alone or with the rest of the layers whole: every one is priced."""
    names = (
        "self_attn.v_proj",
        "self_attn:rope",
        "self_attn:attention",
        ":elementwise",
        "mlp.gate_proj",
        "mlp.up_proj",
    )
    limit = between(*limits(), 0.4)
    answer = found(0.4)
    for num in range(len(names) + 1):
        for some in combinations(names, num):
            policy = pricer().price("subset", {"recompute": "save", "recompute_save": some})
            if policy is not None and policy.peak_mem_bytes <= limit:
                assert answer.best.step_time_s <= policy.step_time_s * (1 + 1e-9), some


def test_what_fits_keeps_everything() -> None:
    answer = find_policy(graph("llama-3.1-8b"), SYSTEM, plan())
    assert answer.best.label == "none"
    assert said(answer.best) == "--recompute none"


@pytest.mark.slow
def test_more_memory_is_never_slower() -> None:
    steps = [found(share).best.step_time_s for share in (0.15, 0.7)]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.slow
def test_stages_by_themselves_are_no_slower_and_each_of_them_fits() -> None:
    alike, apart = found(0.3, 4, by_stage=False), found(0.3, 4)
    assert apart.best.step_time_s <= alike.best.step_time_s
    assert max(pricer(4).stage_bytes(apart.best)) <= apart.limit_bytes
    layers = apart.best.family.recomputed_layers
    assert isinstance(layers, tuple)
    # Under 1F1B stage k of p holds p - k micro-batches: later stages recompute no more than earlier ones, but for the
    # last, which holds the logits.
    assert list(layers[:3]) == sorted(layers[:3], reverse=True)


@pytest.mark.slow
def test_offloading_is_of_results_that_are_kept() -> None:
    best = found(0.2, offload=True).best
    assert set(best.family.offload_modules) <= {*best.family.recompute_save, *best.family.recompute_save_rest}
    assert (best.host_mem_bytes > 0) == bool(best.family.offload_modules)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_gets_what_it_can_say(framework: str) -> None:
    limit = between(*limits(), 0.3)
    best = find_policy(graph("llama-3.1-8b"), SYSTEM, plan(), limit, space_of(framework)).best
    assert best.peak_mem_bytes <= limit
    assert best.family.recompute in FRAMEWORKS[framework].kinds
    assert best.family.recompute_save_rest == ()
    assert best.family.recompute_by_chunk == ""


def test_a_policy_is_a_place_for_each_tensor_of_maxtext() -> None:
    settings = maxtext_settings(
        {"recompute": "save", "recompute_save": ("self_attn:attention",), "offload_modules": ("self_attn:attention",)}
    )
    assert settings["remat_policy"] == "custom"
    assert settings["context"] == "offload"
    assert settings["mlpwo"] == "remat"


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InfeasibleError, match=r"no memory policy fits 1 GiB: the smallest, .* needs .* GiB; more --tp"):
        find_policy(graph("llama-3.1-8b"), SYSTEM, plan(), GIB)
    with pytest.raises(UnknownNameError, match="megatron"):
        space_of("megatrn")
    decode = make_plan(num_gpus=8, tp=8, seq_len=4096, family=Defaults(SYSTEM.stack, Family(workload=Workload.DECODE)))
    with pytest.raises(UsageError, match="this is decode"):
        find_policy(load("llama-3.1-8b", "decode"), SYSTEM, decode)
