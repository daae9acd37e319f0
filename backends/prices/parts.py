"""Parts by name, as people order machines: `chip.memory=8xhbm4`, `nic=800g`, `scale-up=nvl72`, `rack=liquid`.

A part puts all numbers in place that it is made of, in what is timed and in what is billed: bandwidth, latency and
power beside stacks, adapters and prices. A price that was given for a whole server or rack moves by what the part costs
more than the one it replaces. Each number that is put in place names the part, the file that says so, and that it is an
estimate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...ir.errors import SystemFileError, UnknownNameError, UsageError
from ...ir.records import dataclass
from ..machine.files.catalogue import Assembled, read_file
from ..machine.files.faults import all_of, in_files
from ..machine.files.number import Number
from ..machine.files.section import inside, section_of
from ..machine.files.shapes import Intake
from ..machine.files.system_tree import assign, names_of, part_at, split_override
from ..machine.system_schema import NetworkSection, SystemSection
from .given import book_of

if TYPE_CHECKING:
    from ..machine.files.system_tree import Tree
    from .section import Prices

_STACKS = re.compile(r"([0-9]+)x([a-z0-9_]+)", re.IGNORECASE)
_DOMAIN = re.compile(r"(?:[a-z]+[-]?)?([0-9]+)", re.IGNORECASE)
# Networks of the catalogue whose outermost level a port of a rate is, by the family of the port that it replaces.
_NETWORKS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "infiniband": MappingProxyType(
            {"100g": "edr-infiniband", "200g": "hdr-infiniband", "400g": "ndr-infiniband", "800g": "xdr-infiniband"}
        ),
        "ethernet": MappingProxyType(
            {"100g": "roce-100g", "200g": "roce-200g", "400g": "roce-400g", "800g": "roce-800g"}
        ),
    }
)
DOMAINS = (4, 8, 16, 32, 36, 64, 72, 144, 288, 576)
# GPUs that copper reaches from one tier of switches in a rack; more take optics at both ends of each port.
_COPPER = 72
# Hops more that a second tier adds, of the latency of one.
_TIER_HOPS = 2.0
# What a server of eight chips has for its cooling, and a rack.
_COOLING = MappingProxyType({"air": ("gpu-fans", "rack-air"), "liquid": ("cold-plates", "rack-liquid")})


@dataclass(frozen=True, slots=True)
class Refitted:
    """A system whose parts are changed, and the price book that says what they are.

    Attributes:
        tree: the system.
        numbers: of it, by path, in base units.
        prices: the book.
        fault: builds the error for numbers of the system that could not be read; None where all could.
    """

    tree: dict[str, Tree]
    numbers: Mapping[str, float]
    prices: Prices
    fault: Callable[[], SystemFileError] | None = None

    def at(self, *keys: str) -> Tree:
        """Return what stands at a path; None for nothing. Lists are entered by the names of their records."""
        return part_at(self.tree, keys)

    def number(self, *keys: str) -> float | None:
        """Return a number in base units, None where there is none; SystemFileError for one that cannot be read."""
        number = self.numbers.get(".".join(keys))
        if number is None and self.at(*keys) is not None and self.fault is not None:
            raise self.fault()
        return number

    def price(self, *keys: str) -> float:
        """Return a number of the price book in base units."""
        found: object = self.prices.section
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else getattr(found, key, None)
        if not isinstance(found, Number):
            raise UnknownNameError(f"the price book has no {'.'.join(keys)}")
        return found.si

    def put(self, path: Sequence[str], value: float, unit: str, part: str) -> Refitted:
        """Return the bench with a number in base units in place, which names its part."""
        leaf: Tree = {"value": value, "unit": unit, "confidence": "estimated", "source": part}
        return replace(self, tree=assign(self.tree, tuple(path), leaf), numbers={**self.numbers, ".".join(path): value})

    def name(self, path: Sequence[str], word: str) -> Refitted:
        """Return the bench with a name in place."""
        return replace(self, tree=assign(self.tree, tuple(path), word))

    def more(self, path: Sequence[str], added: float, unit: str, part: str) -> Refitted:
        """Return the bench with so much more at a path; as it is where nothing stands there."""
        before = self.number(*path)
        if before is None or not added:
            return self
        return self.put(path, before + added, unit, f"{part}: {added:+,.6g} {unit}")

    def dearer(self, added_usd: float, added_w: float, part: str) -> Refitted:
        """Return the bench with servers that cost and draw so much more, and racks of as many of them."""
        servers = self.number("rack", "servers") or 1.0
        found = self.more(("server", "price"), added_usd, "USD", part)
        found = found.more(("rack", "price"), added_usd * servers, "USD", part)
        found = found.more(("rack", "power"), added_w * servers, "W", part)
        return found.more(("server", "rest_power"), added_w, "W", part)


def with_parts(found: Assembled, overrides: Sequence[str], profile: str | None) -> tuple[Assembled, list[str]]:
    """Put parts in place that assignments name, in order; return the system and the assignments that are none.

    Raises:
        UnknownNameError: a part, or a kind of it, that there is not.
        UsageError: a part that the system has no place for.
    """
    parts = [text for text in overrides if _part_of(text) is not None]
    if not parts:
        return found, list(overrides)
    bench = _refitted(found, book_of(found, profile, overrides))
    for text in parts:
        change = _part_of(text)
        assert change is not None
        bench = change(bench, split_override(text)[1].lower())
    return replace(found, tree=bench.tree), [text for text in overrides if text not in parts]


def _refitted(found: Assembled, prices: Prices) -> Refitted:
    """Read the numbers of a system once, in whatever form they are written."""
    intake = Intake()
    inside(SystemSection).read({key: part for key, part in found.tree.items() if key != "prices"}, (), "", intake)
    error = partial(all_of, f"system '{found.file.name}'", intake.faults, in_files(found.origins))
    return Refitted(
        found.tree, {path: number.si for path, number in intake.numbers}, prices, error if intake.faults else None
    )


def _part_of(text: str) -> Callable[[Refitted, str], Refitted] | None:
    return PARTS.get(".".join(split_override(text)[0]))


def _memory(bench: Refitted, word: str) -> Refitted:
    """Replace the stacks of every package: `8xhbm4`."""
    match = _STACKS.fullmatch(word)
    from ..technology.data import load_technology

    technology = load_technology()
    kinds = [name for name, record in technology.section.memories.items() if record.fine_wires]
    if match is None or match[2] not in kinds or not 1 <= int(match[1]) <= 32:
        raise UnknownNameError(f"chip.memory={word}: stacks, as in 8xhbm3e; kinds: {', '.join(kinds)}")
    count, kind, part = int(match[1]), match[2], f"part chip.memory={word}, price book and technology files"
    new = technology.memory(kind)
    stack_bytes, stack_rate = new.capacity.si, new.bytes_per_s
    places = list(_stacks(bench.at("chip", "package"), ("chip", "package"), kinds))
    capacity, rate = (bench.number("chip", "memory", "hbm", key) for key in ("capacity", "bandwidth"))
    if capacity is None or rate is None or len(places) > 1:
        raise UsageError(f"chip.memory={word}: of a chip with one kind of HBM stacks in its package")
    usd = watts = 0.0
    for path in places:
        old = str(bench.at(*path, "memory"))
        before = technology.memory(old)
        old_bytes = (bench.number(*path, "count") or 1.0) * (bench.number(*path, "capacity") or 0.0)
        new_bytes = count * stack_bytes
        usd = new_bytes * bench.price("memories", kind, "price") - old_bytes * bench.price("memories", old, "price")
        # Stacks at their full rate, and what they keep alive.
        watts = count * stack_rate * new.design_j_per_byte - rate * before.design_j_per_byte
        watts += new_bytes * new.leakage.si - old_bytes * before.leakage.si
        bench = bench.name((*path, "memory"), kind).put((*path, "capacity"), stack_bytes, "B", part)
        bench = bench.put((*path, "count"), float(count), "1", part)
    # A chip whose package holds more than its memory shows keeps the share.
    bench = bench.put(("chip", "memory", "hbm", "capacity"), count * stack_bytes, "B", part)
    bench = bench.put(("chip", "memory", "hbm", "bandwidth"), count * stack_rate, "B/s", part)
    bench = bench.more(("chip", "power"), watts, "W", part).more(("chip", "package", "price"), usd, "USD", part)
    chips = bench.number("node", "num_chips") or 1.0
    racks = watts * chips * (bench.number("rack", "servers") or 1.0)
    return bench.dearer(usd * chips, 0.0, part).more(("rack", "power"), racks, "W", part)


def _nic(bench: Refitted, word: str) -> Refitted:
    """Replace the ports, switches and cables of the outermost level of the network: `800g`."""
    level = _levels(bench)[-1]
    path = ("network", level)
    old = bench.at(*path, "equipment", "adapter")
    family = "ethernet" if old is not None and str(old).startswith("ethernet") else "infiniband"
    known = _NETWORKS[family]
    if old is None or word not in known:
        told = "" if old is not None else f"; {level} of this system names no adapter"
        raise UnknownNameError(f"nic={word}: a port of {', '.join(known)}{told}")
    part = f"part nic={word}, network {known[word]}"
    new = section_of(NetworkSection, read_file("networks", known[word]).tree, f"network '{known[word]}'").levels[-1]
    equipment = new.equipment
    assert equipment is not None
    # The rate of a port is in its name: `ndr-400g`.
    each = re.search(r"([0-9]+)g$", str(old))
    ports = 1.0 if each is None else max((bench.number(*path, "bandwidth") or 0.0) * 8e-9 / float(each[1]), 1.0)
    bench = bench.put((*path, "bandwidth"), ports * float(new.bytes_per_s), "B/s", part)
    bench = bench.put((*path, "latency"), float(new.latency_s), "s", part)
    for key in ("switch", "adapter", "cable", "transceiver"):
        name = str(getattr(equipment, key))
        if name and bench.at(*path, "equipment", key) is not None:
            bench = bench.name((*path, "equipment", key), name)
    usd, watts = (
        bench.price("adapters", equipment.adapter, key) - bench.price("adapters", str(old), key)
        for key in ("price", "power")
    )
    num = ports * (bench.number("node", "num_chips") or 1.0)
    return bench.dearer(usd * num, watts * num, part)


def _scale_up(bench: Refitted, word: str) -> Refitted:
    """Make the innermost domain so many chips large: `nvl72`, `144`."""
    match = _DOMAIN.fullmatch(word)
    if match is None or int(match[1]) not in DOMAINS:
        raise UnknownNameError(f"scale-up={word}: chips of a domain, as in nvl72; {', '.join(map(str, DOMAINS))}")
    size, level = int(match[1]), _levels(bench)[0]
    path, part = ("network", level), f"part scale-up={word}"
    before, chips = bench.number(*path, "size"), bench.number("node", "num_chips") or 1.0
    switch, switches = bench.at(*path, "equipment", "switch"), bench.number(*path, "equipment", "switches")
    if before is None or switch is None or switches is None:
        raise UsageError(f"scale-up={word}: {level} of this system has no switches of its own")
    if size < chips or size % chips:
        raise UsageError(f"scale-up={word}: a domain of whole servers, of {chips:g} chips each")
    ports = bench.price("switches", str(switch), "ports")
    tiers, tiers_before = (1 if n <= max(ports, before) else 2 for n in (size, before))
    # Every port of the first tier has one to the second, where half of a switch faces down: three times the switches.
    num = switches * size / before * (3.0 if tiers > tiers_before else 1.0)
    servers, servers_before = size / chips, before / chips
    usd, watts = (
        bench.price("switches", str(switch), key) * (num / servers - switches / servers_before)
        for key in ("price", "power")
    )
    if size > _COPPER >= before:
        rate = bench.number(*path, "bandwidth") or 0.0
        ends = 2.0 * tiers * chips * rate * 8.0 / 800e9
        usd += ends * bench.price("transceivers", "800g", "price")
        watts += ends * bench.price("transceivers", "800g", "power")
    bench = bench.put((*path, "size"), float(size), "1", part)
    bench = bench.put((*path, "equipment", "switches"), float(round(num)), "1", part)
    latency = bench.number(*path, "latency")
    if tiers > tiers_before and latency is not None:
        bench = bench.put((*path, "latency"), latency * (1.0 + _TIER_HOPS), "s", part)
    return bench.dearer(usd, watts, part)


def _rack(bench: Refitted, word: str) -> Refitted:
    """Cool servers and racks by air or liquid: their parts, and the building's cooling and losses."""
    if word not in _COOLING:
        raise UnknownNameError.of("cooling of a rack", word, tuple(_COOLING))
    if bench.at("server") is None:
        raise UsageError(f"rack={word}: this system has no server that a rack could cool")
    before = "air" if bench.at("server", "cooling") in (None, "air") else "liquid"
    if before == word:
        return bench
    part = f"part rack={word}"
    (old, old_rack), (new, new_rack) = _COOLING[before], _COOLING[word]
    share = (bench.number("node", "num_chips") or 8.0) / 8.0
    servers = bench.number("rack", "servers") or 1.0
    usd, watts = (
        share * (bench.price("parts", new, key) - bench.price("parts", old, key))
        + (bench.price("parts", new_rack, key) - bench.price("parts", old_rack, key)) / servers
        for key in ("price", "power")
    )
    bench = bench.name(("server", "cooling"), word)
    swap = {old: new, old_rack: new_rack}
    for path in (("server", "parts"), ("rack", "parts")):
        entries = bench.at(*path)
        if isinstance(entries, list):
            rows = [one for one in entries if isinstance(one, dict)]
            named: list[Tree] = [{**one, "name": swap.get(str(one["name"]), str(one["name"]))} for one in rows]
            bench = replace(bench, tree=assign(bench.tree, path, named))
    return bench.dearer(usd, watts, part)


# What parts are called in assignments.
PARTS: Mapping[str, Callable[[Refitted, str], Refitted]] = MappingProxyType(
    {"chip.memory": _memory, "nic": _nic, "scale-up": _scale_up, "rack": _rack}
)


def _stacks(tree: Tree, path: tuple[str, ...], kinds: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield the places of stacks of memory in what a package holds."""
    if not isinstance(tree, dict):
        return
    if tree.get("memory") in kinds:
        yield path
    contents = tree.get("contents")
    for name, one in zip(names_of(contents), contents if isinstance(contents, list) else (), strict=True):
        yield from _stacks(one, (*path, "contents", name), kinds)


def _levels(bench: Refitted) -> list[str]:
    found = names_of(bench.at("network"))
    if not found:
        raise UsageError("this system has no network whose parts could be changed")
    return found
