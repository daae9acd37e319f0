"""Experts in a list, as people write them: what a routing does is proven by running it, and it becomes one operator.

A loop over experts (`where`, `nonzero`, masks, sorting, counts) asks for sizes that only data says. The routing around
the experts is small, so it runs on numbers, with a stand-in for each expert, `tanh(rows) * c_e`. It is taken as experts
where, over random rows and over rows all alike (where a capacity would drop rows), with k and E constant,

    out[t] = sum over j < k of weights[t, j] * expert_{chosen[t, j]}(x[t]) + beside[t]

and `chosen`, `weights`, `beside` are results of calls that came before the first expert ran (or `beside` is a part's
own result). Then all loads sum to k rows a token, and a recording runs the module's own code up to these results.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ...ir.errors import TraceError
from ...ir.records import dataclass
from ..example_inputs import needed_arguments
from ..leaves import Experts, bank_like
from ..record.preserve import FunctionMode

_MOST_NUMBERS = 1 << 26  # of parameters beside the experts: a routing with more is not run
_TRIALS = (((2, 9), False), ((2, 8), True), ((3, 5), False))  # batch and length, and whether all rows are alike


@dataclass(frozen=True, slots=True)
class Spot:
    """A tensor by the call that made it: the how-manieth tensor of a forward, and the name of the function."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Routing:
    """What was proven of a routing: where its choice, its weights and what is added are found, and what else returns.

    `weights` of width E are read at the choice; none are ones. `beside` is the name of a part where it is a string.
    """

    top_k: int
    chosen: Spot
    weights: Spot | None
    beside: Spot | str | None
    others: Sequence[Spot]

    @property
    def last(self) -> int:
        """The last call that a recording needs."""
        spots = (self.chosen, self.weights, self.beside, *self.others)
        return max(s.number for s in spots if isinstance(s, Spot))


class _ReachedError(Exception):
    """All that a recording needs of a module's own code has run."""


