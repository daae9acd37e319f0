"""Designs as machines: the file of one of them, and all of them as columns of numbers in its place."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ...backends.machine.load import read_system
from ...backends.machine.package import Package
from ...backends.machine.system import System
from ...backends.machine.system_table import machine_numbers, tabled
from ...backends.network.topology.level import NetworkLevel
from ...backends.technology.design import Design
from ...backends.technology.files.chip_file import system_text
from ...backends.technology.files.package_file import Sale
from ...backends.technology.files.surroundings import scale_of
from ...backends.technology.packaging import packaged
from ...ir.errors import UsageError
from .setting import DesignSetting
from .space import DesignForm

# What a system is called that nobody named.
_NAME = "designed"
# The level of the lanes between packages, in the file of a design.
_LANES = "scale-up"
_OWN_LEVEL = re.compile(r"network\.(d2d|scale-up)\.(bandwidth|link_bandwidth|links|size|topology|dims)")


def machine_text(form: DesignForm, design: Design, setting: DesignSetting, name: str = _NAME) -> str:
    """Return the machine of one design as YAML, as `slipstick design system` writes it."""
    return system_text(
        design,
        name,
        setting.num_packages,
        setting.network,
        setting.technology,
        form.joint,
        setting.like,
        Sale(setting.volume, setting.gross_margin),
    )


def machine_of(form: DesignForm, design: Design, setting: DesignSetting) -> System:
    """Return the machine of one design, as its file says it.

    Raises:
        UsageError: an assignment to a number that each design has of its own.
        UnknownNameError: a network, software or system that there is not.
    """
    for text in setting.overrides:
        # Refuse to set what follows from a design's budget.
        path = text.partition("=")[0].strip()
        if path.startswith("chip.") or path == "node.num_chips" or _OWN_LEVEL.fullmatch(path):
            raise UsageError(
                f"cannot set '{text}': each design has its own, which follows from its budget; set numbers of the"
                " technology, prices, stack, server, rack, or latencies and efficiencies of network levels"
            )
    text = machine_text(form, design, setting)
    system = read_system(text, _NAME, setting.stack, None, setting.calibration, setting.overrides)
    return replace(system, own_prices=setting.prices)


def machines_of(machine: System, made: Design, package: Package, like: str) -> System:
    """Return a table of machines: one of them, with the numbers of all designs as columns."""
    known = machine_numbers(machine)
    num = len(made.fit.reason)
    numbers = {k: np.broadcast_to(np.asarray(v), num) for k, v in made.columns().items() if k in known}
    table = tabled(machine, numbers)
    # Each number of a design comes with its package and its lanes.
    return replace(
        table,
        changed=machine.changed,
        package=package,
        levels=tuple(_switched(level, machine.node_size, like, made) for level in table.levels),
    )


def _switched(level: NetworkLevel, node_size: int, like: str, made: Design) -> NetworkLevel:
    """The level of the lanes with their energy and as many switches as each design needs, as its file says it."""
    equipment = level.equipment
    if level.name != _LANES or not like or equipment is None:
        return level
    if equipment.switches is not None:
        switches = scale_of(like).switches_for(node_size * level.bytes_per_s)
        equipment = replace(equipment, switches=switches)
    if equipment.energy_j_per_byte is not None:
        equipment = replace(equipment, energy_j_per_byte=made.network.j_per_byte)
    return replace(level, equipment=equipment)


def package_of(made: Design, form: DesignForm, setting: DesignSetting) -> Package:
    """Return the package of designs, with what its maker asks for."""
    package = packaged(made, setting.technology, form.joint)
    return replace(package, volume=setting.volume, gross_margin=setting.gross_margin)
