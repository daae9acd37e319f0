"""A plan (parallel degrees, batches, policy), its structural family, and many plans as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .degrees import divisors
from .degrees import nearest as _near
from .errors import NotBuiltError, PlanError, UnknownNameError
from .experts_plan import check_ep, check_etp, check_exchange, check_load
from .graph import Workload
from .types import DType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Mesh axes as symbols of a lowered graph, innermost first; `dp` is what is left of data parallelism outside `ep`.
AXES = ("tp", "cp", "ep", "dp", "pp")
ORDER = "-".join(AXES)
SCHEDULES = ("1f1b", "gpipe")
# How blocks fall on pipeline stages; a list of numbers is a layout too.
LAYOUTS = ("auto", "even", "balanced")
CP_METHODS = ("allgather", "ring", "ulysses")
RECOMPUTE = ("none", "selective", "full")
# Symbols of a lowered graph that are no degrees: rows an expert has room for, and rows of the busiest rank, each over
# the mean.
CAPACITY, IMBALANCE = "cf", "imb"
# Far above any machine; it keeps every search over divisors short and every product exact.
LARGEST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What changes the structure of the graph; inside a family, degrees and batches are numbers.

    Of experts: `ep` deals them out; `etp` splits them inside over tp, else they are whole, and with `ep` dealt out over
    tp too; `capacity` and `imbalance` bring in the numbers of that name; `dispatch_dtype` is `same` or `fp8`;
    `routing_nodes` limits the nodes that a token is sent to.
    """

    workload: Workload = Workload.TRAIN
    sp: bool = False
    zero: int = 0
    recompute: str = "none"
    tp_plan: str = "megatron"
    cp: str = "none"
    ep: bool = False
    pp: bool = False
    schedule: str = "1f1b"
    pp_layout: str = "auto"
    order: str = ORDER
    etp: bool = True
    capacity: bool = False
    imbalance: bool = False
    dispatch_dtype: str = "same"
    routing_nodes: int = 0
    grad_dtype: DType = DType.FP32
    fused: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan, checked: the degrees multiply to the number of GPUs and the batch divides.

    `micro_batch` is in sequences a replica, `global_batch` in sequences a step, `kv_len` the tokens already cached
    in decode. For inference the global batch is `micro_batch * dp`. `etp` is 1 or tp; `capacity_factor` the rows that
    an expert has room for over their mean number, None for as many as come; `expert_imbalance` the rows of the busiest
    expert-parallel rank over the mean.
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
    capacity_factor: float | None = None
    expert_imbalance: float = 1.0
    family: Family = Family()

    @property
    def inner_ep(self) -> int:
        """The part of `ep` that lies inside dp: whole experts are dealt out over tp first."""
        return self.ep // self.tp if self.ep > 1 and not self.family.etp else self.ep

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches a replica runs in one step."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def mesh(self) -> Mapping[str, int]:
        """The degree of each mesh axis; `dp` is what is left of data parallelism outside `ep`."""
        inner = self.inner_ep
        return {"tp": self.tp, "cp": self.cp, "ep": inner, "dp": self.dp // inner, "pp": self.pp}

    @property
    def degrees(self) -> str:
        """The degrees as people write them: `tp8 dp8`."""
        pairs = (
            ("tp", self.tp), ("pp", self.pp), ("vpp", self.vpp), ("cp", self.cp), ("ep", self.ep), ("dp", self.dp),
        )  # fmt: skip
        whole = " etp1" if self.tp > 1 and not self.family.etp else ""
        return " ".join(f"{n}{d}" for n, d in pairs if d > 1 or n in ("tp", "dp")) + whole


def make_plan(
    *,
    num_gpus: int,
    seq_len: int,
    family: Family,
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
    capacity_factor: float | None = None,
    expert_imbalance: float = 1.0,
) -> Plan:
    """Check and complete a plan: `dp` follows from the other degrees, `global_batch` defaults to one micro-batch each.

    PlanError shows every factor and the nearest legal values; NotBuiltError refuses what this version cannot model.

    >>> make_plan(num_gpus=64, seq_len=8192, family=Family(), tp=8, global_batch=64).dp
    8
    """
    given = {
        "gpus": num_gpus, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "vpp": vpp,
        "etp": tp if etp is None else etp, "mbs": micro_batch,
        "seq": seq_len,
    }  # fmt: skip
    _refuse_unbuilt(given, family)
    _sensible({**given, "dp": 1 if dp is None else dp, "gbs": 1 if global_batch is None else global_batch})
    if not 0 <= kv_len <= LARGEST:
        raise PlanError(f"kv={kv_len}: the cached context is 0 to {LARGEST} tokens")
    inside = check_etp(family, tp, etp)
    check_exchange(family)
    check_load(family, ep, capacity_factor, expert_imbalance)
    replicas = _replicas(num_gpus, (tp, pp, cp), dp)
    check_ep(family, tp, ep, replicas)
    batch = micro_batch * replicas if global_batch is None else global_batch
    _check_batch(batch, micro_batch, replicas, family)
    _check_pipeline(batch // (micro_batch * replicas), pp, vpp, family)
    return Plan(
        num_gpus=num_gpus, tp=tp, pp=pp, cp=cp, ep=ep, etp=inside, dp=replicas, vpp=vpp, micro_batch=micro_batch,
        global_batch=batch, seq_len=seq_len, kv_len=kv_len, capacity_factor=capacity_factor,
        expert_imbalance=expert_imbalance, family=family,
    )  # fmt: skip


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


def _check_pipeline(num_micro_batches: int, pp: int, vpp: int, family: Family) -> None:
    """Interleaving deals micro-batches out in rounds of one a stage."""
    if vpp > 1 and family.schedule != "1f1b":
        raise PlanError(f"vpp={vpp} interleaves the 1f1b schedule, not {family.schedule}; legal vpp: 1")
    if vpp > 1 and pp == 1:
        raise PlanError(f"vpp={vpp} interleaves pipeline stages, pp=1 has none; legal vpp: 1, or pp of 2 and more")
    if vpp > 1 and num_micro_batches % pp:
        below, above = num_micro_batches // pp * pp, (num_micro_batches // pp + 1) * pp
        nearest = " or ".join(str(n) for n in (below, above) if n)
        raise PlanError(
            f"vpp={vpp} needs micro-batches in rounds of pp={pp}; gbs / (mbs x dp) = {num_micro_batches} is no "
            f"multiple of {pp}; nearest: {nearest} micro-batches, or vpp=1"
        )


def _sensible(given: Mapping[str, int]) -> None:
    wrong = [f"{name}={value}" for name, value in given.items() if not 1 <= value <= LARGEST]
    if wrong:
        raise PlanError(f"{', '.join(wrong)}: degrees, batches and lengths are 1 to {LARGEST}")


def _refuse_unbuilt(given: Mapping[str, int], family: Family) -> None:
    """Refuse what is not modelled yet; a flag is never ignored."""
    wanted: list[str] = []
    if given["cp"] > 1 and family.workload is Workload.DECODE:
        wanted.append(f"--cp {given['cp']} (context parallelism in decode)")
    if family.schedule not in SCHEDULES:
        raise UnknownNameError.of("pipeline schedule", family.schedule, SCHEDULES)
    if sorted(family.order.split("-")) != sorted(AXES):
        raise PlanError(f"order={family.order} must name each of {', '.join(AXES)} once, innermost first: {ORDER}")
    if family.pp_layout not in LAYOUTS and not all(n.strip().isdigit() for n in family.pp_layout.split(",")):
        raise UnknownNameError.of("pipeline layout", family.pp_layout, (*LAYOUTS, "layers a stage as 9,8,8,7"))
    if family.zero not in range(4):
        raise PlanError(f"zero={family.zero}; allowed: 0, 1, 2, 3")
    if family.recompute not in RECOMPUTE:
        raise UnknownNameError.of("recompute policy", family.recompute, RECOMPUTE)
    if family.workload is not Workload.TRAIN and (family.zero or family.recompute != "none"):
        raise PlanError(f"zero and recompute are of training: {family.workload} keeps no gradients and no activations")
    if family.workload is Workload.DECODE and family.sp:
        raise PlanError("sp splits the sequence, of which a decode step has one token: leave it out")
    if wanted:
        raise NotBuiltError(
            f"{', '.join(wanted)}: not modelled in this version; what is: "
            "--tp, --sp, --cp, --ep, --dp, --pp, --vpp, --zero, --recompute"
        )


@dataclass(frozen=True, slots=True)
class PlanTable:
    """Many plans of one family as equally long columns; a single plan is a table of one row."""

    family: Family
    num_gpus: NDArray[np.float64]
    tp: NDArray[np.float64]
    dp: NDArray[np.float64]
    micro_batch: NDArray[np.float64]
    num_micro_batches: NDArray[np.float64]
    seq_len: NDArray[np.float64]
    kv_len: NDArray[np.float64]
    cp: NDArray[np.float64] | None = None
    ep: NDArray[np.float64] | None = None
    pp: NDArray[np.float64] | None = None
    vpp: NDArray[np.float64] | None = None
    capacity_factor: NDArray[np.float64] | None = None
    expert_imbalance: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanTable:
        """Build the columns; PlanError when the plans are of several families."""
        import numpy as np

        families = {p.family for p in plans}
        if len(families) != 1:
            raise PlanError(f"a table holds plans of one family, these are of {len(families)}")

        def column(name: str) -> NDArray[np.float64]:
            return np.array([getattr(p, name) for p in plans], dtype=np.float64)

        return cls(
            plans[0].family, column("num_gpus"), column("tp"), column("dp"), column("micro_batch"),
            column("num_micro_batches"), column("seq_len"), column("kv_len"),
            column("cp"), column("ep"), column("pp"), column("vpp"),
            column("capacity_factor") if plans[0].family.capacity else None,
            column("expert_imbalance") if plans[0].family.imbalance else None,
        )  # fmt: skip

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.tp)

    @property
    def columns(self) -> Mapping[str, NDArray[np.float64]]:
        """What each symbol of a lowered graph is, plan by plan."""
        ones = self.tp * 0.0 + 1.0
        cp, ep, pp = (ones if c is None else c for c in (self.cp, self.ep, self.pp))
        if not self.family.etp:
            ep = (ep > 1) * (ep / self.tp) + (ep <= 1)
        degrees = {"tp": self.tp, "cp": cp, "ep": ep, "dp": self.dp / ep, "pp": pp}
        load = {CAPACITY: self.capacity_factor, IMBALANCE: self.expert_imbalance}
        given = {name: column for name, column in load.items() if column is not None}
        return {**degrees, "mbs": self.micro_batch, "seq": self.seq_len, "kv": self.kv_len, **given}

    @property
    def stages(self) -> NDArray[np.float64]:
        """Pipeline stages of each plan and chunks of each stage, as two rows."""
        import numpy as np

        return np.stack([np.ones(len(self)) if c is None else c for c in (self.pp, self.vpp)])

    @property
    def global_batch(self) -> NDArray[np.float64]:
        """Sequences a step."""
        return self.num_micro_batches * self.micro_batch * self.dp


__all__ = [
    "AXES", "CP_METHODS", "LAYOUTS", "ORDER", "RECOMPUTE", "SCHEDULES", "Family", "Plan", "PlanTable", "divisors",
    "make_plan",
]  # fmt: skip
