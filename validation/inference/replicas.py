"""How a row lays one replica on devices: tensor and expert degrees, and data parallelism of attention."""

from __future__ import annotations

from dataclasses import replace

from ...ir.errors import PlanError
from ...ir.plan import Family, Plan, make_plan
from ...ir.records import dataclass
from ..rows.rows import NotJudged, Row


@dataclass(frozen=True, slots=True)
class Replica:
    """The degrees of one replica.

    Attributes:
        tp: ranks that split attention, and dense layers.
        ep: ranks that experts are sharded over; they are whole where it is above 1.
        attention_dp: groups of `tp` ranks that each attend to sequences of their own.
        pp: pipeline stages.
        cut: whether experts are split inside over all ranks that attend apart, instead of distributed.
    """

    tp: int = 1
    ep: int = 1
    attention_dp: int = 1
    pp: int = 1
    cut: bool = False

    @property
    def num_gpus(self) -> int:
        """Devices of the replica."""
        return self.tp * self.attention_dp * self.pp

    @property
    def text(self) -> str:
        """The degrees in words: `tp8 ep8`."""
        pairs = (("tp", self.tp), ("ep", self.ep), ("dp", self.attention_dp), ("etp", self._etp), ("pp", self.pp))
        return " ".join(f"{name}{degree}" for name, degree in pairs if degree > 1 or name == "tp")

    @property
    def _etp(self) -> int:
        """Ranks that split experts inside where these are more than attention has."""
        return self.tp * self.attention_dp if self.cut else 1

    def family(self, family: Family, system: str = "") -> Family:
        """Return a family with what the degrees change in its graph, on a system where it says how rows travel.

        Ranks that attend apart gather the tokens of all; only where one switch joins whole racks engines send rows to
        their experts alone: TensorRT-LLM `AlltoallMethodType`, vLLM `all2all_backend`, SGLang `moe_a2a_backend`.
        """
        shared = replace(family, tp=self.tp > 1, pp=self.pp > 1)
        if self.ep == 1:
            return replace(shared, etp_dp=True) if self.cut else shared
        gathers = self.attention_dp > 1 and "nvl" not in system
        return replace(shared, ep=True, etp=False, exchange="allgather" if gathers else "alltoall")

    def plan(self, family: Family, context: int) -> Plan:
        """Return one sequence a data-parallel group as a plan; PlanError where degrees do not go together."""
        if self.ep not in (1, self.tp * self.attention_dp):
            raise PlanError(f"ep={self.ep} is neither 1 nor tp x dp = {self.tp * self.attention_dp}")
        return make_plan(
            num_gpus=self.num_gpus,
            tp=self.tp,
            ep=self.ep,
            pp=self.pp,
            dp=self.attention_dp,
            seq_len=context,
            kv_len=context,
            etp=self._etp if self.cut else None,
            family=family,
        )


@dataclass(frozen=True, slots=True)
class ReplicaLayout:
    """A replica, and what had to be assumed for it."""

    replica: Replica
    assumed: tuple[str, ...] = ()


def replica_of(row: Row) -> ReplicaLayout:
    """Return the one replica of a row that has no pools.

    The ranks of attention are those of experts, `tp x attention_dp = moe_tp x ep`: what is not given follows.
    """
    tp, ep, pp = (row.number(name, 1) for name in ("tp", "ep", "pp"))
    inside = row.number("moe_tp", 1)
    groups = row.number("attention_dp", max(1, inside * ep // tp))
    return ReplicaLayout(Replica(tp, ep, groups, pp, groups > 1 and ep == 1))


@dataclass(frozen=True, slots=True)
class ReplicaPool:
    """One pool of disaggregated servers: workers alike, and the sequences that each group of a worker runs at once."""

    laid: ReplicaLayout
    workers: int
    batch: int


def pools_of(row: Row) -> tuple[ReplicaPool, ReplicaPool]:
    """Return the pools for prompts and for decodes; NotJudged where the devices of a row are not those of its pools."""
    phase = "decode"
    decode = _pool(row, "decode", max(row.number(f"{phase}_tp"), row.number(f"{phase}_ep")))
    left = row.number("n_gpus") - decode.workers * decode.laid.replica.num_gpus
    each, rest = divmod(left, row.number("prefill_workers"))
    if each < 1 or rest:
        raise NotJudged("the devices of its pools are not given")
    return _pool(row, "prefill", each), decode


def _pool(row: Row, phase: str, devices: int) -> ReplicaPool:
    """Return a pool whose workers have so many devices each."""
    tp, ep = row.number(f"{phase}_tp"), row.number(f"{phase}_ep")
    said: tuple[str, ...] = ()
    if tp == ep == 1 and devices > 1:
        said, ep = (f"{phase} of whole experts over {devices} ranks that attend apart",), devices
    if max(tp, ep) != devices or (1 < tp != ep > 1):
        raise NotJudged(f"{phase}: tp={tp} and ep={ep} are no layout of {devices} devices")
    replica = Replica(tp, ep, devices // tp if ep > 1 else 1)
    return ReplicaPool(ReplicaLayout(replica, said), row.number(f"{phase}_workers"), row.number(f"{phase}_batch"))
