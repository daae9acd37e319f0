"""Plans: the words that people say, the structure and the numbers that they make, and which of them are legal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

# Modules of the names that are not in `words`.
_MODULE_OF = {
    "LARGEST": ".cases",
    "ORDER": ".layout.ranks",
    "SCHEDULES": "..schedules.registry",
    "Defaults": ".structure",
    "Plan": ".plan",
    "PlanTable": ".table",
    "check_family": ".legality",
    "check_offload": ".legality",
    "check_recompute": ".legality",
    "divisors": ".case",
    "make_plan": ".plan",
    "plan_of": ".plan",
    "rank_order": ".layout.ranks",
    "structure_of": ".structure",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on first use: a word or a text of a plan needs no plans."""
        if name not in __all__:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        from importlib import import_module

        value = getattr(import_module(_MODULE_OF.get(name, ".words"), __name__), name)
        globals()[name] = value
        return value
