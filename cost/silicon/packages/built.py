"""A tree of dies, memories and assemblies, built from the inside out; lines gathered by what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ....backends.machine.package import Assembly, Die, Stack
from ....backends.prices.silicon_schema import SiliconSection
from ....ir.errors import UsageError
from ....ir.records import dataclass
from ....ir.sizes.expr import Num
from ...bill import Bill
from ..dies.die import GoodDie, good_die
from .assembly import put_together
from .hybrid import of_whole_wafers, stacked
from .joints import joined
from .level import AssemblyContents, GoodAssembly


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a bill by what they are: the five parts of Chiplet Actuary, memory and tests."""

    raw_chips: tuple[Bill, ...] = ()
    chip_defects: tuple[Bill, ...] = ()
    raw_package: tuple[Bill, ...] = ()
    package_defects: tuple[Bill, ...] = ()
    wasted: tuple[Bill, ...] = ()
    memory: tuple[Bill, ...] = ()
    tests: tuple[Bill, ...] = ()

    def __add__(self, other: Lines) -> Lines:
        return Lines(*(mine + its for mine, its in zip(self._all(), other._all(), strict=True)))

    def times(self, count: Num) -> Lines:
        """Return the lines so many times."""
        return Lines(*(tuple(line.times(count) for line in lines) for lines in self._all()))

    def _all(self) -> tuple[tuple[Bill, ...], ...]:
        own = (self.raw_chips, self.chip_defects, self.raw_package, self.package_defects)
        return (*own, self.wasted, self.memory, self.tests)


@dataclass(frozen=True, slots=True)
class BuiltAssembly:
    """An assembly with all its lines, those of what it holds as well; `inner` are assemblies by their place in it."""

    assembly: Assembly
    level: GoodAssembly
    lines: Lines
    contents: AssemblyContents
    inner: Mapping[int, BuiltAssembly]


def build(assembly: Assembly, book: SiliconSection) -> BuiltAssembly:
    """Price one assembly from the inside out; designs of a table that cannot be are no numbers, or infinite."""
    if not assembly.contents:
        raise UsageError(f"assembly '{assembly.name}' holds nothing: give it a die")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _build(assembly, book)


def _build(assembly: Assembly, book: SiliconSection) -> BuiltAssembly:
    inner = {place: build(part, book) for place, part in _assemblies(assembly)}
    dies = _dies(assembly, book)
    contents = _contents(assembly, dies, inner, book)
    level = _level(assembly, contents, dies, inner, book)
    lines = Lines()
    for place, part in enumerate(assembly.contents):
        found = _lines_of(part, dies.get(place), inner.get(place), book)
        lines += found.times(part.count)
    # What joining adds, each line under the name of the assembly.
    name = assembly.name
    own_lines = Lines(
        raw_chips=_named(f"{name} bumps", [level.bumps]),
        raw_package=(Bill.of(name, level.raw),),
        package_defects=_named(name, [level.package_defects]),
        wasted=_named(name, [level.wasted]),
        tests=_named(name, [level.test]),
    )
    return BuiltAssembly(assembly, level, lines + own_lines, contents, inner)


def _level(
    assembly: Assembly,
    contents: AssemblyContents,
    dies: dict[int, GoodDie],
    inner: dict[int, BuiltAssembly],
    book: SiliconSection,
) -> GoodAssembly:
    if assembly.joint != "hybrid_bond":
        by_tree = book.model("assembly") == "tree"
        return put_together(assembly, contents, book) if by_tree else joined(assembly, contents, book)
    base = dies[0].die.area_mm2 if 0 in dies else inner[0].level.footprint_mm2 if 0 in inner else None
    if base is None:
        raise UsageError(f"assembly '{assembly.name}': the first content carries the others; memory cannot")
    return stacked(assembly, contents, base, book)


def _assemblies(assembly: Assembly) -> Iterator[tuple[int, Assembly]]:
    for place, part in enumerate(assembly.contents):
        if isinstance(part, Assembly):
            yield place, part


