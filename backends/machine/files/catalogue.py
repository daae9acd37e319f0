"""Files of the catalogue and of users: found by name or path, and what they refer to put in its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ....ir.errors import SystemFileError, UnknownNameError
from ....ir.records import dataclass
from ....ir.text.untrusted import read_settings
from .faults import FileOrigin, Keys
from .versions import AT, Dated, Validity, chosen

if TYPE_CHECKING:
    from .system_tree import Tree

# Calibrations over one another, each with its name; the last goes before the others.
Layers: TypeAlias = "list[tuple[str, dict[str, Tree]]]"

_BACKENDS = Path(__file__).parents[2]
# Numbers of stacks, and of engines, that were fitted to measurements: a file for each that has any, of the same name.
FITS = "stack_fits"
ENGINE_FITS = "engine_fits"
# The stack of the pure machine, as people call it.
NO_SOFTWARE = "none"
# What a file of software says of itself, which one that is like it does not take over.
OWN = frozenset({"fit", "version_of", "versions", "since", "until"})
# A mapping with one of these is one number, or the constants of one kind: whole, whatever it is laid over.
_NUMBER_KEYS = frozenset({"value", "source"})
# Classes of kernels whose constants are those of links between chips.
_OF_LINKS = frozenset({"collective", "custom_all_reduce", "exchange"})
# Constants of chips whose matrix units are systolic arrays, over those that carry over to any chip.
SYSTOLIC = "systolic"


@dataclass(frozen=True, slots=True)
class File:
    """A file that was read: what people call it, where it is, what is in it, or in the part of it at some keys."""

    name: str
    where: str
    file: Path
    tree: dict[str, Tree]
    part: Keys = ()

    @property
    def folder(self) -> Path:
        """Where a file lies, which is where paths in it start."""
        return self.file.parent

    def origin(self, keys: Keys = (), inner: Keys = (), layer: str | None = None) -> FileOrigin:
        """Say that a part of a tree is a part of this file."""
        return FileOrigin(keys, self.where, self.file, (*self.part, *inner), layer)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A system with what it refers to in place, the calibrations of its kernels, and where each part was read."""

    file: File
    tree: dict[str, Tree]
    layers: Layers
    origins: tuple[FileOrigin, ...]


