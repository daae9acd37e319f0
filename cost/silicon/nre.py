"""What is paid once: design of modules, chips, interfaces and packages, masks; shared by all products that use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...backends.machine.files.number import Number
from ...backends.machine.package import Assembly, Die, Joint, Package
from ...backends.prices.silicon_schema import NodePrices, SiliconSection
from ...ir.errors import UsageError
from ...ir.sizes.expr import Num
from ..bill import Bill
from .dies.wafers import fields, shape
from .packages.built import build
from .packages.joints import layer_factor, wiring


def design_bill(package: Package, others: Sequence[Package], book: SiliconSection) -> Bill:
    """Return a package's part of all designs in it: NRE count / sum over products (count volume).

    UsageError for a product without a volume, or a node whose design nobody has priced.
    """
    products = (package, *others)
    lines = [_share(f"chip {name}", usd, _die_uses(name, products)) for name, usd in _chips(package, book).items()]
    lines += [
        _share(f"interface {kind} {node}", usd, _d2d_uses(kind, node, products))
        for (kind, node), usd in _interfaces(package, book).items()
    ]
    lines += [
        _share(
            f"package {part.design}" if part.design else part.title,
            _shared_usd(part, products, book),
            _assembly_uses(part, products),
        )
        for part, _ in _assemblies(package.assembly)
    ]
    return Bill.of("design", lines)


def chip_usd(die: Die, book: SiliconSection) -> Num:
    """Price the design of a die with its modules and first masks (`models.design`).

    `shares`, after Chiplet Actuary: (0.5 A_modules + 0.3 A) NRE / 300 mm2 + 0.2 NRE; A_modules is without the interface
    to other dies, which `interface_usd` prices. `per_area`, after CATCH: layout by
    area and a mask set for each field. `gates`, after TTM: licences, layout by gates, masks; seats and front-end labour
    are not in it.
    """
    node = book.node(die.node)
    modules = die.area_mm2 if die.design_mm2 is None else die.design_mm2
    match book.model("design"):
        case "per_area":
            return modules * book.design.per_area.si + _masks(die, node, book)
        case "gates":
            density = _known(node.transistor_density, die.node, "transistor_density")
            gates = modules * density / book.design.gate_transistors.si
            labour = gates * _known(node.labour_per_gate, die.node, "labour_per_gate")
            return _known(node.ip_licences, die.node, "ip_licences") + labour + _masks(die, node, book)
        case _:
            share, rest = book.design.module_share.si, book.design.chip_share.si
            per_area = _known(node.design, die.node, "design") / book.design.reference_area.si
            fixed = (1.0 - share - rest) * _known(node.design, die.node, "design")
            return share * per_area * _modules_mm2(die) + rest * per_area * die.area_mm2 + fixed


def _modules_mm2(die: Die) -> Num:
    """Return the area of modules: as described, or all but what the interface to neighbours takes."""
    if die.design_mm2 is not None:
        return die.design_mm2
    if die.d2d is None:
        return die.area_mm2
    # Most packages have no such interface, and need no data of circuits.
    from ...backends.technology.data import load_technology

    phy = load_technology().d2d(die.d2d.kind).phy_mm2(die.d2d.bytes_per_s, die.area_mm2, die.d2d.edges)
    return np.maximum(np.subtract(die.area_mm2, phy), 0.0)


def interface_usd(node: str, book: SiliconSection) -> float:
    """Price the design of an interface between dies, a module of 20 mm2; by area or gates it is part of the die."""
    if book.model("design") != "shares":
        return 0.0
    per_area = _known(book.node(node).design, node, "design") / book.design.reference_area.si
    return book.design.module_share.si * per_area * book.design.d2d_area.si


def assembly_usd(assembly: Assembly, book: SiliconSection) -> Num:
    """Price the design of what joins: a substrate by area and layers, wires by area, each with a part that is fixed.

    A hybrid bond has none: what carries is a die. The fixed part of a fan-out is half of its NRE (its source divides
    it by 300 mm2 as well), and the substrate under wires is designed as any.
    """
    if assembly.joint == "hybrid_bond":
        return 0.0
    level = build(assembly, book).level
    organic = book.packages.organic
    pieces = sum((part.count for part in assembly.contents), start=0.0)
    if assembly.joint == "organic":
        return _substrate_usd(level.carrier_mm2, layer_factor(level.carrier_mm2, pieces, organic), book)
    if assembly.joint == "embedded_bridge":
        bridge = _wires_usd("interposer", book.packages.bridge.area.si, book)
        return _substrate_usd(level.carrier_mm2, layer_factor(level.carrier_mm2, pieces, organic), book) + bridge
    return _wires_usd(assembly.joint, level.carrier_mm2, book) + _substrate_usd(level.footprint_mm2, 1.0, book)


def _shared_usd(part: Assembly, products: Sequence[Package], book: SiliconSection) -> Num:
    """Price the design of what joins; one that products share is made for the one of them that asks most of it."""
    if not part.design:
        return assembly_usd(part, book)
    sharing = (a for p in products for a, _ in _assemblies(p.assembly) if a.design == part.design)
    most: Num = 0.0
    for one in sharing:
        most = np.maximum(most, assembly_usd(one, book))
    return most


def _substrate_usd(area: Num, layers: Num, book: SiliconSection) -> Num:
    organic = book.packages.organic
    return area * organic.design_per_area.si * layers + organic.design.si


def _wires_usd(joint: Joint, area: Num, book: SiliconSection) -> Num:
    prices = wiring(joint, book)
    reference = book.design.reference_area.si
    if prices.design is not None:
        half = 0.5 * prices.design.si
        return half / reference * area + half
    if prices.design_scale is None or prices.design_node is None:
        raise UsageError(f"prices.packages.{joint} has no design, nor design_scale and design_node")
    node = _known(book.node(prices.design_node).design, prices.design_node, "design") * prices.design_scale.si
    fixed = 1.0 - book.design.module_share.si - book.design.chip_share.si
    return book.design.chip_share.si * node / reference * area + fixed * node


def _masks(die: Die, node: NodePrices, book: SiliconSection) -> Num:
    sets = fields(shape(die.area_mm2, die.aspect, book), book) if die.stitched else 1.0
    return _known(node.mask_set, die.node, "mask_set") * sets


def _known(number: Number | None, node: str, key: str) -> float:
    if number is None:
        raise UsageError(f"prices.nodes.{node}.{key} is not known: set it, or describe the package without a volume")
    return number.si


def _share(name: str, usd: Num, uses: tuple[Num, Num]) -> Bill:
    here, everywhere = uses
    values = {"design_usd": usd, "count": here, "made": everywhere}
    return Bill(name, usd * here / everywhere, "design_usd * count / made", values)


def _chips(package: Package, book: SiliconSection) -> dict[str, Num]:
    return {die.name: chip_usd(die, book) for die, _ in package.assembly.counted_dies()}


def _interfaces(package: Package, book: SiliconSection) -> dict[tuple[str, str], Num]:
    dies = (die for die, _ in package.assembly.counted_dies() if die.d2d is not None)
    return {(die.d2d.kind, die.node): interface_usd(die.node, book) for die in dies if die.d2d is not None}


def _volume(package: Package) -> Num:
    if package.volume is None:
        raise UsageError(f"package '{package.assembly.name}' shares designs: give it a volume")
    return package.volume


def _die_uses(name: str, products: Sequence[Package]) -> tuple[Num, Num]:
    counts = [sum((n for die, n in p.assembly.counted_dies() if die.name == name), start=0.0) for p in products]
    return _used(counts, products)


def _d2d_uses(kind: str, node: str, products: Sequence[Package]) -> tuple[Num, Num]:
    counts = [
        sum(
            (
                n
                for die, n in p.assembly.counted_dies()
                if die.d2d is not None and die.d2d.kind == kind and die.node == node
            ),
            start=0.0,
        )
        for p in products
    ]
    return _used(counts, products)


def _assembly_uses(assembly: Assembly, products: Sequence[Package]) -> tuple[Num, Num]:
    """A package without the name of a design is its product's own."""
    mine = [sum((n for a, n in _assemblies(products[0].assembly) if a is assembly), start=0.0)]
    if not assembly.design:
        return _used(mine, products[:1])
    named = [sum((n for a, n in _assemblies(p.assembly) if a.design == assembly.design), start=0.0) for p in products]
    return mine[0], _used(named, products)[1]


def _used(counts: Sequence[Num], products: Sequence[Package]) -> tuple[Num, Num]:
    """Return how many this product has in one package, and how many all products have in all."""
    made = sum((n * _volume(p) for n, p in zip(counts, products, strict=True)), start=0.0)
    return counts[0], made


def _assemblies(assembly: Assembly, times: Num = 1.0) -> Iterator[tuple[Assembly, Num]]:
    yield assembly, times
    for part in assembly.contents:
        if isinstance(part, Assembly):
            yield from _assemblies(part, part.count * times)