def _dies(assembly: Assembly, book: SiliconSection) -> dict[int, GoodDie]:
    """Price the dies of an assembly, by their place in it."""
    found = {k: good_die(part, book) for k, part in enumerate(assembly.contents) if isinstance(part, Die)}
    if assembly.joint != "hybrid_bond" or assembly.bonding == "die_to_wafer":
        return found
    if len(found) != len(assembly.contents):
        raise UsageError(f"assembly '{assembly.name}': whole wafers are bonded of dies alone; use die_to_wafer")
    return dict(zip(found, of_whole_wafers(tuple(found.values()), book), strict=True))


def _contents(
    assembly: Assembly, dies: dict[int, GoodDie], inner: dict[int, BuiltAssembly], book: SiliconSection
) -> AssemblyContents:
    """Add up what is put on a substrate."""
    usd: Num = 0.0
    area: Num = 0.0
    pieces: Num = 0.0
    quality: Num = 1.0
    for place, part in enumerate(assembly.contents):
        one = _one(part, dies.get(place), inner.get(place), book)
        usd = usd + one.usd * part.count
        area = area + one.area_mm2 * part.count
        pieces = pieces + part.count
        quality = quality * np.power(one.quality, part.count)
    return AssemblyContents(usd, area, pieces, quality)


def _one(
    part: Die | Stack | Assembly, die: GoodDie | None, built: BuiltAssembly | None, book: SiliconSection
) -> AssemblyContents:
    """Return one of a content as it is put down."""
    if die is not None:
        return AssemblyContents(die.usd, die.die.area_mm2, 1.0, die.test.quality)
    if built is not None:
        return AssemblyContents(built.level.usd, built.level.footprint_mm2, 1.0, built.level.quality)
    assert isinstance(part, Stack)
    return AssemblyContents(memory_line(part, book).usd, book.memory(part.kind).footprint.si, 1.0)


def _lines_of(
    part: Die | Stack | Assembly, die: GoodDie | None, built: BuiltAssembly | None, book: SiliconSection
) -> Lines:
    """Return the lines of one of a content."""
    if built is not None:
        return built.lines
    if die is not None:
        name = die.die.name
        return Lines((die.raw_line(name),), (die.defect_line(name),), tests=(die.test_line(name),))
    assert isinstance(part, Stack)
    return Lines(memory=(memory_line(part, book),))


def memory_line(stack: Stack, book: SiliconSection) -> Bill:
    """Return the line of one stack or device of memory; scenarios of DRAM leave what its base die costs."""
    kind = book.memory(stack.kind)
    factor, price, path = book.dram_factor.si, kind.price.si, f"prices.memories.{stack.kind}"
    values, numbers = {"num_bytes": stack.num_bytes, "usd_per_byte": price}, [f"{path}.price"]
    usd, formula, base = stack.num_bytes * price, "num_bytes * usd_per_byte", None
    if kind.base_die is not None:
        below = kind.base_die
        base = good_die(Die("base die", below.node, below.area.si), book).usd
        usd, formula, values = usd - base, f"({formula} - base_usd)", {**values, "base_usd": base}
        numbers += [f"{path}.base_die.area", f"prices.nodes.{below.node}.wafer_price"]
    if factor != 1.0:
        usd, formula, values = usd * factor, f"{formula} * scenario", {**values, "scenario": factor}
        numbers.append(f"prices.dram.{book.model('dram')}")
    if base is None:
        return Bill(stack.name, usd, formula, values, tuple(numbers))
    logic = Bill("base die", base, "base_usd", {"base_usd": base}, tuple(numbers[1:3]))
    return Bill.of(stack.name, [Bill("DRAM", usd, formula, values, tuple(numbers)), logic])


def _named(name: str, lines: Sequence[Bill]) -> tuple[Bill, ...]:
    return tuple(Bill(name, line.usd, line.formula, line.values, line.numbers, line.parts) for line in lines)
