"""Plans: the words that people say, the structure and the numbers that they make, and which of them are legal."""

from __future__ import annotations

from ..schedules.registry import SCHEDULES
from .case import divisors
from .cases import LARGEST
from .layout.ranks import ORDER, rank_order
from .legality import check_family, check_offload, check_recompute
from .plan import Plan, make_plan, plan_of
from .structure import Defaults, structure_of
from .table import PlanTable
from .words import (
    ATTENTION,
    CAPACITY,
    CP_METHODS,
    IMBALANCE,
    KERNELS,
    LAYOUTS,
    OFFLOAD,
    RECOMPUTE,
    RESHARD,
    WORDS,
    Family,
    LoweringPolicy,
    PlanNumbers,
    PlanWords,
)

__all__ = [
    "ATTENTION",
    "CAPACITY",
    "CP_METHODS",
    "IMBALANCE",
    "KERNELS",
    "LARGEST",
    "LAYOUTS",
    "OFFLOAD",
    "ORDER",
    "RECOMPUTE",
    "RESHARD",
    "SCHEDULES",
    "WORDS",
    "Defaults",
    "Family",
    "LoweringPolicy",
    "Plan",
    "PlanNumbers",
    "PlanTable",
    "PlanWords",
    "check_family",
    "check_offload",
    "check_recompute",
    "divisors",
    "make_plan",
    "plan_of",
    "rank_order",
    "structure_of",
]
