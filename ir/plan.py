"""A plan (parallel degrees, batches, policy), checked and completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .degrees import divisors
from .degrees import nearest as _near
from .errors import NotBuiltError, PlanError
from .experts_plan import check_ep, check_etp, check_exchange, check_load
from .family import (
    ATTENTION,
    AXES,
    CAPACITY,
    CP_METHODS,
    IMBALANCE,
    KERNELS,
    LAYOUTS,
    OFFLOAD,
    ORDER,
    RECOMPUTE,
    RESHARD,
    Family,
    check_family,
    check_offload,
    check_recompute,
    rank_order,
)  # fmt: skip
from .graph import Workload
from .pipelines import SCHEDULES, check_schedule, chunks_of
from .plan_table import PlanTable
from .structure import RULES, Defaults, check_structure

# Far above any machine; it keeps every search over divisors short and every product exact.
LARGEST = 10**9
_STRUCTURAL = tuple(rule.degree for rule in RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan, checked: the degrees multiply to the number of GPUs and the batch divides.

    `micro_batch` is in sequences a replica, `global_batch` in sequences a step, `kv_len` the tokens already cached
    in decode. For inference the global batch is `micro_batch * dp`. Of the `dp` replicas `dp_shard` neighbours share
    states in shards when the family is hybrid (`hsdp`). `etp` is 1 or tp, or in inference a multiple of it inside of
    tp x dp; `capacity_factor` the rows that an expert has room for over their mean number, None for as many as come;
    `expert_imbalance` the rows of the busiest expert-parallel rank over the mean.
    """

    num_gpus: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    dp: int = 1
    vpp: int = 1
    micro_batch: int = 1
    global_batch: int = 1
    seq_len: int = 2048
    kv_len: int = 0
    cp_ulysses: int = 1
    dp_shard: int = 1
    capacity_factor: float | None = None
    expert_imbalance: float = 1.0
    family: Family = field(default_factory=Family)

    def __post_init__(self) -> None:
        """Refuse degrees that the graph of the family is not cut over."""
        check_structure(self.family, {rule: getattr(self, rule) for rule in _STRUCTURAL})

    @property
    def inner_ep(self) -> int:
        """The part of `ep` (or of `etp`, where that is above tp) that lies inside dp: experts lie over tp first."""
        return _inner_ep(self.ep, self.tp, self.etp, self.family)

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches a replica runs in one step."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def mesh(self) -> Mapping[str, int]:
        """The degree of each mesh axis; `cp` is what is left outside `up`, `dp` outside `ep` and `fsdp`."""
        inner, left = self.cp_ulysses, self.dp // (self.inner_ep * self.dp_shard)
        return {
            "tp": self.tp, "up": inner, "cp": self.cp // inner, "ep": self.inner_ep, "fsdp": self.dp_shard,
            "dp": left, "pp": self.pp,
        }  # fmt: skip

    @property
    def degrees(self) -> str:
        """The degrees as people write them: `tp8 dp8`."""
        pairs = (
            ("tp", self.tp), ("pp", self.pp), ("vpp", self.vpp), ("cp", self.cp), ("ep", self.ep),
            ("fsdp", self.dp_shard), ("dp", self.dp),
        )  # fmt: skip
        apart = (self.tp > 1 and not self.family.etp) or self.family.etp_dp
        whole = f" etp{self.etp}" if apart else ""
        return " ".join(f"{n}{d}" for n, d in pairs if d > 1 or n in ("tp", "dp")) + whole


