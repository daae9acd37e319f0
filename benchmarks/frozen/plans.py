"""The same questions from Python: plans made of words, estimated, and as the words of a plan file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from slipstick import Defaults, Family, GraphCache, Workload, load, load_system, make_plan
from slipstick.driver.estimate import estimate
from slipstick.ir.errors import SlipstickError
from slipstick.ir.plan import Plan

_Words = Mapping[str, object]


def _plan(words: _Words, policy: _Words, left_open: _Words) -> Plan:
    """Return a plan whose structure follows from its degrees."""
    stack = load_system("dgx-h100").stack
    base = Family(**policy)  # type: ignore[arg-type]
    given = Defaults(stack, base, **left_open)  # type: ignore[arg-type]
    return make_plan(**{"num_gpus": 16, "seq_len": 1024, **words}, family=given)  # type: ignore[arg-type]


def _of_family(words: _Words, family: _Words) -> Plan:
    """Return a plan of a family that is given as it is."""
    return make_plan(**{"num_gpus": 16, "seq_len": 1024, **words}, family=Family(**family))  # type: ignore[arg-type]


def planned(make: Callable[[], object]) -> str:
    """Return a plan as words and its metrics, or why there is none."""
    from slipstick.ir.plan.files import plan_words

    try:
        plan = make()
        assert isinstance(plan, Plan)
        graph = load("gpt2", str(plan.family.workload), cache=GraphCache.default())
        found = estimate(graph, load_system("dgx-h100"), plan)
        return json.dumps({"words": plan_words(plan), "metrics": dict(found.metrics)}, indent=1, sort_keys=True)
    except SlipstickError as error:
        return f"{type(error).__name__}: {error}"


_TRAIN: tuple[tuple[_Words, _Words, _Words], ...] = (
    ({}, {}, {}),
    ({"tp": 2}, {}, {}),
    ({"tp": 2}, {}, {"sp": False}),
    ({"tp": 4, "cp": 4}, {}, {}),
    ({"cp": 4}, {}, {"cp_method": "ring"}),
    ({"cp": 4, "cp_ulysses": 2}, {}, {}),
    ({"pp": 4, "global_batch": 32}, {}, {}),
    ({"pp": 2, "vpp": 2, "global_batch": 32}, {"schedule": "interleaved"}, {}),
    ({"pp": 2, "global_batch": 32, "tp": 2}, {}, {"sp": False, "scatter_p2p": True}),
    ({"dp_shard": 4}, {"zero": 3}, {}),
    ({}, {"zero": 3, "reshard": "step"}, {}),
    ({}, {"recompute": "full"}, {}),
    ({}, {"recompute": "selective", "recompute_modules": ("mlp",)}, {}),
    ({}, {}, {"kernels": "fused"}),
    ({}, {"precision": "fp8"}, {}),
    ({}, {"main_params_dtype": "none", "exp_avg_dtype": "bf16"}, {}),
    ({"tp": 2}, {"tp_plan": "auto"}, {}),
    ({}, {"offload": ("optimizer",), "zero": 1}, {}),
    ({}, {"fused": False}, {}),
    ({"tp": 3}, {}, {}),
    ({"dp_shard": 3}, {"zero": 1}, {}),
    ({"global_batch": 3}, {}, {}),
    ({}, {"zero": 5}, {}),
    ({"pp": 4, "global_batch": 32}, {"pp_layout": "3,3,3,3"}, {}),
    ({"ep": 2}, {}, {}),
    ({"tp": 2}, {"async_tp": True}, {}),
)
_INFER: tuple[tuple[_Words, _Words, _Words], ...] = (
    ({}, {}, {}),
    ({"tp": 2, "micro_batch": 8}, {"kv_dtype": "fp8"}, {}),
    ({"tp": 2}, {}, {"kernels": "fused"}),
    ({}, {"precision": "int8"}, {}),
    ({}, {"precision_of": (("lm_head", "fp8"),)}, {}),
    ({"pp": 2}, {}, {}),
)
_FAMILIES: tuple[tuple[_Words, _Words], ...] = (
    ({}, {}),
    ({"cp": 4}, {}),
    ({"cp": 4}, {"cp": "allgather"}),
    ({"pp": 2, "global_batch": 32}, {"pp": True}),
    ({"pp": 2}, {}),
    ({"dp_shard": 2}, {"zero": 1}),
    ({"tp": 2}, {"sp": True, "zero": 1}),
    ({"expert_imbalance": 2.0}, {}),
    ({"capacity_factor": 1.0}, {}),
    ({}, {"capacity": True}),
    ({"cp": 4, "cp_ulysses": 2}, {"cp": "ring"}),
    ({"etp": 2, "tp": 2}, {"etp": False}),
    ({"tp": 2}, {"etp": False, "sp": True}),
)
PLANS: Mapping[str, Callable[[], object]] = {
    **{f"Defaults train {number}: {case}": partial(_plan, *case) for number, case in enumerate(_TRAIN)},
    **{
        f"Defaults {phase} {number}: {words}": partial(
            _plan, {**words, "kv_len": 1024 if phase is Workload.DECODE else 0}, {"workload": phase, **policy}, left
        )
        for phase in (Workload.PREFILL, Workload.DECODE)
        for number, (words, policy, left) in enumerate(_INFER)
    },
    **{f"Family {number}: {case}": partial(_of_family, *case) for number, case in enumerate(_FAMILIES)},
}
