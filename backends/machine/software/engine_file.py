"""Serving engines of the catalogue and of users: read, laid over one another, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..files.catalogue import OWN, File, laid_over, lineage, names, read_file, read_stack
from ..files.faults import in_files
from ..files.records import NumberRecord
from ..files.section import numbered, section_of
from ..files.system_overrides import override
from ..files.system_tree import Tree
from .engine import OF_STACK, Engine, EngineAccuracy
from .engine_schema import EngineFile, EngineFitSection

_KIND = "engines"
_CALLED = "an engine"


def load_engine(
    name_or_path: str | Path, chip: str | None = None, overrides: Sequence[str] = (), fitted: bool = True
) -> Engine:
    """Read a serving engine of the catalogue by name, or a YAML file by path, as it is on a chip.

    Args:
        name_or_path: `vllm`, `vllm@0.6` or `vllm@2024-06`, or a path that ends in .yaml or .yml.
        chip: name of the chip, in the catalogue or as `Chip.name` has it: what the file says of that chip alone is
            laid over the rest.
        overrides: `overheads.step=1ms`, applied in order before anything is checked.
        fitted: with the numbers that were fitted for it, else as people set them.

    UnknownNameError names the nearest; SystemFileError lists everything that is wrong with a file.

    >>> load_engine("vllm", "h100-sxm-80gb").scheduler.block_tokens
    16
    """
    chain = lineage(name_or_path, unfitted=() if fitted else (str(name_or_path),), kind=_KIND)
    file, tree = chain[0], _laid(chain, chip)
    for text in overrides:
        tree = override(tree, text, EngineFile, _CALLED)
    read, numbers = numbered(EngineFile, tree, f"engine '{file.name}'", in_files([file.origin()]))
    tuned = tuple((n.path.removeprefix(OF_STACK), n.value_si) for n in numbers if n.path.startswith(OF_STACK))
    return replace(read.engine, tuned=tuned, sources=numbers, accuracy=_accuracy(chain, chip))


def engine_numbers(name_or_path: str | Path) -> tuple[NumberRecord, ...]:
    """Return every number of an engine with its unit and source, those that hold on one chip only behind the others."""
    found = list(load_engine(name_or_path).sources)
    known = {number.path: number for number in found}
    for chip in _chips(read_stack(name_or_path, kind=_KIND).tree):
        there = load_engine(name_or_path, chip).sources
        found += [replace(n, path=f"chips.{chip}.{n.path}") for n in there if n != known.get(n.path)]
    return tuple(found)


def engine_names() -> tuple[str, ...]:
    """Name the engines of the catalogue.

    >>> "vllm" in engine_names()
    True
    """
    return names(_KIND)


def _laid(chain: Sequence[File], chip: str | None) -> dict[str, Tree]:
    """Lay an engine over those that it is like, each as it is on the chip: what is nearer goes first, chip or not."""
    tree: dict[str, Tree] = {}
    for file in reversed(chain):
        tree = laid_over({key: value for key, value in tree.items() if key not in OWN}, _on(file.tree, chip))
    return tree


def _on(tree: dict[str, Tree], chip: str | None) -> dict[str, Tree]:
    """Lay what an engine says of a chip alone over the rest."""
    rest = {key: value for key, value in tree.items() if key != "chips"}
    for name, here in _chips(tree).items():
        if isinstance(here, dict) and chip is not None and chip in (name, _shown(name)):
            return laid_over(rest, _alike(_chips(tree), here))
    return rest


def _alike(chips: dict[str, Tree], here: dict[str, Tree]) -> dict[str, Tree]:
    """Lay what is said of a chip over what is said of the one that it is `like`: of the same die, say."""
    own = {key: value for key, value in here.items() if key != "like"}
    if "like" not in here:
        return own
    name = str(here["like"])
    other = chips.get(name)
    if isinstance(other, dict):
        return laid_over(_alike(chips, other), own)
    _shown(name)  # of a chip that there is nothing is given, and one that there is not is refused
    return own


def _accuracy(chain: Sequence[File], chip: str | None) -> EngineAccuracy | None:
    """What the record of a fit says of a chip, or of the one that it is like; of the nearest engine that has one."""
    for file in chain:
        chips = _chips(file.tree)
        name = next((one for one in chips if chip is not None and chip in (one, _shown(one))), None)
        while name is not None:
            here = chips.get(name)
            if not isinstance(here, dict):
                break
            if "fit" in here:
                return _as_accuracy(str(file.tree.get("name", file.name)), str(_shown(name)), here["fit"])
            name = str(here["like"]) if "like" in here else None
    return None


def _as_accuracy(engine: str, chip: str, tree: Tree) -> EngineAccuracy | None:
    fit = section_of(EngineFitSection, tree if isinstance(tree, dict) else {}, f"fit of engine '{engine}'")
    found = fit.judged or fit.fitted
    if not found:
        return None
    return EngineAccuracy(
        engine, chip, int(found.get("rows", 0)), found.get("median", 0.0), found.get("p90", 0.0), fit.judged is not None
    )


def _chips(tree: dict[str, Tree]) -> dict[str, Tree]:
    chips = tree.get("chips")
    return chips if isinstance(chips, dict) else {}


def _shown(name: str) -> Tree:
    """The name that a chip of the catalogue has for people; UnknownNameError where there is no such chip."""
    return read_file("chips", name).tree.get("name")