def make_plan(
    *,
    num_gpus: int,
    seq_len: int,
    family: Family | Defaults | None = None,
    tp: int = 1,
    pp: int = 1,
    cp: int = 1,
    ep: int = 1,
    etp: int | None = None,
    dp: int | None = None,
    vpp: int = 1,
    micro_batch: int = 1,
    global_batch: int | None = None,
    kv_len: int = 0,
    cp_ulysses: int = 1,
    dp_shard: int | None = None,
    capacity_factor: float | None = None,
    expert_imbalance: float = 1.0,
) -> Plan:
    """Check and complete a plan: `dp` follows from the other degrees, `global_batch` defaults to one micro-batch each.

    A family that is given is taken as it is, and refused where its graph is not cut over a degree above one. Of
    `Defaults` the structure follows from the degrees, and what they leave open is as the command line has it.

    PlanError shows every factor and the nearest legal values; NotBuiltError refuses what this version cannot model.

    >>> plan = make_plan(num_gpus=64, seq_len=8192, tp=8, cp=2, global_batch=64, family=Defaults(kernels="fused"))
    >>> plan.dp, plan.family.sp, plan.family.cp
    (4, True, 'allgather')
    """
    if not isinstance(family, Family):
        if family is None or (family.stack is None and family.kernels is None):
            raise PlanError(
                "kernels follow from the software that runs: give family=Defaults(stack=system.stack), "
                "Defaults(kernels='eager'), or a Family"
            )
        family = family.family(
            seq_len=seq_len, tp=tp, pp=pp, cp=cp, ep=ep, etp=etp, vpp=vpp, cp_ulysses=cp_ulysses, dp_shard=dp_shard,
            capacity_factor=capacity_factor, expert_imbalance=expert_imbalance,
        )  # fmt: skip
    return _completed(
        family, num_gpus=num_gpus, seq_len=seq_len, tp=tp, pp=pp, cp=cp, ep=ep, etp=etp, dp=dp, vpp=vpp,
        micro_batch=micro_batch, global_batch=global_batch, kv_len=kv_len, cp_ulysses=cp_ulysses,
        dp_shard=1 if dp_shard is None else dp_shard, capacity_factor=capacity_factor,
        expert_imbalance=expert_imbalance,
    )  # fmt: skip


