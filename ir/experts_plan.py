"""What a plan says of experts, checked: how they are dealt out, how full they are, how their rows travel."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING

from .degrees import divisors, nearest
from .errors import NotBuiltError, PlanError, UnknownNameError
from .graph import Workload

if TYPE_CHECKING:
    from .family import Family

WIRES = ("same", "fp8")


def check_etp(family: Family, tp: int, etp: int | None) -> int:
    """Return the tensor-parallel degree inside experts; PlanError unless it is 1 or tp, as the family has it.

    Whole experts need the tokens of a rank to be its own: sequence parallelism.
    """
    own = tp if family.etp else 1
    if etp is not None and etp not in (1, tp):
        raise PlanError(f"etp={etp}: experts are split over all tp={tp} ranks or not at all; legal etp: {_both(tp)}")
    if etp is not None and etp != own:
        raise PlanError(f"etp={etp} with tp={tp} needs a family with etp={tp == etp}, this one has etp={family.etp}")
    if own < tp and family.workload is Workload.DECODE:
        raise NotBuiltError(f"--etp 1 with --tp {tp} in decode: not modelled in this version; what is: --etp {tp}")
    if own < tp and not family.sp:
        raise PlanError(f"etp=1 with tp={tp}: each rank routes its own tokens, which takes --sp; or use --etp {tp}")
    return own


def _both(tp: int) -> str:
    return "1" if tp == 1 else f"1, {tp}"


def check_ep(family: Family, tp: int, ep: int, replicas: int) -> None:
    """Raise PlanError unless ep divides the ranks over which experts are dealt out, the nearest legal ones named."""
    if family.etp or tp == 1 or (ep == 1 and not family.ep):
        if replicas % ep:
            raise PlanError(
                f"ep={ep} lies inside data parallelism and does not divide dp={replicas}; "
                f"legal ep: {nearest(ep, divisors(replicas))}"
            )
        return
    legal = [tp * d for d in divisors(replicas)]
    if ep not in legal:
        raise PlanError(
            f"ep={ep}: with etp=1 experts are dealt out over all tp={tp} ranks, then over ranks of dp={replicas}; "
            f"legal ep: {nearest(ep, [1, *legal])}"
        )


def check_load(family: Family, ep: int, capacity_factor: float | None, imbalance: float) -> None:
    """Raise PlanError for a capacity or an imbalance that cannot be, or that the family has no symbol for."""
    if capacity_factor is not None and not (isfinite(capacity_factor) and 0 < capacity_factor <= 1000):
        raise PlanError(f"capacity_factor={capacity_factor:g}: rows an expert takes over the mean, above 0 up to 1000")
    if (capacity_factor is not None) != family.capacity:
        raise PlanError(f"a family with capacity={family.capacity} and capacity_factor={capacity_factor}: give both")
    if not 1 <= imbalance <= max(ep, 1):
        raise PlanError(
            f"expert_imbalance={imbalance:g}: the busiest of ep={ep} ranks gets 1 to {ep} times the mean rows"
        )
    if imbalance > 1 and not family.imbalance:
        raise PlanError(f"expert_imbalance={imbalance:g} needs a family with imbalance=True")


def check_exchange(family: Family) -> None:
    """Raise PlanError for options of the exchange of rows that make no sense, or without expert parallelism."""
    if family.dispatch_dtype not in WIRES:
        raise UnknownNameError.of("dispatch dtype", family.dispatch_dtype, WIRES)
    if family.routing_nodes < 0:
        raise PlanError(f"routing_nodes={family.routing_nodes}: nodes a token is sent to at most, 0 for no limit")
    unused = list(_exchange_options(family))
    if unused and not family.ep:
        raise PlanError(f"{', '.join(unused)}: without expert parallelism no rows travel; use --ep above 1")


def _exchange_options(family: Family) -> Iterator[str]:
    if family.imbalance:
        yield "expert_imbalance"
    if family.dispatch_dtype != "same":
        yield f"dispatch_dtype={family.dispatch_dtype}"
    if family.routing_nodes:
        yield f"routing_nodes={family.routing_nodes}"


def expert_options(family: Family, ep: int) -> list[str]:
    """Return what a plan asks of experts, as people write it: all of it needs a model that has some."""
    asked = [(f"ep={ep}", ep > 1), ("etp=1", not family.etp), ("capacity_factor", family.capacity)]
    return [text for text, given in asked if given] + list(_exchange_options(family))
