"""The axes of a space of designs as typed, and the space that they span."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.errors import UsageError
from ...ir.records import dataclass

if TYPE_CHECKING:
    from ...explore.designs.space import DesignSpace

# Designs that an optimiser chooses at once by default: they are priced as a table.
AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What a user may choose a design from, as typed."""

    node: str
    die_area: str
    power: str | None
    power_density: str | None
    chiplets: str
    d2d: str
    d2d_bandwidth: str | None
    join: str | None
    unit: str
    memory: str
    stacks: str | None
    link: str
    joint: str | None
    cooling: str

    def space(self) -> DesignSpace:
        """Return the space; UsageError for what is no axis, or belongs to another one that is missing."""
        from ...backends.technology.d2d import as_join
        from ...backends.technology.files.package_file import as_joint
        from ...explore.designs.axes import axis, counts, words
        from ...explore.designs.space import DesignSpace

        if (self.power is None) == (self.power_density is None):
            raise UsageError("a design needs one of --power, of a package, and --power-density, of a mm2 of its dies")
        interfaces = tuple("" if word == "none" else word for word in words(self.d2d)) or ("",)
        if not any(interfaces) and (self.d2d_bandwidth or self.join):
            given = "--d2d-bandwidth" if self.d2d_bandwidth else "--join"
            raise UsageError(f"{given} is of an interface between dies: say which, as in --d2d ucie-advanced")
        watts = (
            axis(self.power, "W", "--power")
            if self.power
            else axis(self.power_density or "", "W/mm2", "--power-density")
        )
        return DesignSpace(
            nodes=words(self.node),
            die_mm2=axis(self.die_area, "mm2", "--die-area"),
            power_w=watts,
            num_dies=counts(self.chiplets, "--chiplets"),
            units=words(self.unit),
            memories=words(self.memory),
            num_stacks=counts(self.stacks, "--stacks") if self.stacks is not None else (),
            links=words(self.link),
            joints=tuple(as_joint(word) for word in words(self.joint or "")),
            d2d=interfaces,
            d2d_bytes_per_s=axis(self.d2d_bandwidth, "B/s", "--d2d-bandwidth") if self.d2d_bandwidth else (),
            joins=tuple(as_join(word) for word in words(self.join or "line")),
            coolings=words(self.cooling) or ("",),
            power_is_density=self.power is None,
        )