def _completed(
    family: Family, *, num_gpus: int, seq_len: int, tp: int, pp: int, cp: int, ep: int, etp: int | None,
    dp: int | None, vpp: int, micro_batch: int, global_batch: int | None, kv_len: int, cp_ulysses: int, dp_shard: int,
    capacity_factor: float | None, expert_imbalance: float,
) -> Plan:  # fmt: skip
    """Return the plan of a family, checked."""
    given = {
        "gpus": num_gpus, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "vpp": vpp,
        "etp": 1 if etp is None else etp, "mbs": micro_batch,
        "seq": seq_len, "dp-shard": dp_shard,
    }  # fmt: skip
    _check_family(given, family)
    _sensible({**given, "dp": 1 if dp is None else dp, "gbs": 1 if global_batch is None else global_batch}, kv_len)
    _check_ulysses(cp, cp_ulysses, family)
    check_structure(family, {"cp": cp, "cp_ulysses": cp_ulysses, "ep": ep, "pp": pp, "dp_shard": dp_shard})
    replicas = _replicas(num_gpus, (tp, pp, cp), dp)
    inside = check_etp(family, tp, etp, replicas)
    check_exchange(family)
    check_load(family, ep, capacity_factor, expert_imbalance)
    check_ep(family, tp, ep, replicas)
    _check_shard(dp_shard, replicas // _inner_ep(ep, tp, inside, family), family)
    batch = micro_batch * replicas if global_batch is None else global_batch
    _check_batch(batch, micro_batch, replicas, family)
    chunks = chunks_of(family.schedule, vpp)
    check_schedule(family.schedule, batch // (micro_batch * replicas), pp, chunks)
    return Plan(
        num_gpus=num_gpus, tp=tp, pp=pp, cp=cp, ep=ep, etp=inside, dp=replicas, vpp=chunks, micro_batch=micro_batch,
        global_batch=batch, seq_len=seq_len, kv_len=kv_len, cp_ulysses=cp_ulysses, dp_shard=dp_shard,
        capacity_factor=capacity_factor, expert_imbalance=expert_imbalance, family=family,
    )  # fmt: skip


def _inner_ep(ep: int, tp: int, etp: int, family: Family) -> int:
    if family.etp_dp:
        return etp // tp
    return ep // tp if ep > 1 and not family.etp else ep


def _check_family(given: Mapping[str, int], family: Family) -> None:
    """Check the family, by itself and with the degrees given."""
    _refuse_unbuilt(given, family)
    check_family(family)
    if family.async_tp and given["tp"] > 1 and not family.sp:
        raise PlanError("async_tp hides the gathers and scatters of sp, which is off: add --sp or leave --async-tp out")


def _check_ulysses(cp: int, inner: int, family: Family) -> None:
    """Of `cp` ranks, groups of `inner` exchange sequence for heads, and the others pass or gather keys and values."""
    if inner < 1 or cp % inner:
        raise PlanError(f"cp_ulysses={inner} does not divide cp={cp}; legal cp_ulysses: {_near(inner, divisors(cp))}")
    if inner > 1 and not (family.usp and family.cp in ("ring", "allgather")):
        raise PlanError(f"cp_ulysses={inner} lies inside --cp-method ring or allgather, not {family.cp}")


def _check_shard(dp_shard: int, outside: int, family: Family) -> None:
    """The shard group lies inside what is left of data parallelism outside `ep`."""
    if dp_shard > 1 and not family.hsdp:
        raise PlanError(f"dp-shard={dp_shard} needs a hybrid family: Family(hsdp=True)")
    if family.hsdp and not family.zero:
        raise PlanError(f"dp-shard={dp_shard} shards states, and zero=0 shards none; allowed: --zero 1, 2, 3")
    if outside % dp_shard:
        raise PlanError(
            f"dp-shard={dp_shard} lies inside data parallelism and does not divide dp/ep={outside}; "
            f"legal dp-shard: {_near(dp_shard, divisors(outside))}"
        )


def _replicas(num_gpus: int, model: tuple[int, int, int], dp: int | None) -> int:
    """Return the data-parallel degree that tp, pp and cp leave; PlanError when it is no whole one, or not `dp`."""
    tp, pp, cp = model
    ranks = tp * pp * cp
    if num_gpus % ranks:
        raise PlanError(
            f"tp={tp} x pp={pp} x cp={cp} = {ranks} does not divide gpus={num_gpus}; "
            f"legal products: {_near(ranks, divisors(num_gpus))}"
        )
    replicas = num_gpus // ranks
    if dp is not None and dp != replicas:
        raise PlanError(
            f"tp={tp} x pp={pp} x cp={cp} x dp={dp} = {ranks * dp}, not gpus={num_gpus}; "
            f"with these degrees dp={replicas}, or use --gpus {ranks * dp}"
        )
    return replicas


def _check_batch(batch: int, micro_batch: int, dp: int, family: Family) -> None:
    step = micro_batch * dp
    if batch % step:
        below, above = batch // step * step, (batch // step + 1) * step
        nearest = " or ".join(f"--gbs {b}" for b in (below, above) if b > 0)
        raise PlanError(f"gbs={batch} is not a multiple of mbs={micro_batch} x dp={dp} = {step}; nearest: {nearest}")
    if family.workload is not Workload.TRAIN and batch != step:
        raise PlanError(f"{family.workload} runs one batch of mbs={micro_batch} x dp={dp} = {step}, not gbs={batch}")


def _sensible(given: Mapping[str, int], kv_len: int) -> None:
    wrong = [f"{name}={value}" for name, value in given.items() if not 1 <= value <= LARGEST]
    if wrong:
        raise PlanError(f"{', '.join(wrong)}: degrees, batches and lengths are 1 to {LARGEST}")
    if not 0 <= kv_len <= LARGEST:
        raise PlanError(f"kv={kv_len}: the cached context is 0 to {LARGEST} tokens")


def _refuse_unbuilt(given: Mapping[str, int], family: Family) -> None:
    """Refuse what is not modelled yet; a flag is never ignored."""
    wanted: list[str] = []
    if given["cp"] > 1 and family.workload is Workload.DECODE:
        wanted.append(f"--cp {given['cp']} in decode: not modelled in this version; what is: --tp, --ep, --dp, --pp")
    if given["pp"] > 1 and family.recompute_every > 1:
        wanted.append(
            f"--recompute-every with --pp {given['pp']} (groups of layers inside of stages): not modelled in this "
            "version; what is: --recompute full of all layers, --recompute-layers, --recompute-modules, --recompute ops"
        )
    if wanted:
        raise NotBuiltError("; ".join(wanted))


__all__ = [
    "ATTENTION", "AXES", "CAPACITY", "CP_METHODS", "IMBALANCE", "KERNELS", "LAYOUTS", "OFFLOAD", "ORDER", "RECOMPUTE",
    "RESHARD", "SCHEDULES", "Defaults", "Family", "Plan", "PlanTable", "check_family", "check_offload",
    "check_recompute", "divisors", "make_plan", "rank_order",
]  # fmt: skip
