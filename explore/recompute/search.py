"""The fastest memory policy within a limit: choices of the integer program, priced in full and mixed over layers.

1. Policies that frameworks have are priced: none, selective, ops, full, full of the first layers, all offloaded.
2. The integer program of `choices` gives the front of choices for all layers; each is priced in full.
3. Two of them are mixed, the first layers of each chunk by one and the others by the other: of a linear program with
   one limit two suffice. How many layers follows from pricing, not from the program.
4. With pipeline stages, each stage recomputes as few layers as its own memory asks for.
5. Names are added to and taken from the best one, as long as that makes the step shorter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from ...backends.machine.system import System
from ...ir.errors import InfeasibleError, UsageError
from ...ir.graph import Graph, Workload
from ...ir.plan import Plan
from ...ir.plan.layout.stages import StageLayout
from ...ir.records import dataclass
from ...ir.text.stages import stage
from ...ir.units import format_bytes
from .choices import KeptChoice, front, need_solver
from .pricing import PricedPolicy, Pricer, faster, fewest
from .results import LayerResults, layer_results
from .spaces import KNOWN, PolicySpace, Words

# Choices of the program that are priced, their spacing as a share of all bytes, and pairs of them that are mixed.
CHOICES, STEP, PAIRS = 24, 0.01, 6
FOUND = "found"
# A policy that is this near to keeping everything is not looked at further.
_NEAR = 5e-4


@dataclass(frozen=True, slots=True)
class FoundPolicy:
    """The answer.

    Attributes:
        best: the fastest policy that fits.
        known: policies that frameworks have, as far as they are legal for the model.
        priced: all policies that were priced, `known` among them.
        limit_bytes: of memory on a device.
        names: results that policies may name, with the bytes and seconds of all layers of a rank.
        search_s: seconds that the search took.
    """

    best: PricedPolicy
    known: tuple[PricedPolicy, ...]
    priced: tuple[PricedPolicy, ...]
    limit_bytes: float
    names: Mapping[str, tuple[float, float]]
    search_s: float

    @property
    def best_known(self) -> PricedPolicy | None:
        """The fastest of the known policies that fits; None where none does."""
        fitting = [p for p in self.known if p.peak_mem_bytes <= self.limit_bytes]
        return min(fitting, key=lambda p: (p.step_time_s, p.peak_mem_bytes), default=None)

    @property
    def front(self) -> Sequence[PricedPolicy]:
        """Policies that none beats in both time and memory, from the smallest on."""
        found: list[PricedPolicy] = []
        for policy in sorted(self.priced, key=lambda p: (p.peak_mem_bytes, p.step_time_s)):
            if not found or policy.step_time_s < found[-1].step_time_s:
                found.append(policy)
        return found


def find_policy(
    graph: Graph, system: System, plan: Plan, limit_bytes: float | None = None, space: PolicySpace | None = None
) -> FoundPolicy:
    """Find what layers keep, offload and recompute so that a training step is fastest.

    Args:
        graph: a traced model.
        system: the machine.
        plan: the plan, whose own policy of recomputation is left out.
        limit_bytes: memory of a device; that of the chip by default.
        space: the policies that may be found; all by default, see `space_of` for those that a framework runs.

    Raises:
        UsageError: another workload than training, or scipy is missing.
        InfeasibleError: no policy fits.
    """
    if plan.family.workload is not Workload.TRAIN:
        raise UsageError(f"memory policies say what training keeps, and this is {plan.family.workload}: leave it out")
    need_solver()
    limit = float(system.chip.hbm_bytes) if limit_bytes is None else limit_bytes
    return _Search(Pricer(graph, system, plan), limit, space or PolicySpace()).run()


class _Search:
    """One search: what was priced so far, and the best of it."""

    def __init__(self, pricer: Pricer, limit_bytes: float, space: PolicySpace) -> None:
        self.pricer, self.limit, self.space = pricer, limit_bytes, space
        self.by_stage = space.by_stage and space.mixes and pricer.pp > 1
        self.offload = space.to_host and space.offloads and pricer.system.chip.host_link is not None
        self.started = time.perf_counter()
        self.priced: dict[int, PricedPolicy] = {}
        self.best: PricedPolicy | None = None

    def run(self) -> FoundPolicy:
        """Price what is known, then what the program chooses, unless keeping everything fits."""
        with stage("price policies that frameworks have"):
            known = [p for p in self._known() if p is not None]
            everything = self._everything()
            layers = layer_results(self.pricer.unfused(), everything.table, self.offload)
        if not self._fits(everything):
            if self.space.saves:
                layers = layers if self.space.names is None else layers.only(self.space.names)
                programs = [layers] if layers.bytes_per_s is None else [layers, replace(layers, bytes_per_s=None)]
                with stage("solve the integer program"):
                    choices = [choice for program in programs for choice in _some(front(program, STEP))]
                with stage(f"price {len(choices)} policies of the program"):
                    singles = [(c, p) for c in choices if (p := self._try(FOUND, _words(c)))]
                if self.space.mixes:
                    with stage("mix policies over layers"):
                        self._mixed(singles)
                with stage("add and take single results"):
                    self._improved(layers)
            for words in self.space.settings(self._layout().blocks):
                self._try(FOUND, words)
        if self.best is None:
            least = min(self.priced.values(), key=lambda p: p.peak_mem_bytes)
            raise InfeasibleError(
                f"no memory policy fits {format_bytes(self.limit)}: the smallest, {said(least)}, needs "
                f"{format_bytes(least.peak_mem_bytes)}; more --tp, --pp, --cp or --zero, or a smaller --mbs"
            )
        sizes = {
            name: (layers.bytes_of(name), sum(r.seconds for r in layers.results if r.name == name))
            for name in layers.names
        }
        return FoundPolicy(
            self.best, tuple(known), tuple(self.priced.values()), self.limit, sizes, time.perf_counter() - self.started
        )

    def _try(self, label: str, words: Words) -> PricedPolicy | None:
        """Price a policy, and keep it where it is the best that fits."""
        policy = self.pricer.price(label, words)
        if policy is None:
            return None
        self.priced[id(policy)] = policy
        if self._fits(policy) and faster(policy, self.best):
            self.best = policy
        return policy

    def _fits(self, policy: PricedPolicy | None) -> bool:
        return policy is not None and policy.peak_mem_bytes <= self.limit and self.pricer.fits_host(policy)

    def _everything(self) -> PricedPolicy:
        """The plan that keeps everything."""
        found = self.pricer.price("none", {})
        assert found is not None
        return found

    def _layout(self) -> StageLayout:
        """How its layers lie on stages."""
        staging = self._everything().table.staging
        return staging.layouts[int(staging.which[0])]

    def _known(self) -> Iterator[PricedPolicy | None]:
        for label, words in KNOWN.items():
            if self.space.says(words) and ("offload" not in words or self.pricer.system.chip.host_link is not None):
                yield self._try(label, words)
        if self.space.says({"recompute": "full", "recompute_layers": 1}) and not self._fits(self._everything()):
            num = self._first_layers("full, first layers", {"recompute": "full"})
            yield None if num is None else self._try("full, first layers", {"recompute": "full", **_layers(num)})

    def _first_layers(self, label: str, words: Words) -> int | None:
        """The fewest first layers of each chunk that a policy must be of; None where all of them are not enough."""
        most = max(self._layout().blocks) - 1
        return None if most < 1 else fewest(1, most, lambda n: self._fits(self._try(label, {**words, **_layers(n)})))

    def _mixed(self, singles: Sequence[tuple[KeptChoice | None, PricedPolicy]]) -> None:
        """Mix two choices over the layers, those first that a straight line between both promises most of."""
        promised = sorted(self._pairs([(None, self._everything()), *singles]), key=lambda pair: pair[0])
        for _, words in promised[:PAIRS]:
            if self.by_stage:
                self._by_stage(words)
            else:
                self._first_layers(FOUND, words)

    def _pairs(self, singles: Sequence[tuple[KeptChoice | None, PricedPolicy]]) -> Iterator[tuple[float, Words]]:
        """Yield mixes of a choice that fits and one that does not, each with the seconds that it promises."""
        for (small, a), (large, b) in permutations(singles, 2):
            if small is None or not self._fits(a) or self._fits(b) or a.step_time_s < b.step_time_s:
                continue
            share = (b.peak_mem_bytes - self.limit) / (b.peak_mem_bytes - a.peak_mem_bytes)
            words = dict(_words(small))
            if large is not None:
                words["recompute_save_rest"] = (*large.keep, *large.offload)
                words["offload_modules"] = tuple(dict.fromkeys((*small.offload, *large.offload)))
            yield b.step_time_s + share * (a.step_time_s - b.step_time_s), words

    def _by_stage(self, words: Words) -> None:
        """Let each stage recompute as few layers as its own memory asks for."""
        layout = self._layout()
        needed = [0] * layout.pp
        for num in range(max(layout.blocks)):
            policy = self._try(FOUND, _of_chunks(words, [min(num, size) for size in layout.blocks]))
            if policy is None:
                return
            over = [held > self.limit for held in self.pricer.stage_bytes(policy)]
            if not any(over):
                break
            needed = [num + 1 if is_over else n for is_over, n in zip(over, needed, strict=True)]
        # A chunk that two stages hold is recomputed as the one asks that has less room.
        each = [0] * len(layout.blocks)
        for num, chunks in zip(needed, layout.held, strict=True):
            for c in chunks:
                each[c] = max(each[c], min(num, layout.blocks[c]))
        self._try(FOUND, _of_chunks(words, each))

    def _improved(self, layers: LayerResults) -> None:
        """Keep one result more or less than the best choice does, as long as that is better and there is room."""
        before, least_s = None, self._everything().step_time_s * (1.0 + _NEAR)
        while self.best is not None and self.best is not before and self.best.family.recompute == "save":
            if self.best.step_time_s <= least_s:
                return
            before, family = self.best, self.best.family
            held = {name: getattr(family, name) for name in _FIELDS}
            for name in layers.names:
                self._try(FOUND, {**held, "recompute_save": _turned(family.recompute_save, name)})
            for name in layers.names if self.offload else ():
                away = _turned(family.offload_modules, name)
                kept = tuple(dict.fromkeys((*family.recompute_save, *away)))
                self._try(FOUND, {**held, "recompute_save": kept, "offload_modules": away})


def _turned(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """The names without one of them, or with one more."""
    return tuple(n for n in names if n != name) if name in names else (*names, name)


_FIELDS = (
    "recompute",
    "recompute_save",
    "recompute_save_rest",
    "recompute_layers",
    "recompute_by_chunk",
    "offload_modules",
)


def said(policy: PricedPolicy) -> str:
    """Return a policy as flags of a plan."""
    said_so = words_said_by(policy).items()
    texts = ((name, ",".join(value) if isinstance(value, tuple) else value) for name, value in said_so)
    return " ".join(f"--{name.replace('_', '-')} {text}" for name, text in texts)


def words_said_by(policy: PricedPolicy) -> Mapping[str, object]:
    """Return the words of a policy that say something."""
    family, found = policy.family, dict[str, object]()
    for name in (*_FIELDS, "recompute_modules", "recompute_every", "offload"):
        value = getattr(family, name)
        if value and (name, value) != ("recompute_every", 1):
            found[name] = value
    return found


def _words(choice: KeptChoice) -> dict[str, object]:
    """The words of a choice for all layers; what is offloaded is kept as well, in another place."""
    names = (*choice.keep, *choice.offload)
    return {"recompute": "save", "recompute_save": names, "offload_modules": choice.offload}


def _layers(num: int) -> Words:
    return {"recompute_layers": num}


def _of_chunks(words: Words, num: Sequence[int]) -> Words:
    """A mix with so many first layers of each chunk; where there are none, the other choice alone."""
    if any(num):
        return {**words, "recompute_by_chunk": ",".join(map(str, num))}
    rest = words.get("recompute_save_rest")
    return {**words, "recompute_save": rest, "recompute_save_rest": ()} if rest else {}


def _some(choices: Iterator[KeptChoice]) -> list[KeptChoice]:
    """Return choices spread evenly over the front, its ends among them."""
    found = list(choices)
    if len(found) <= CHOICES:
        return found
    places = sorted({round(k * (len(found) - 1) / (CHOICES - 1)) for k in range(CHOICES)})
    return [found[k] for k in places]
