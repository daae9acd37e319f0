"""The axes of a space of designs as `slipstick sweep` has them: flags as typed, and the space that they span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..flags.request import PlanCommand
from ..output.answers import DRAWN_FORMS, Answering
from ..output.files import write_text
from ..search.sampling import KEYS, Sampling, options

if TYPE_CHECKING:
    from ...explore.designs.space import DesignSpace
    from ...report.results.result import Result

# Designs that an optimiser chooses at once by default: they are priced as a table.
AT_ONCE = 32
STUDY = click.Option(
    ["--study"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep the trials of the optimiser here, as a journal of Optuna, and resume those that it holds.",
)


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


class SweepCommand(Answering, PlanCommand):
    """A verb whose function receives the axes of a space as one `axes`, and `sampling`, beside its `request`."""

    delivered: ClassVar[tuple[str, ...]] = ("form", "output", "best_system")
    forms: ClassVar[tuple[str, ...]] = DRAWN_FORMS
    # Defaults of one's own for all verbs are not of this one, which makes its systems.
    refused: ClassVar[tuple[str, ...]] = ("system", "rent")
    more = (("Optimiser", (*options(AT_ONCE), STUDY)),)

    def deliver(self, result: Result, form: str, said: Mapping[str, object]) -> int:
        """Write the designs, and the system of the first row."""
        from ...report.results.tables import SweepResult

        assert isinstance(result, SweepResult)
        super().deliver(result, form, said)
        if said["best_system"] is not None:
            write_text(result.system(), str(said["best_system"]))
        return 0

    def answer(self, ctx: click.Context) -> Result:
        """Run the verb's function."""
        ctx.params["sampling"] = Sampling(**{name: ctx.params.pop(name) for name in KEYS})
        ctx.params["axes"] = Axes(**{f.name: ctx.params.pop(f.name) for f in fields(Axes)})
        return super().answer(ctx)
