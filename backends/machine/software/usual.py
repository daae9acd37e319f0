"""The software that usually runs a plan on a chip, where nobody names any: the rows of `usual_software.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from ....ir.plan.words import PlanWords
from ..files.catalogue import NO_SOFTWARE, names, read_file, read_table
from ..files.kinds import Key, Least
from ..files.section import Section, section_of

_TABLE = "usual_software"


class UsualSoftware(Section):
    """One row: plans that it is for, and the stack that runs them. What it leaves open holds for all."""

    called = "row"

    stack: Annotated[str, Key(needed=True)] = NO_SOFTWARE
    phases: tuple[Literal["train", "prefill", "decode", "serve"], ...] = ()
    makers: tuple[str, ...] = ()
    split: tuple[Literal["tp", "pp", "cp", "ep"], ...] = ()
    own_module: bool | None = None

    def fits(self, phase: str, maker: str, words: PlanWords, own_module: bool) -> bool:
        """Whether a plan is one of those that this row is for."""
        return (
            (not self.phases or phase in self.phases)
            and (not self.makers or maker in self.makers)
            and (not self.split or any(getattr(words, name) > 1 for name in self.split))
            and self.own_module in (None, own_module)
        )


class UsualSoftwareTable(Section):
    """All rows, in order."""

    rows: Annotated[tuple[UsualSoftware, ...], Least()]


def choose_stack(phase: str, chip: str, words: PlanWords, own_module: bool = False) -> str:
    """Return the stack that usually runs a plan, `none` where the catalogue has no such software.

    Args:
        phase: train, prefill, decode or serve.
        chip: as its maker calls it.
        words: the plan; of a search the widest one.
        own_module: whether the model is the user's own code or file, not a config.

    >>> choose_stack("train", "H100-SXM5-80GB", PlanWords(tp=8)), choose_stack("train", "TPU-v5p", PlanWords(tp=8))
    ('megatron-core', 'none')
    """
    from ..chip import maker_of

    maker = maker_of(chip)
    return next(row.stack for row in usual_rows() if row.fits(phase, maker, words, own_module))


def usual_stack(system: str | Path, words: PlanWords, own_module: bool = False) -> str | None:
    """Return the stack that usually runs a plan on a system of the catalogue or of a file, before it is loaded.

    None where the file of the system names its own. UnknownNameError and SystemFileError as `load_system`.
    """
    file = read_file("systems", system)
    if "stack" in file.tree:
        return None
    chip = file.tree.get("chip")
    tree = read_file("chips", chip, file.folder).tree if isinstance(chip, str) else chip
    name = tree.get("name") if isinstance(tree, dict) else None
    return choose_stack(words.phase, str(name or ""), words, own_module)


@cache
def usual_rows() -> tuple[UsualSoftware, ...]:
    """Return the rows of the table."""
    file = read_table(_TABLE)
    return section_of(UsualSoftwareTable, file.tree, file.where).rows


@cache
def usual_engine() -> str:
    """Return the engine that serves where nobody names any."""
    return choose_stack("serve", "", PlanWords())


def engine_of_stack(stack: str) -> str | None:
    """Return the serving engine of the same name as a stack, with its version if any; None where there is none.

    >>> engine_of_stack("vllm@0.6"), engine_of_stack("megatron-core")
    ('vllm@0.6', None)
    """
    return stack if stack.partition("@")[0] in names("engines") else None
