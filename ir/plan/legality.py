"""Which words of a plan are legal beside one another; `cases` has what numbers ask of these and of one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import NotBuiltError, PlanError, UnknownNameError
from ..graph import Workload
from ..placement import AXES
from ..schedules.registry import schedule_kind
from ..units import is_digits
from .experts.words import check_placed
from .layout.ranks import ORDER, rank_order, shapes_of
from .optimizer_states import check_states
from .precision import check_precision
from .training.adapters import check_adapters
from .words import (
    CP_METHODS,
    LAYOUTS,
    OFFLOAD,
    PLAIN,
    RECOMPUTE,
    SERVING_KERNELS,
    WORDS,
    Family,
)

# What is said of rows that travel to their experts.
_TRAVEL = tuple(row for row in WORDS.values() if row.word.needs == "ep")

# Each module of these is in the graph; no layer is as wide as this.
_MOST = {"mtp_num_layers": 64, "lora_rank": 1 << 16}


def check_family(family: Family) -> None:
    """Raise UnknownNameError for a word that a family does not know, PlanError for options that do not go together."""
    # Raise UnknownNameError for a value that is none of the choices of its word.
    for row in WORDS.values():
        if row.word.noun and getattr(family, row.field) not in row.word.choices:
            raise UnknownNameError.of(row.word.noun, getattr(family, row.field), row.word.choices)
    schedule_kind(family.schedule)
    if family.pp_layout not in LAYOUTS and not all(is_digits(n.strip()) for n in family.pp_layout.split(",")):
        raise UnknownNameError.of("pipeline layout", family.pp_layout, (*LAYOUTS, "layers a stage as 9,8,8,7"))
    _check_workload(family)
    check_recompute(family.recompute, family.recompute_modules, family.recompute_layers, family.recompute_every)
    _check_saved(family)
    check_offload(family.offload)
    if family.offload_modules and "activations" not in family.offload:
        named = ",".join(family.offload_modules)
        raise PlanError(f"offload modules {named} say which activations go to the host: use --offload activations")
    _check_data(family)
    check_precision(family)
    check_adapters(family)
    for name, most in _MOST.items():
        if getattr(family, name) > most:
            raise PlanError(f"{name.replace('_', '-')}={getattr(family, name)}: at most {most:,}")
    if family.mtp_num_layers and family.lora_rank:
        raise NotBuiltError("mtp-num-layers with --lora-rank: not built in this version; use one of them")
    check_states(*family.states)
    if not set(family.order.split("-")) <= set(AXES) or sorted(rank_order(family.order)) != sorted(AXES):
        named = ", ".join(ORDER.split("-"))
        raise PlanError(f"order={family.order} must name each of {named} once, innermost first: {ORDER}")
    shapes_of(family.placement)
    if family.recompute == "none" and not family.early_stop:
        raise PlanError(
            "no-early-stop says how much is recomputed, and recompute=none: use --recompute, or leave it out"
        )


def _check_workload(family: Family) -> None:
    """Refuse what inference has no use for; a flag is never ignored."""
    if family.mla != "latent" and family.workload is not Workload.DECODE:
        raise PlanError(f"mla={family.mla} says how a decode step attends, and this is {family.workload}: leave it out")
    if family.workload is Workload.TRAIN:
        return
    given = ", ".join(_of_training(family))
    if given:
        raise PlanError(
            f"{given}: of training only; {family.workload} keeps no gradients and no activations: leave it out"
        )
    if family.workload is Workload.DECODE and (family.sp or family.async_tp):
        what = "sp" if family.sp else "async-tp"
        raise PlanError(f"{what} splits the sequence, of which a decode step has one token: leave it out")
    if family.workload is Workload.DECODE and (family.usp or family.cp not in ("none", CP_METHODS[0])):
        raise PlanError(
            "cp-method and cp-ulysses say how a sequence attends, and a decode step has one token, whose cache --cp "
            "spreads: leave them out"
        )


def _of_training(family: Family) -> Iterator[str]:
    """What a family says of gradients, states and kept activations."""
    if family.pipeline.split_backward:
        yield f"schedule={family.schedule}"
    if family.kernels not in (*SERVING_KERNELS, "plain"):
        yield f"kernels={family.kernels}"
    for name, row in WORDS.items():
        if row.word.of_training and (value := getattr(family, row.field)) != getattr(PLAIN, row.field):
            yield f"{name.replace('_', '-')}={row.written(value)}"
    yield from ["dp-shard"] if family.hsdp else []


def _check_data(family: Family) -> None:
    """Refuse what a ZeRO stage has no use for; a flag is never ignored."""
    if family.zero not in range(4):
        raise PlanError(f"zero={family.zero}; allowed: 0, 1, 2, 3")
    if "params" in family.offload and family.zero != 3:
        raise PlanError(f"offload of params goes with zero=3, where they lie in shards, not zero={family.zero}")
    if family.reshard != "layer" and family.zero != 3:
        raise PlanError(
            f"reshard={family.reshard} says how long ZeRO 3 keeps gathered parameters, and zero={family.zero} "
            "gathers none: use --zero 3, or leave it out"
        )


def check_recompute(policy: str, modules: Sequence[str] = (), layers: int = 0, every: int = 1) -> None:
    """Check what is recomputed; UnknownNameError for a policy, PlanError for options that do not go together."""
    if policy not in RECOMPUTE:
        raise UnknownNameError.of("recompute policy", policy, RECOMPUTE)
    if layers < 0 or every < 1:
        raise PlanError(f"recompute layers={layers} every={every}: layers are 1 or more (0: all), every is 1 or more")
    if modules and policy != "selective":
        named = ",".join(modules)
        raise PlanError(f"recompute modules {named} go with the policy 'selective', not '{policy}'")
    if (layers and policy not in ("full", "save")) or (every > 1 and policy != "full"):
        raise PlanError(f"recompute layers and every go with the policy 'full', layers with 'save' too, not '{policy}'")
    if layers and every > 1:
        raise PlanError(f"recompute layers={layers} or every={every}, not both: the first layers, or groups of layers")


def _check_saved(family: Family) -> None:
    """Refuse names of results without the policy that keeps them, and a list of layers that is none."""
    chunks, policy = family.recompute_by_chunk, family.recompute
    if family.recompute_save and policy != "save":
        raise PlanError(f"recompute save {','.join(family.recompute_save)} goes with the policy 'save', not '{policy}'")
    if family.recompute_save_rest and (policy != "save" or not (family.recompute_layers or chunks)):
        named = ",".join(family.recompute_save_rest)
        raise PlanError(f"recompute save-rest {named}: of layers behind --recompute-layers, with --recompute save")
    if not chunks:
        return
    if not all(is_digits(part.strip()) for part in chunks.split(",")) or not any(map(int, chunks.split(","))):
        raise PlanError(f"recompute by chunk {chunks!r}: layers of each chunk, as 4,3,1,0, not all of them 0")
    if family.recompute_layers or policy not in ("full", "save"):
        raise PlanError(
            f"recompute by chunk {chunks} goes with the policies 'full' and 'save', without --recompute-layers"
        )


def check_offload(what: Sequence[str]) -> None:
    """Check what lies in host memory; UnknownNameError, NotBuiltError or PlanError for what cannot."""
    for name in what:
        if name == "gradients":
            raise NotBuiltError(
                "--offload gradients: sums of gradients stay on the device; what can go: " + ", ".join(OFFLOAD)
            )
        if name not in OFFLOAD:
            raise UnknownNameError.of("thing to offload", name, OFFLOAD)
    if "params" in what and "optimizer" not in what:
        raise PlanError("offload of params goes with that of the optimizer, which then updates them where they lie")


def check_exchange(family: Family) -> None:
    """Raise PlanError for options of the exchange of rows that make no sense, or without expert parallelism."""
    if family.routing_nodes < 0:
        raise PlanError(f"routing_nodes={family.routing_nodes}: nodes a token is sent to at most, 0 for no limit")
    check_placed(family, family.workload is not Workload.TRAIN)
    if family.imbalance and family.expert_popularity:
        raise PlanError("expert_imbalance and expert_popularity both say the load of the busiest rank: give one")
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
    placed = ("expert_imbalance", "ep_exchange", "expert_popularity", "eplb", "redundant_experts")
    sent = [text for text in _exchange_options(family) if not text.startswith(placed)]
    if sent:
        raise PlanError(f"{', '.join(sent)}: of rows that are sent, and ep_exchange={family.exchange} sends none")


def _exchange_options(family: Family) -> Iterator[str]:
    if family.imbalance:
        yield "expert_imbalance"
    for row in _TRAVEL:
        if (value := getattr(family, row.field)) != row.default:
            yield f"{row.name}={row.written(value)}"


def expert_options(family: Family, ep: int) -> list[str]:
    """Return what a plan asks of experts, as people write it: all of it needs a model that has some."""
    asked = [
        (f"ep={ep}", ep > 1),
        ("etp=1", not family.etp),
        ("etp above tp", family.etp_dp),
        ("capacity_factor", family.capacity),
    ]
    return [text for text, given in asked if given] + list(_exchange_options(family))
