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
# How rows get to the experts of other ranks: sent, or every rank has all tokens and takes the rows of its own experts.
EXCHANGES = ("alltoall", "allgather")


def check_etp(family: Family, tp: int, etp: int | None, replicas: int = 1) -> int:
    """Return the tensor-parallel degree inside experts; PlanError unless it is 1 or tp, as the family has it.

    In training whole experts need the tokens of a rank to be its own: sequence parallelism. In inference each rank may
    run its own experts on the tokens that all of them have; and experts may be split over data-parallel ranks too.
    """
    if family.etp_dp:
        return _check_etp_dp(family, tp, etp, replicas)
    own = tp if family.etp else 1
    if etp is not None and etp not in (1, tp):
        raise PlanError(f"etp={etp}: experts are split over all tp={tp} ranks or not at all; legal etp: {_both(tp)}")
    if etp is not None and etp != own:
        raise PlanError(f"etp={etp} with tp={tp} needs a family with etp={tp == etp}, this one has etp={family.etp}")
    if family.etp or family.sp:
        return own
    if tp == 1 and family.workload is Workload.TRAIN:
        raise PlanError("a family of etp=False with tp=1: nothing splits experts; use Family(etp=True), or --sp")
    if own == tp:
        return own
    if family.workload is Workload.TRAIN:
        raise PlanError(f"etp=1 with tp={tp}: each rank routes its own tokens, which takes --sp; or use --etp {tp}")
    if not family.ep:
        raise PlanError(
            f"etp=1 with tp={tp} and ep=1: every rank would run all experts on the same tokens; "
            f"deal them out with --ep {tp}, or split them with --etp {tp}"
        )
    return own


def _check_etp_dp(family: Family, tp: int, etp: int | None, replicas: int) -> int:
    """Experts split over tp and over ranks of data parallelism, which gather their tokens."""
    legal = [tp * d for d in divisors(replicas)]
    if family.workload is Workload.TRAIN:
        raise NotBuiltError(f"--etp {etp} above --tp {tp} in training: not modelled; legal etp: {_both(tp)}")
    if not family.etp or family.ep or family.sp:
        what = "--sp" if family.sp else "--ep above 1"
        raise NotBuiltError(
            f"--etp {etp} above --tp {tp} with {what}: not modelled; what is: all of dp's experts split (--ep 1), or "
            f"dealt out whole (--etp 1 or {tp}, with --ep)"
        )
    if etp is None or etp <= tp or etp not in legal:
        raise PlanError(
            f"etp={etp}: experts are split over tp={tp} ranks, over these times ranks of dp={replicas}, or not at "
            f"all; legal etp: {', '.join(map(str, sorted({1, *legal})))}"
        )
    return etp


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
    if family.exchange not in EXCHANGES:
        raise UnknownNameError.of("exchange of rows", family.exchange, EXCHANGES)
    _check_gathering(family)
    unused = list(_exchange_options(family))
    if unused and not family.ep:
        raise PlanError(f"{', '.join(unused)}: without expert parallelism no rows travel; use --ep above 1")


def _check_gathering(family: Family) -> None:
    """Gathered tokens keep their type and go to all ranks; gradients of gathers are not modelled."""
    if family.exchange == "alltoall":
        return
    if family.workload is Workload.TRAIN:
        raise NotBuiltError(f"ep_exchange={family.exchange} in training: not modelled; what is: alltoall")
    sent = [text for text in _exchange_options(family) if text.startswith(("dispatch_dtype", "routing_nodes"))]
    if sent:
        raise PlanError(f"{', '.join(sent)}: of rows that are sent, and ep_exchange={family.exchange} sends none")


def _exchange_options(family: Family) -> Iterator[str]:
    if family.imbalance:
        yield "expert_imbalance"
    if family.dispatch_dtype != "same":
        yield f"dispatch_dtype={family.dispatch_dtype}"
    if family.routing_nodes:
        yield f"routing_nodes={family.routing_nodes}"
    if family.exchange != "alltoall":
        yield f"ep_exchange={family.exchange}"


def expert_options(family: Family, ep: int) -> list[str]:
    """Return what a plan asks of experts, as people write it: all of it needs a model that has some."""
    asked = [
        (f"ep={ep}", ep > 1),
        ("etp=1", not family.etp),
        ("etp above tp", family.etp_dp),
        ("capacity_factor", family.capacity),
    ]
    return [text for text, given in asked if given] + list(_exchange_options(family))
