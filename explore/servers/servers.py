"""Servers of a space as they are asked for: systems, engines, graphs and lowered models are made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...backends.machine.load import load_system
from ...backends.machine.software.engine import Engine
from ...backends.machine.software.engine_file import load_engine
from ...backends.machine.software.stack import StackConstants
from ...backends.machine.system import System
from ...cost.flops import Convention
from ...driver.estimate import lower
from ...driver.serve.server import Server
from ...driver.serve.tables import ServedModel
from ...ir.errors import NotBuiltError, PlanError
from ...ir.graph import Graph, Workload
from ...ir.plan import Family, Plan, PlanWords, check_family, make_plan, structure_of
from ...ir.plan.low_inference import AS_PUBLISHED
from ...ir.plan.precision import check_units
from ...ir.plan.word import changed
from ...ir.records import dataclass
from ..machine import MachineChoice
from ..plans.job import UNEVEN
from .space import ServerSetting, ServingSpace
from .units import Unit

# Whether a software runs a plan.
ServerTest = Callable[[StackConstants, Plan], bool]
# One device, of which nothing is split.
_ALONE = Unit(1, 1, 1, 1, 1, 0)


@dataclass(frozen=True, slots=True)
class RefusedServer:
    """Why there is no server.

    Attributes:
        reason: as people read it.
        message: the error.
    """

    reason: str
    message: str


class Servers:
    """Makes servers of a space that their software runs, and keeps what they share."""

    __slots__ = ("_graphs", "_machines", "_made", "_served", "runs", "space")

    def __init__(self, space: ServingSpace, runs: ServerTest | None = None) -> None:
        """Make nothing yet."""
        self.space = space
        self.runs = runs
        self._graphs: dict[Workload, Graph] = {}
        self._machines: dict[tuple[MachineChoice, str], tuple[System, Engine]] = {}
        self._served: dict[tuple[Family, Family], ServedModel] = {}
        self._made: dict[tuple[ServerSetting, Unit], Server | RefusedServer] = {}

    def __reduce__(self) -> tuple[type[Servers], tuple[ServingSpace, ServerTest | None]]:
        """Go to another process without what was made."""
        return Servers, (self.space, self.runs)

    def graph(self, workload: Workload) -> Graph:
        """Return the graph of the model, from the cache of graphs or recorded."""
        from ...frontend import GraphCache, load

        if workload not in self._graphs:
            self._graphs[workload] = load(self.space.model, workload, self.space.dtype, GraphCache.default())
        return self._graphs[workload]

    def machine(self, setting: ServerSetting) -> tuple[System, Engine]:
        """Return the system with the stack of the engine, unless it has one of its own, and the engine on its chip."""
        key = setting.machine, setting.engine
        if key not in self._machines:
            given, own = setting.machine, self.space.engine_overrides
            stack = given.stack or load_engine(setting.engine, overrides=own).stack
            system = load_system(given.name, given.overrides, stack, given.calibration, given.prices)
            self._machines[key] = system, load_engine(setting.engine, system.chip.name, own)
        system, engine = self._machines[key]
        # The engine with the limits of the space in the place of its own.
        tokens = setting.max_batched_tokens
        at, space = engine.scheduler, self.space
        changed = replace(
            at,
            max_num_seqs=space.max_num_seqs or at.max_num_seqs,
            block_tokens=space.block_tokens or at.block_tokens,
            memory_utilization=space.memory_utilization or at.memory_utilization,
            chunked_prefill=at.chunked_prefill if tokens is None else tokens > 0,
            max_batched_tokens=tokens or at.max_batched_tokens,
            dual_batch=space.dual_batch or at.dual_batch,
        )
        return system, replace(engine, scheduler=changed)

    def check(self, setting: ServerSetting) -> RefusedServer | None:
        """Return why no server of a setting can be: its chip has no units. UnknownNameError for names of nothing."""
        system = self.machine(setting)[0]
        for workload in (Workload.PREFILL, Workload.DECODE):
            family = self.family(setting, _ALONE, workload)
            check_family(family)
            try:
                check_units(family, system.chip.name, system.chip.peak_flop_per_s.by_dtype())
            except PlanError as error:
                return RefusedServer("no matrix units for its precision", str(error))
        return None

    def family(self, setting: ServerSetting, unit: Unit, workload: Workload) -> Family:
        """Return the structural part of the plan of a unit, as a server has it."""
        from ...frontend.huggingface.configs.models import popularity_of
        from ...frontend.huggingface.configs.published import Published, published_recipes

        system, space = self.machine(setting)[0], self.space
        peaks = tuple(system.chip.peak_flop_per_s.by_dtype())
        as_published = setting.precision == AS_PUBLISHED
        found = published_recipes(space.model, peaks) if as_published else Published(setting.precision)
        placed: dict[str, object] = {}
        if unit.ep > 1:
            popularity = popularity_of(space.model, space.expert_popularity)
            placed |= {"expert_popularity": popularity, "eplb": space.eplb}
            placed["redundant_experts"] = space.redundant_experts
        # Prompts are split over tp x cp ranks by heads, as all layers of a decode step but attention are.
        over = unit.cp if workload is Workload.PREFILL else 1
        words = PlanWords(
            phase=str(workload),
            mla=space.mla if workload is Workload.DECODE else "latent",
            exchange=space.exchange if unit.ep > 1 else "alltoall",
            kernels=space.kernels,
            precision=found.recipe,
            published_of=found.of,
            kv_dtype=setting.kv_dtype,
            seq_len=space.prompt + space.output,
            tp=unit.tp * over,
            pp=unit.pp,
            cp=unit.cp // over,
            ep=unit.ep * over if unit.whole else unit.ep,
            etp=None if unit.etp == unit.tp else unit.etp,
        )
        return structure_of(changed(words, placed), system.stack)

    def server(self, setting: ServerSetting, unit: Unit) -> Server | RefusedServer:
        """Return a server of one replica of a unit, or of those that it is coupled with; or why there is none."""
        key = (replace(setting, apart=False), unit)
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def _make(self, setting: ServerSetting, unit: Unit) -> Server | RefusedServer:
        refused = self.check(setting)
        if refused is not None:
            return refused
        system, engine = self.machine(setting)
        longest = self.space.prompt + self.space.output
        try:
            prefill, decode = (self.family(setting, unit, w) for w in (Workload.PREFILL, Workload.DECODE))
            plan = make_plan(
                num_gpus=unit.num_gpus * max(unit.dp, 1),
                tp=unit.tp,
                pp=unit.pp,
                cp=unit.cp,
                ep=unit.ep,
                etp=unit.etp,
                dp=max(unit.dp, 1),
                seq_len=longest,
                kv_len=longest,
                family=decode,
            )
            if self.runs is not None and not self.runs(system.stack, plan):
                return RefusedServer("not run by its software", f"{engine.name} does not run {plan.degrees}")
            server = Server.of(self._lowered(prefill, decode), system, plan, engine, longest)
        except NotBuiltError as error:
            return RefusedServer("not modelled", str(error))
        except PlanError as error:
            return RefusedServer(UNEVEN, str(error))
        return replace(server, convention=Convention(self.space.convention))

    def _lowered(self, prefill: Family, decode: Family) -> ServedModel:
        if (prefill, decode) not in self._served:
            pairs = ((Workload.PREFILL, prefill), (Workload.DECODE, decode))
            self._served[prefill, decode] = ServedModel(*(lower(self.graph(w), family) for w, family in pairs))
        return self._served[prefill, decode]