class _Watch(FunctionMode):
    """Keeps the tensors that calls make, in order; a copy of each while numbers run, until the first expert does."""

    def __init__(self, last: int = -1) -> None:
        super().__init__()
        self.seen: list[tuple[str, Tensor]] = []
        self.is_over = False
        self._last = last

    def call(self, func: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        out = func(*args, **kwargs)
        if self.is_over:
            return out
        for made in out if isinstance(out, tuple | list) else (out,):
            if isinstance(made, Tensor):
                kept = made if self._last >= 0 else made.detach().clone()
                self.seen.append((getattr(func, "__name__", str(func)), kept))
        if 0 <= self._last < len(self.seen):
            raise _ReachedError
        return out

    def at(self, spot: Spot) -> Tensor:
        """Return the tensor of a call; LookupError where another function made it."""
        name, found = self.seen[spot.number]
        if name != spot.name:
            raise LookupError(f"'{name}' is called where '{spot.name}' was")
        return found


@dataclass
class _Run:
    """One run on numbers: what came in and out, how many rows went to experts, what calls and parts returned."""

    x: Tensor
    coefficients: Tensor
    watch: _Watch = field(default_factory=_Watch)
    rows: int = 0
    parts: dict[str, Tensor] = field(default_factory=dict)
    out: tuple[Tensor, ...] = ()
    rest: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def tokens(self) -> int:
        return self.x.shape[0] * self.x.shape[1]


class _StandIn(nn.Module):
    """In place of an expert: it counts its rows and returns a known function of them, or nothing."""

    def __init__(self, number: int, holder: list[_Run]) -> None:
        super().__init__()
        self._number, self._holder = number, holder

    def forward(self, rows: Tensor) -> Tensor:
        run = self._holder[0]
        run.watch.is_over = True
        run.rows += rows.numel() // run.x.shape[-1]
        return torch.tanh(rows) * run.coefficients[self._number]


class ListedExperts(Experts):
    """Banks where a list of experts was; code that runs before an expert may ask for its length or begin a loop."""

    def __len__(self) -> int:
        """How many there are."""
        return int(self.up.shape[0])

    def __iter__(self) -> Iterator[None]:
        """What stands for each of them."""
        return iter([None] * len(self))


@dataclass(frozen=True, slots=True)
class Routed:
    """Notes on what was proven, and what to say of lists of experts of which it could not be."""

    notes: Sequence[str]
    refused: str


def put_routed(module: nn.Module, train: bool) -> Routed:
    """Make every part with a proven routing run its experts as one operator; call it under `preserved`."""
    found: dict[str, int] = {}
    refused = ""
    for path, part, name in list(_candidates(module)):
        bank = _bank(part, name)
        routing = None if bank is None else _proven(part, name, bank, train)
        if bank is None or routing is None:
            refused = refused or _refused(path, part)
            continue
        part._modules[name] = bank
        part.forward = _forward(part, name, routing)
        said = f"{type(part).__name__} sends every token to {routing.top_k} of {len(bank)} experts"
        found[said] = found.get(said, 0) + 1
    notes = [f"{s} ({n} times; the routing was run on numbers); loads count as balanced" for s, n in found.items()]
    return Routed(notes, refused)


def _refused(path: str, part: nn.Module) -> str:
    kind = f"{type(part).__module__}.{type(part).__name__}"
    return (
        f". '{path}' holds a list of alike experts; that each token goes to k of them, weighted and summed, could not "
        f"be proven; say how many experts a token has: --leaf '{kind}=experts(top_k=N)'"
    )


def _candidates(module: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Parts that take one tensor and hold a list of alike experts: two or three matrices between the same widths."""
    for path, part in module.named_modules():
        for name, child in part.named_children():
            if isinstance(child, nn.ModuleList) and _are_alike(child) and len(needed_arguments(part)) == 1:
                yield path, part, name


def _are_alike(members: nn.ModuleList) -> bool:
    shapes = [[(n, p.shape) for n, p in m.named_parameters()] for m in members]
    kinds = {type(m) for m in members}
    matrices = sum(len(s) == 2 for _, s in shapes[0]) if shapes else 0
    return len(shapes) > 1 and len(kinds) == 1 and matrices in (2, 3) and all(s == shapes[0] for s in shapes)


def _bank(part: nn.Module, name: str) -> ListedExperts | None:
    """Banks of the list's sizes, where an expert multiplies each row by each of its matrices once, and no more."""
    listed = part._modules[name]
    assert isinstance(listed, nn.ModuleList)
    one = listed[0]
    with torch.device("meta"):
        bank = bank_like(part, name, ListedExperts)
    if bank is None or sum(p.numel() for p in bank.parameters()) != sum(p.numel() for p in listed.parameters()):
        return None
    empty = {n: torch.empty_like(t, device="meta") for n, t in (*one.named_parameters(), *one.named_buffers())}
    dtype = next(one.parameters()).dtype
    rows = torch.empty(3, bank.up.shape[2], dtype=dtype, device="meta")
    counter = FlopCounterMode(display=False)
    try:
        with counter, torch.no_grad():
            out = torch.func.functional_call(one, empty, (rows,))
    except Exception:  # whatever a user's expert raises, it is not one of these banks
        return None
    wanted = 2 * 3 * sum(p.numel() for p in one.parameters() if p.dim() == 2)
    fits = isinstance(out, Tensor) and out.shape == rows.shape and counter.get_total_flops() == wanted
    return bank.to(dtype) if fits else None


def _proven(part: nn.Module, name: str, bank: ListedExperts, train: bool) -> Routing | None:
    """Run a routing on numbers; None where it fails, or is not the sum that it must be in each trial."""
    holder: list[_Run] = []
    number, hidden = len(bank), bank.up.shape[2]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            probe = _on_numbers(part, name, [_StandIn(e, holder) for e in range(number)])
            runs = [] if probe is None else [_run(probe.train(train), holder, number, hidden, *t) for t in _TRIALS]
        except Exception:  # whatever a user's routing raises on numbers, nothing is proven
            return None
    if not runs or any(r.rows != runs[0].rows * r.tokens // runs[0].tokens for r in runs):
        return None
    top_k, left = divmod(runs[0].rows, runs[0].tokens)
    if left or not 1 <= top_k < number:
        return None
    return next((r for r in _guesses(runs[0], top_k, number) if all(_holds(r, run) for run in runs)), None)


def _on_numbers(part: nn.Module, name: str, stand_ins: Sequence[nn.Module]) -> nn.Module | None:
    """A copy of a part with real, random numbers, and stand-ins for its experts."""
    listed = part._modules[name]
    part._modules[name] = nn.ModuleList()
    try:
        if sum(p.numel() for p in part.parameters()) > _MOST_NUMBERS:
            return None
        probe = copy.deepcopy(part)
    finally:
        part._modules[name] = listed
    for owner in probe.modules():
        for key, p in owner._parameters.items():
            if p is not None:
                made = torch.randn(p.shape) / max(1, p.shape[-1] if p.dim() else 1) ** 0.5
                owner._parameters[key] = nn.Parameter(made, requires_grad=False)
        for key, b in owner._buffers.items():
            if b is not None and b.is_meta:
                owner._buffers[key] = torch.zeros(b.shape, dtype=torch.float if b.is_floating_point() else b.dtype)
    probe._modules[name] = nn.ModuleList(stand_ins)
    return probe


def _run(probe: nn.Module, holder: list[_Run], number: int, hidden: int, size: tuple[int, int], alike: bool) -> _Run:
    x = torch.randn(1, 1, hidden).expand(*size, -1).clone() if alike else torch.randn(*size, hidden)
    seed = int(torch.randint(1 << 30, ()))
    run, without = _Run(x, torch.randn(number, hidden)), _Run(x, torch.zeros(number, hidden))
    for one in (run, without):
        torch.manual_seed(seed)
        holder[:] = [one]
        hooks = [c.register_forward_hook(_kept(one, n)) for n, c in probe.named_children()]
        given = x.clone()
        with one.watch, torch.no_grad():
            out = probe(given)
        for hook in hooks:
            hook.remove()
        outs = out if isinstance(out, tuple) else (out,)
        one.out = tuple(o for o in outs if isinstance(o, Tensor))
        if len(one.out) != len(outs):
            raise TypeError("not only tensors")
    run.rest = without.out[0]
    return run


def _kept(run: _Run, name: str) -> Callable[[nn.Module, tuple[object, ...], object], None]:
    def hook(module: nn.Module, args: tuple[object, ...], out: object) -> None:
        was, run.watch.is_over = run.watch.is_over, True  # what is done here is no call of the module
        is_x = len(args) == 1 and isinstance(args[0], Tensor) and args[0].numel() == run.x.numel()
        if is_x and isinstance(out, Tensor) and _same(args[0], run.x):
            run.parts[name] = out.detach().clone()
        run.watch.is_over = was

    return hook


def _same(one: object, other: Tensor) -> bool:
    if not isinstance(one, Tensor) or one.numel() != other.numel():
        return False
    return torch.allclose(one.reshape(-1).float(), other.reshape(-1).float(), rtol=1e-3, atol=1e-4)


def _guesses(run: _Run, top_k: int, number: int) -> Iterator[Routing]:
    """What could be the choice, the weights and the rest, by sizes and by what the first run returned."""
    spots = [(Spot(i, name), t) for i, (name, t) in enumerate(run.watch.seen)]
    chosen = [s for s, t in spots if t.dtype == torch.int64 and _is_choice(t, run, top_k)]
    real = [(s, t) for s, t in spots if t.is_floating_point()]
    weights = [s for s, t in real if _is_choice(t, run, top_k) or t.shape[-1:] == (number,)]
    others = [next((s for s, t in real if t.shape == o.shape and _same(t, o)), None) for o in run.out[1:]]
    beside: list[Spot | str | None] = [None] if _same(run.rest, torch.zeros_like(run.x)) else []
    beside += [s for s, t in real if _same(t, run.rest)] + [n for n, t in run.parts.items() if _same(t, run.rest)]
    told = [o for o in others if o is not None]
    if len(told) == len(others):
        for c, w, b in product(chosen, (*weights, None), beside[:1]):
            yield Routing(top_k, c, w, b, told)


def _is_choice(t: Tensor, run: _Run, top_k: int) -> bool:
    return t.numel() == run.tokens * top_k and (top_k == 1 or t.shape[-1] == top_k)


def _holds(routing: Routing, run: _Run) -> bool:
    """Whether a run returned the sum over each token's experts, and the rest."""
    try:
        chosen = run.watch.at(routing.chosen).reshape(run.tokens, -1)
        weights = _weights(routing, run.watch, chosen).float()
    except (LookupError, RuntimeError):
        return False
    if chosen.shape[1] != routing.top_k or not 0 <= int(chosen.min()) <= int(chosen.max()) < len(run.coefficients):
        return False
    rows = torch.tanh(run.x.reshape(run.tokens, 1, -1)) * run.coefficients[chosen]
    wanted = (rows * weights.unsqueeze(-1)).sum(1)
    rest: dict[str | None, Tensor] = {None: torch.zeros_like(run.x)}
    rest.update((name, part) for name, part in run.parts.items())
    beside = run.watch.at(routing.beside) if isinstance(routing.beside, Spot) else rest.get(routing.beside)
    others = [run.watch.at(s) for s in routing.others]
    return (
        _same(run.out[0], run.rest.reshape(wanted.shape) + wanted)
        and beside is not None
        and _same(beside, run.rest)
        and all(_same(a, b) for a, b in zip(others, run.out[1:], strict=True))
    )


def _weights(routing: Routing, watch: _Watch, chosen: Tensor) -> Tensor:
    """Each token's weights [tokens, k]."""
    if routing.weights is None:
        return torch.ones_like(chosen, dtype=torch.float)
    found = watch.at(routing.weights)
    if found.numel() == chosen.numel():
        return found.reshape(chosen.shape)
    return found.reshape(-1, found.shape[-1]).gather(1, chosen)


def _forward(part: nn.Module, name: str, routing: Routing) -> Callable[[Tensor], object]:
    """The module's own code up to the choice and the weights, then its experts as one operator."""
    written = part.forward

    def forward(x: Tensor) -> object:
        watch = _Watch(routing.last)
        try:
            with watch:
                written(x)
        except _ReachedError:
            pass
        try:
            others = tuple(watch.at(s) for s in routing.others)
            beside = watch.at(routing.beside) if isinstance(routing.beside, Spot) else None
            chosen = watch.at(routing.chosen).reshape(-1, routing.top_k)
            weights = _weights(routing, watch, chosen).to(x.dtype)
        except LookupError as error:
            raise TraceError(f"the routing runs otherwise while it is recorded{_refused(name, part)}") from error
        rows = x.reshape(-1, x.shape[-1])
        out = part._modules[name](rows, chosen, weights).reshape(x.shape)  # type: ignore[misc]
        if beside is not None:
            out = out + beside.reshape(x.shape)
        elif isinstance(routing.beside, str):
            out = out + part._modules[routing.beside](x).reshape(x.shape)  # type: ignore[misc]
        return (out, *others) if others else out

    return forward