def names(kind: str) -> tuple[str, ...]:
    """Name what the catalogue has of a kind: systems, chips, networks, stacks or calibration.

    >>> "ndr-infiniband" in names("networks")
    True
    """
    files = (_BACKENDS / kind).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def read_file(kind: str, name_or_path: str | Path, folder: Path | None = None) -> File:
    """Read a file of the catalogue by its name, or one by its path, which starts from `folder`.

    UnknownNameError names the nearest in the catalogue; SystemFileError says why a file cannot be read.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        return _of_catalogue(kind, str(name_or_path))
    path = path if folder is None else folder / path
    return read_at(path.name, str(path), path, f"{kind.removesuffix('s')} file '{path}'")


@cache
def systems_by_chip() -> Mapping[str, str]:
    """Map what makers call the chips of the catalogue to the first system of each."""
    # None is parsed: their texts say whose they are.
    called = {one: _after("\nname: ", "chips", one) for one in names("chips")}
    return {called[_after("\nchip: ", "systems", one)]: one for one in reversed(names("systems"))}


def measured_machine(chip: Tree) -> dict[str, Tree] | None:
    """Return chip and network of the system of the catalogue whose chip has the same name; None where none has."""
    name = chip.get("name") if isinstance(chip, dict) else None
    called = systems_by_chip().get(name) if isinstance(name, str) else None
    if called is None:
        return None
    system = _of_catalogue("systems", called)
    from ...network.topology.edges import with_edges

    levels = _levels(system, system.tree.get("network"))
    measured = _of_catalogue("chips", str(system.tree["chip"])).tree
    return {"chip": measured, "network": [with_edges(level, part.folder) for level, part, _ in levels]}


def _after(key: str, kind: str, name: str) -> str:
    return ("\n" + (_BACKENDS / kind / f"{name}.yaml").read_text(encoding="utf-8")).partition(key)[2].partition("\n")[0]


def read_stack(
    name_or_path: str | Path, folder: Path | None = None, unfitted: Collection[str] = (), kind: str = "stacks"
) -> File:
    """Read a software stack, or an engine; one that is `like` another has what it does not say itself from that one.

    SystemFileError where stacks are like one another in a circle.
    """
    file, *above = lineage(name_or_path, folder, unfitted, kind)
    tree: dict[str, Tree] = {}
    for other in reversed(above):
        tree = laid_over(tree, {key: value for key, value in other.tree.items() if key not in OWN})
    return replace(file, tree=laid_over(tree, file.tree))


def on_chip(stack: dict[str, Tree], chip: Tree) -> dict[str, Tree]:
    """Return a stack as it is on a chip: what it says of that chip alone laid over the rest.

    >>> on_chip({"kernels": "eager", "chips": {"a100": {"kernels": "fused"}}}, "a100")
    {'kernels': 'fused'}
    """
    rest = {key: value for key, value in stack.items() if key != "chips"}
    chips = stack.get("chips")
    here = chips.get(chip) if isinstance(chips, dict) and isinstance(chip, str) else None
    return laid_over(rest, here) if isinstance(here, dict) else rest


def lineage(
    name_or_path: str | Path, folder: Path | None = None, unfitted: Collection[str] = (), kind: str = "stacks"
) -> tuple[File, ...]:
    """Return a stack (or an engine), the one it is `like`, and so on, each with what stands in its own file alone.

    Over one of the catalogue lie the numbers that were fitted for it, unless it is one of `unfitted`.
    SystemFileError where some are like one another in a circle.
    """
    found: list[File] = []
    wanted: Tree = dated(kind, str(name_or_path)).name
    while wanted is not None:
        if not isinstance(wanted, str) or any(_same(wanted, folder, file, kind) for file in found):
            one, last = kind.removesuffix("s"), found[-1].name
            raise SystemFileError(f"{one} '{last}': like: {wanted} names no other {one} that ends the chain")
        file = read_file(kind, wanted, folder)
        tree = file.tree if wanted in unfitted else _with_fit(wanted, file.tree, kind)
        wanted, folder = tree.get("like"), file.folder
        found.append(replace(file, tree={key: value for key, value in tree.items() if key != "like"}))
    return tuple(found)


def dated(kind: str, name: str) -> Dated:
    """Return which file of the catalogue stands for `vllm@0.6`; a name without a version, or a path, for itself.

    >>> dated("engines", "vllm@0.6.3").name
    'vllm-0.6'
    """
    if kind == "stacks" and name == NO_SOFTWARE:
        return Dated("default")
    product, at, _ = name.partition(AT)
    if not at or _is_path(name):
        return Dated(name)
    return chosen(name, versions_of(kind, product))


def versions_of(kind: str, product: str) -> tuple[Validity, ...]:
    """Return what each file of a product stands for, first that of its plain name."""
    own = _of_catalogue(kind, product)
    others = (_of_catalogue(kind, name) for name in names(kind) if name.startswith(f"{product}-"))
    files = (own, *(file for file in others if file.tree.get("version_of") == product))
    return tuple(
        Validity(file.name, *(str(file.tree.get(key, "")) for key in ("versions", "since", "until"))) for file in files
    )


def laid_over(base: dict[str, Tree], tree: dict[str, Tree]) -> dict[str, Tree]:
    """Lay a tree over another: sections join, numbers and lists are replaced."""
    found = dict(base)
    for key, value in tree.items():
        under = base.get(key)
        if isinstance(under, dict) and isinstance(value, dict) and not _NUMBER_KEYS & value.keys():
            value = laid_over(under, value)
        found[key] = value
    return found


def _same(name_or_path: str, folder: Path | None, file: File, kind: str) -> bool:
    if not _is_path(name_or_path):
        return file.where == f"{kind}/{name_or_path}.yaml"
    path = Path(name_or_path) if folder is None else folder / name_or_path
    return path.resolve() == file.file.resolve()


def _with_fit(name: str, tree: dict[str, Tree], kind: str) -> dict[str, Tree]:
    """Lay the numbers that were fitted for one of the catalogue over those that people set."""
    fits = FITS if kind == "stacks" else ENGINE_FITS
    if _is_path(name) or not (_BACKENDS / fits / f"{name}.yaml").is_file():
        return tree
    fitted = _of_catalogue(fits, name).tree
    return laid_over(tree, {key: value for key, value in fitted.items() if key not in ("name", "like")})


def _is_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def assemble(name_or_path: str | Path, stack: str | None = None, calibration: str | None = None) -> Assembled:
    """Read a system, and put chip, network and stack where it names them; see `load_system`."""
    return assembled(read_file("systems", name_or_path), stack, calibration)


def assembled(file: File, stack: str | None = None, calibration: str | None = None) -> Assembled:
    """Put chip, network and stack where a system that was read names them."""
    tree = dict(file.tree)
    chip = tree.get("chip")
    given_constants = calibration or tree.get("calibration")
    tree.pop("calibration", None)
    origins = [file.origin()]
    for key, kind, given in (("chip", "chips", chip), ("stack", "stacks", stack or tree.get("stack", "default"))):
        if isinstance(given, str):
            # What stands on the command line starts from where the user is, what stands in a file from the file.
            folder = None if given is stack else file.folder
            part = read_stack(given, folder) if kind == "stacks" else read_file(kind, given, folder)
            tree[key] = on_chip(part.tree, chip) if kind == "stacks" else dict(part.tree)
            origins.append(part.origin((key,)))
    made = tree.get("chip")
    layers, of_layers = _calibrations(file, given_constants, chip, _alike(made))
    origins = [*of_layers, *origins]
    levels = list(_levels(file, tree.get("network")))
    if levels:
        from ...network.topology.edges import with_edges

        tree["network"] = [with_edges(level, part.folder) for level, part, _ in levels]
        origins += [part.origin(("network", place), inner) for place, (_, part, inner) in enumerate(levels)]
    return Assembled(file, tree, layers, tuple(origins))


def calibration_layers(
    given: Tree, chip: Tree, folder: Path | None = None, kinds: Sequence[str] = ()
) -> list[tuple[str, File | Tree]]:
    """Return the constants that carry over, those of chips of its kind, then those given or else those of the chip."""
    measured = frozenset(names("chips")) if given == "default" else frozenset()
    alike = (*carried_over(), *(kind for kind in kinds if kind not in measured))
    base: list[tuple[str, File | Tree]] = [(name, _of_die(read_file("calibration", name), kinds)) for name in alike]
    if isinstance(given, dict):
        return [*base, ("calibration", given)]
    name = given if isinstance(given, str) else chip if chip in names("calibration") else "default"
    if name == "default" or not isinstance(name, str):
        return base
    file = read_file("calibration", name, folder)
    return [*base, (file.name, file)]


def _of_die(file: File, kinds: Sequence[str]) -> File:
    """Return constants without those of links: what is measured of a die holds on another, what joins dies differs."""
    if file.name not in kinds:
        return file
    tree = dict(file.tree)
    kernels, libraries = tree.get("kernels"), tree.get("libraries")
    if isinstance(kernels, dict):
        tree["kernels"] = {key: value for key, value in kernels.items() if key not in _OF_LINKS}
    if isinstance(libraries, dict):
        tree["libraries"] = {
            name: {key: value for key, value in found.items() if key not in _OF_LINKS}
            for name, found in libraries.items()
            if isinstance(found, dict)
        }
    return replace(file, tree=tree)


def carried_over() -> tuple[str, ...]:
    """Name the calibrations for any chip: what people set, over which lies what was fitted over many chips.

    >>> carried_over()[0]
    'default'
    """
    return tuple(name for name in ("default", "joint") if name in names("calibration"))


def _alike(chip: Tree) -> tuple[str, ...]:
    """Name the calibrations of chips of the same kind: without threads, of one design, of the same silicon."""
    if not isinstance(chip, dict):
        return ()
    without_threads = chip.get("array") is not None or chip.get("num_sms") is None
    kinds = (SYSTOLIC if without_threads else None, chip.get("design"), chip.get("measured_as"))
    return tuple(kind for kind in kinds if isinstance(kind, str) and kind in names("calibration"))


def _calibrations(system: File, given: Tree, chip: Tree, kinds: Sequence[str]) -> tuple[Layers, list[FileOrigin]]:
    layers: Layers = []
    origins: list[FileOrigin] = []
    in_file = given is system.tree.get("calibration")
    for name, found in calibration_layers(given, chip, system.folder if in_file else None, kinds):
        if isinstance(found, File):
            layers.append((name, found.tree))
            origins.append(found.origin(layer=name))
        elif isinstance(found, dict):
            layers.append((name, found))
            origins.append(system.origin(inner=("calibration",), layer=name))
    return layers, origins


def _levels(system: File, network: Tree) -> Iterator[tuple[Tree, File, Keys]]:
    """Each level of a network, the file it stands in and the way to it there."""
    entries = [network] if isinstance(network, str) else network
    if not isinstance(entries, list):
        return
    for place, entry in enumerate(entries):
        if not isinstance(entry, str):
            yield entry, system, ("network", place)
            continue
        part = read_file("networks", entry, system.folder)
        levels = part.tree.get("levels")
        if not isinstance(levels, list):
            raise SystemFileError(f"network '{part.name}' has no list of levels")
        yield from ((level, part, ("levels", inner)) for inner, level in enumerate(levels))


# A file of the catalogue does not change while the package runs, and its tree is read by many and changed by nobody.
@cache
def _of_catalogue(kind: str, given: str) -> File:
    known = names(kind)
    # As people write it: DGX_H100.
    name = given if given in known else given.strip().lower().replace("_", "-").replace(" ", "-")
    if name not in known:
        chip, _, count = name.partition(":")
        holding = [one for one in known if f"-{chip}" in f"-{_of_catalogue(kind, one).tree.get('chip')}"]
        if kind == "systems" and chip and (chip in known or holding):
            said = f"'{chip}' is a chip, of the systems {', '.join(holding)}" if holding else f"write '{chip}'"
            gpus = f"; --gpus {count} gives the number of GPUs" if count else ""
            raise UnknownNameError(f"unknown system '{given}': {said}{gpus}")
        raise UnknownNameError.of(kind.removesuffix("s"), given, known)
    file = _BACKENDS / kind / f"{name}.yaml"
    return read_at(name, f"{kind}/{name}.yaml", file, f"{kind.removesuffix('s')} '{name}'")


def read_table(name: str) -> File:
    """Read a table that lies beside the folders of the catalogue."""
    return read_at(name, f"{name}.yaml", _BACKENDS / f"{name}.yaml", f"table '{name}'")


def read_at(name: str, where: str, file: Path, what: str) -> File:
    """Read a file that was found; SystemFileError says why it cannot be."""
    from .system_tree import kept_tree

    try:
        return File(name, where, file, kept_tree(read_settings(file), name))
    except OSError as error:
        raise SystemFileError(f"cannot read {what}: {error.strerror}") from error
