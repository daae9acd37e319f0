"""Files that say what is not typed: a launch of another framework, and over it a plan file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...ir.records import dataclass
from ..arguments.options import Opt
from ..sources import Layer, Setting, Source
from .file import read_plan, read_plan_file

if TYPE_CHECKING:
    from ...frameworks.imported import LaunchAround


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRead:
    """What files say to a verb, by fields; whose launch that is; and what a launch counts over what is typed."""

    layer: Layer
    framework: str | None = None
    counted: Layer


def read_files(
    verb: str, options: Mapping[str, Opt], nearer: Mapping[str, object], say: Callable[[str], None]
) -> FilesRead:
    """Return what a launch and a plan file say to a verb with these words; `nearer` is what is typed, or a default.

    A plan file overrides the launch, and is part of what the launch is read with, as what is typed of its GPUs, system,
    model and variables is. GPUs as the launch counts them override what is typed of them. `say` gets its notes.
    """
    path, launch = nearer.get("plan"), nearer.get("launch")
    plan = None if path is None else read_plan_file(str(path), verb, options)
    layer = {} if plan is None else {name: Setting(value, Source.PLAN) for name, value in plan.values.items()}
    framework, counted = None if plan is None else plan.framework, dict[str, Setting]()
    if launch is not None:
        from ...frameworks.imported import import_launch

        above = {**({} if plan is None else plan.values), **nearer}
        imported = import_launch((str(launch),), _around(above))
        read = read_plan(imported.text, str(launch), verb, options)
        layer = {**{name: Setting(value, Source.LAUNCH) for name, value in read.values.items()}, **layer}
        framework = framework or read.framework
        place = "the launch" if " " in str(launch) else launch
        for line in imported.notes:
            say(f"note: {place}: {line}")
        counted = {"gpus": Setting(imported.words["gpus"], Source.TYPED)} if above.get("gpus") else {}
    return FilesRead(layer=layer, framework=framework, counted=counted)


def _around(values: Mapping[str, object]) -> LaunchAround:
    """Return what is said around a launch, of values by the fields of requests."""
    from ...frameworks.imported import LaunchAround

    gpus, system, model = (values.get(name) for name in ("gpus", "system", "model"))
    listed = values.get("environment")
    return LaunchAround(
        num_gpus=gpus if isinstance(gpus, int) else None,
        system=None if system is None else str(system),
        model=None if model is None else str(model),
        environment=tuple(map(str, listed)) if isinstance(listed, list | tuple) else (),
    )
