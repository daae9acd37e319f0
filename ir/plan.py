"""A plan (parallel degrees, batches, policy), its structural family, and many plans as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

from .errors import NotBuiltError, PlanError, UnknownNameError
from .graph import Workload
from .types import DType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Mesh axes as symbols of a lowered graph, innermost first. `up` is the part of context parallelism that exchanges
# sequence for heads, `fsdp` the replicas that share their states in shards where whole groups of them are replicas of
# one another; `cp` and `dp` are what is left.
AXES = ("tp", "up", "cp", "ep", "fsdp", "dp", "pp")
ORDER = "tp-cp-ep-dp-pp"
SCHEDULES = ("1f1b", "gpipe")
# How blocks fall on pipeline stages; a list of numbers is a layout too.
LAYOUTS = ("auto", "even", "balanced")
CP_METHODS = ("allgather", "ring", "ulysses")
OFFLOAD = ("optimizer", "activations", "params")
RECOMPUTE = ("none", "selective", "ops", "full")
_OFFLOADED = ", ".join(OFFLOAD)
RESHARD = ("layer", "microbatch", "step")
KERNELS = ("eager", "torch", "fused")
ATTENTION = ("flash", "unfused")
# Far above any machine; it keeps every search over divisors short and every product exact.
LARGEST = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What changes the structure of the graph; inside a family, degrees and batches are numbers.

    `kernels` says what is kept and what is written in place: as the model's own code does under autograd with a loss in
    one kernel (`eager`) or in PyTorch's two steps (`torch`), or as hand-fused training kernels do (`fused`).
    """

    workload: Workload = Workload.TRAIN
    sp: bool = False
    zero: int = 0
    recompute: str = "none"
    recompute_modules: tuple[str, ...] = ()
    recompute_layers: int = 0
    recompute_every: int = 1
    early_stop: bool = True
    offload: tuple[str, ...] = ()
    tp_plan: str = "megatron"
    cp: str = "none"
    ep: bool = False
    pp: bool = False
    schedule: str = "1f1b"
    pp_layout: str = "auto"
    order: str = ORDER
    grad_dtype: DType = DType.FP32
    fused: bool = True
    replicate_unknown: bool = False
    async_tp: bool = False
    usp: bool = False
    hsdp: bool = False
    reshard: str = "layer"
    reduce_dtype: DType | None = None
    kernels: str = "eager"
    attention: str = "flash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan, checked: the degrees multiply to the number of GPUs and the batch divides.

    `micro_batch` is in sequences a replica, `global_batch` in sequences a step, `kv_len` the tokens already cached
    in decode. For inference the global batch is `micro_batch * dp`. Of the `dp` replicas `dp_shard` neighbours share
    states in shards when the family is hybrid (`hsdp`).
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
    family: Family = Family()

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches a replica runs in one step."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def mesh(self) -> Mapping[str, int]:
        """The degree of each mesh axis; `cp` is what is left outside `up`, `dp` outside `ep` and `fsdp`."""
        inner, left = self.cp_ulysses, self.dp // (self.ep * self.dp_shard)
        return {
            "tp": self.tp, "up": inner, "cp": self.cp // inner, "ep": self.ep, "fsdp": self.dp_shard, "dp": left,
            "pp": self.pp,
        }  # fmt: skip

    @property
    def degrees(self) -> str:
        """The degrees as people write them: `tp8 dp8`."""
        pairs = (
            ("tp", self.tp), ("pp", self.pp), ("vpp", self.vpp), ("cp", self.cp), ("ep", self.ep),
            ("fsdp", self.dp_shard), ("dp", self.dp),
        )  # fmt: skip
        return " ".join(f"{n}{d}" for n, d in pairs if d > 1 or n in ("tp", "dp"))


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
    cp_ulysses: int = 1,
    dp_shard: int = 1,
) -> Plan:
    """Check and complete a plan: `dp` follows from the other degrees, `global_batch` defaults to one micro-batch each.

    PlanError shows every factor and the nearest legal values; NotBuiltError refuses what this version cannot model.

    >>> make_plan(num_gpus=64, seq_len=8192, family=Family(), tp=8, global_batch=64).dp
    8
    """
    given = {
        "gpus": num_gpus, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "vpp": vpp,
        "etp": tp if etp is None else etp, "mbs": micro_batch,
        "seq": seq_len, "dp-shard": dp_shard,
    }  # fmt: skip
    _refuse_unbuilt(given, family)
    _check_data(family)
    _sensible({**given, "dp": 1 if dp is None else dp, "gbs": 1 if global_batch is None else global_batch})
    if not 0 <= kv_len <= LARGEST:
        raise PlanError(f"kv={kv_len}: the cached context is 0 to {LARGEST} tokens")
    _check_ulysses(cp, cp_ulysses, family)
    replicas = _replicas(num_gpus, (tp, pp, cp), ep, dp)
    _check_shard(dp_shard, replicas // ep, family)
    batch = micro_batch * replicas if global_batch is None else global_batch
    _check_batch(batch, micro_batch, replicas, family)
    _check_pipeline(batch // (micro_batch * replicas), pp, vpp, family)
    return Plan(
        num_gpus=num_gpus, tp=tp, pp=pp, cp=cp, ep=ep, etp=tp, dp=replicas, vpp=vpp, micro_batch=micro_batch,
        global_batch=batch, seq_len=seq_len, kv_len=kv_len, cp_ulysses=cp_ulysses, dp_shard=dp_shard, family=family,
    )  # fmt: skip


def _check_ulysses(cp: int, inner: int, family: Family) -> None:
    """Of `cp` ranks, groups of `inner` exchange sequence for heads, and the others pass or gather keys and values."""
    if inner < 1 or cp % inner:
        raise PlanError(f"cp_ulysses={inner} does not divide cp={cp}; legal cp_ulysses: {_near(inner, divisors(cp))}")
    if inner > 1 and not (family.usp and family.cp in ("ring", "allgather")):
        raise PlanError(f"cp_ulysses={inner} lies inside --cp-method ring or allgather, not {family.cp}")


def _check_data(family: Family) -> None:
    """Refuse what a ZeRO stage has no use for; a flag is never ignored."""
    if family.reshard not in RESHARD:
        raise UnknownNameError.of("reshard policy", family.reshard, RESHARD)
    if family.reshard != "layer" and family.zero != 3:
        raise PlanError(
            f"reshard={family.reshard} says how long ZeRO 3 keeps gathered parameters, and zero={family.zero} "
            "gathers none: use --zero 3, or leave it out"
        )
    if family.reduce_dtype is not None and family.workload is not Workload.TRAIN:
        raise PlanError(
            f"reduce-dtype={family.reduce_dtype}: {family.workload} has no gradients to reduce; leave it out"
        )


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


def _replicas(num_gpus: int, model: tuple[int, int, int], ep: int, dp: int | None) -> int:
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
    if replicas % ep:
        raise PlanError(
            f"ep={ep} lies inside data parallelism and does not divide dp={replicas}; "
            f"legal ep: {_near(ep, divisors(replicas))}"
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
    if given["etp"] != given["tp"] and given["etp"] > 0:
        wanted.append(f"--etp {given['etp']} (a tensor-parallel degree of experts other than tp)")
    if given["cp"] > 1 and family.workload is Workload.DECODE:
        wanted.append(f"--cp {given['cp']} (context parallelism in decode)")
    if given["pp"] > 1 and (family.recompute_layers or family.recompute_every > 1):
        wanted.append("--recompute-layers or --recompute-every with --pp (which layers of each stage)")
    if family.schedule not in SCHEDULES:
        raise UnknownNameError.of("pipeline schedule", family.schedule, SCHEDULES)
    if sorted(rank_order(family.order)) != sorted(AXES):
        named = ", ".join(ORDER.split("-"))
        raise PlanError(f"order={family.order} must name each of {named} once, innermost first: {ORDER}")
    if family.pp_layout not in LAYOUTS and not all(n.strip().isdigit() for n in family.pp_layout.split(",")):
        raise UnknownNameError.of("pipeline layout", family.pp_layout, (*LAYOUTS, "layers a stage as 9,8,8,7"))
    if family.zero not in range(4):
        raise PlanError(f"zero={family.zero}; allowed: 0, 1, 2, 3")
    if family.kernels not in KERNELS:
        raise UnknownNameError.of("kind of kernels", family.kernels, KERNELS)
    if family.attention not in ATTENTION:
        raise UnknownNameError.of("kind of attention", family.attention, ATTENTION)
    check_recompute(family.recompute, family.recompute_modules, family.recompute_layers, family.recompute_every)
    check_offload(family.offload)
    if "params" in family.offload and family.zero != 3:
        raise PlanError(f"offload of params goes with zero=3, where they lie in shards, not zero={family.zero}")
    if family.workload is not Workload.TRAIN and (family.zero or family.recompute != "none" or family.offload):
        raise PlanError(
            f"zero, recompute and offload are of training: {family.workload} keeps no gradients and no activations"
        )
    if family.workload is Workload.DECODE and family.sp:
        raise PlanError("sp splits the sequence, of which a decode step has one token: leave it out")
    if family.async_tp and given["tp"] > 1 and not family.sp:
        raise PlanError("async_tp hides the gathers and scatters of sp, which is off: add --sp or leave --async-tp out")
    if wanted:
        raise NotBuiltError(
            f"{', '.join(wanted)}: not modelled in this version; what is: "
            "--tp, --sp, --cp, --ep, --dp, --pp, --vpp, --zero, --recompute"
        )


def rank_order(order: str) -> tuple[str, ...]:
    """Return the mesh axes from neighbouring ranks outwards; `up` lies right inside `cp`, `fsdp` inside `dp`.

    >>> rank_order("tp-cp-ep-dp-pp")
    ('tp', 'up', 'cp', 'ep', 'fsdp', 'dp', 'pp')
    """
    names = order.split("-")
    inside = {"cp": "up", "dp": "fsdp"}
    pairs = ((inside.get(n), n) for n in names)
    return tuple(a for pair in pairs for a in pair if a is not None and (a in pair[1:] or a not in names))


def check_recompute(policy: str, modules: Sequence[str] = (), layers: int = 0, every: int = 1) -> None:
    """Check what is recomputed; UnknownNameError for a policy, PlanError for options that do not go together."""
    if policy not in RECOMPUTE:
        raise UnknownNameError.of("recompute policy", policy, RECOMPUTE)
    if layers < 0 or every < 1:
        raise PlanError(f"recompute layers={layers} every={every}: layers are 1 or more (0: all), every is 1 or more")
    if modules and policy != "selective":
        named = ",".join(modules)
        raise PlanError(f"recompute modules {named} go with the policy 'selective', not '{policy}'")
    if (layers or every > 1) and policy != "full":
        raise PlanError(f"recompute layers and every go with the policy 'full', not '{policy}'")
    if layers and every > 1:
        raise PlanError(f"recompute layers={layers} or every={every}, not both: the first layers, or groups of layers")


def check_offload(what: Sequence[str]) -> None:
    """Check what lies in host memory; UnknownNameError, NotBuiltError or PlanError for what cannot."""
    for name in what:
        if name == "gradients":
            raise NotBuiltError("--offload gradients: sums of gradients stay on the device; what can go: " + _OFFLOADED)
        if name not in OFFLOAD:
            raise UnknownNameError.of("thing to offload", name, OFFLOAD)
    if "params" in what and "optimizer" not in what:
        raise PlanError("offload of params goes with that of the optimizer, which then updates them where they lie")


def divisors(n: int) -> list[int]:
    """Return the divisors of a positive number, in order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def _near(value: int, allowed: Sequence[int], most: int = 4) -> str:
    """Return the allowed values nearest to one, in order.

    >>> _near(3, [1, 2, 4, 8, 16])
    '1, 2, 4, 8'
    """
    nearest = sorted(sorted(allowed, key=lambda a: (abs(a - value), a))[:most])
    return ", ".join(map(str, nearest))


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
    cp_ulysses: NDArray[np.float64] | None = None
    dp_shard: NDArray[np.float64] | None = None

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
            column("cp"), column("ep"), column("pp"), column("vpp"), column("cp_ulysses"), column("dp_shard"),
        )  # fmt: skip

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.tp)

    @property
    def columns(self) -> Mapping[str, NDArray[np.float64]]:
        """What each symbol of a lowered graph is, plan by plan."""
        ones = self.tp * 0.0 + 1.0
        given = (self.cp, self.cp_ulysses, self.ep, self.pp, self.dp_shard)
        cp, up, ep, pp, fsdp = (ones if c is None else c for c in given)
        degrees = {
            "tp": self.tp, "up": up, "cp": cp / up, "ep": ep, "fsdp": fsdp, "dp": self.dp / (ep * fsdp), "pp": pp,
        }  # fmt: skip
        return {**degrees, "mbs": self.micro_batch, "seq": self.seq_len, "kv": self.kv_len}

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
    "ATTENTION", "AXES", "CP_METHODS", "KERNELS", "LAYOUTS", "OFFLOAD", "ORDER", "RECOMPUTE", "RESHARD", "SCHEDULES",
    "Family", "Plan", "PlanTable", "check_offload", "check_recompute", "divisors", "make_plan", "rank_order",
]  # fmt: skip
