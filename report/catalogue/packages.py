"""What chips are packaged in and systems are built of, in a line for people."""

from __future__ import annotations

from collections.abc import Iterator

from ...backends.machine.machine import FittedPart, LevelEquipment, Rack, ServerNode
from ...backends.machine.package import Assembly, Die, Package, Stack
from ...backends.machine.system import System
from ...ir.units import format_bytes, format_si


def package_text(package: Package) -> str:
    """Describe a package.

    >>> stack = Stack("hbm3", 16 * 2**30, 5.0)
    >>> package_text(Package(Assembly("package", "interposer", (Die("gh100", "N4", 814.0), stack))))
    'interposer (gh100 of 814 mm2 in N4, 5 hbm3 of 16 GiB)'
    """
    beside = "".join(f"; beside it {_part(stack)}" for stack in package.beside)
    ranks = f"; {package.num_ranks} ranks" if package.num_ranks > 1 else ""
    return f"{_assembly(package.assembly)}{beside}{ranks}"


def _assembly(assembly: Assembly) -> str:
    return f"{assembly.joint.replace('_', ' ')} ({', '.join(map(_part, assembly.contents))})"


def _part(part: Die | Stack | Assembly) -> str:
    count = "" if float(part.count) == 1 else f"{float(part.count):g} "
    if isinstance(part, Assembly):
        return f"{count}{_assembly(part)}"
    if isinstance(part, Stack):
        return f"{count}{part.kind} of {format_bytes(float(part.num_bytes))}"
    return f"{count}{part.name} of {float(part.area_mm2):g} mm2 in {part.node}"


def machine_lines(system: System) -> Iterator[str]:
    """Describe what a system is bought as or built of, a line for each part that its file has."""
    if system.package is not None:
        yield f"package: {package_text(system.package)}"
    if system.server is not None:
        yield f"server: {_server(system.server)}"
    if system.rack is not None:
        yield f"rack: {_rack(system.rack)}"
    for level in system.levels:
        if level.equipment is not None:
            yield f"{level.name}: {_equipment(level.equipment)}"
    yield f"prices: {'usual' if system.own_prices is None else system.own_prices.name} (slipstick show prices)"


def _server(server: ServerNode) -> str:
    cooled = f"cooled by {server.cooling or 'air'}"
    return ", ".join([*_bought(server.price_usd, server.has_adapters), *_fitted(server.parts), cooled])


def _rack(rack: Rack) -> str:
    return ", ".join([f"{rack.num_servers} servers", *_bought(rack.price_usd, rack.has_adapters), *_fitted(rack.parts)])


def _bought(price_usd: object, has_adapters: bool) -> Iterator[str]:
    if isinstance(price_usd, float):
        yield f"bought for {format_si(price_usd, 'USD')} with{'' if has_adapters else 'out'} adapters"


def _fitted(parts: tuple[FittedPart, ...]) -> Iterator[str]:
    yield from (part.part if float(part.count) == 1 else f"{float(part.count):g} {part.part}" for part in parts)


def _equipment(equipment: LevelEquipment) -> str:
    """Names of the price book; a number of switches or adapters where there is more than what topology gives."""
    switches = "" if equipment.switches is None else f"{float(equipment.switches):g} "
    adapters = "" if float(equipment.adapters) == 1 else f"{float(equipment.adapters):g} "
    named = [
        f"{count}{name}"
        for count, name in (
            (switches, equipment.switch),
            (adapters, equipment.adapter),
            ("", equipment.cable),
            ("", equipment.transceiver and f"{equipment.transceiver} optics"),
            ("", equipment.fibre),
        )
        if name
    ]
    return ", ".join(named) or "part of what is bought"
