"""`--set` assignments laid onto a tree before it is checked, and the schema at a path."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from ....ir.errors import UnknownNameError, UsageError
from ....ir.units import parse_quantity, split_quantity, units_of
from ..system_schema import SystemSection
from .kinds import NumberKind
from .section import form_of
from .shapes import AmountForm, ByName, FileForm, Inside, OneOf, Several
from .system_tree import Tree, assign, names_of, part_at, split_override

# Money and machines come in units far from the base ones (years, cm2, TB): a number alone would be a slip.
_WITH_UNITS = frozenset(("prices", "package", "server", "rack", "equipment"))

# |ln| of a number over another within which a machine counts as the same.
_WITHIN = log(1.05)
# What a level may say in place of its bandwidth.
_LINKS = ("links", "link_bandwidth")


def of_calibration(text: str) -> bool:
    """Whether an assignment is to a constant of kernels."""
    return split_override(text)[0][0] == "calibration"


def as_layer(text: str) -> dict[str, Tree]:
    """Turn `calibration.gemm.bf16.sustained=0.9` into a calibration of one constant."""
    keys, value = split_override(text)
    if len(keys) != 4:
        raise UsageError(f"cannot set '{text}': write calibration.CLASS.KIND.CONSTANT=value")
    _, cls, kind, key = keys
    block: Tree = {key: value, "source": "--set", "confidence": "estimated"}
    return {"kernels": {cls: {kind: block}}}


def override(
    tree: dict[str, Tree], text: str, top: type | Inside[object] = SystemSection, called: str = "a system"
) -> dict[str, Tree]:
    """Return the tree with one assignment made; UnknownNameError for a key that a `top` has not.

    A number alone is in base units; of a time, and in prices, packages, servers, racks and equipment, it is an error.

    >>> override({"name": "mine", "chip": {"power": 1}}, "chip.power=3 kW")["chip"]["power"]["value"]
    3.0
    """
    keys, value = split_override(text)
    form = form_at(keys, tree, form_of(top), called)
    path = ".".join(keys)
    if isinstance(form, Inside):
        raise UnknownNameError(f"'{path}' is a section; set one of its keys: {', '.join(form.fields())}")
    needs_unit = not _WITH_UNITS.isdisjoint((called, *keys[:-1]))
    return assign(tree, keys, _leaf(form.kind, value, path, needs_unit) if isinstance(form, AmountForm) else value)


def _leaf(kind: NumberKind, text: str, path: str, needs_unit: bool) -> Tree:
    try:
        number, unit = split_quantity(text, kind.dimension)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if (needs_unit or (kind.dimension == "s" and number)) and not unit and kind.dimension != "1":
        raise UsageError(f"{path}: missing unit of '{text}': allowed: {units_of(kind.dimension)}")
    return {
        "value": number,
        "unit": unit or kind.dimension,
        "source": "--set",
        "confidence": "estimated",
    }


def changed_paths(tree: dict[str, Tree], made: dict[str, Tree], overrides: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the assignments that made another number of what the files say.

    >>> tree = {"chip": {"power": {"value": 1, "unit": "kW"}}}
    >>> texts = ["chip.power=1000 W"]
    >>> changed_paths(tree, override(tree, texts[0]), texts)
    ()
    """
    paths = dict.fromkeys(split_override(text)[0] for text in overrides)
    return tuple(".".join(keys) for keys in paths if _number_at(tree, keys) != _number_at(made, keys))


def distance(tree: dict[str, Tree], made: dict[str, Tree], paths: Sequence[str]) -> float:
    """Return the largest |ln| of numbers of chip or network over what the files say; 0 where all are within 5 %.

    A limit of the power counts from the power, and a number that no file says as just outside. Parts and energies move
    no time.

    >>> tree = {"chip": {"clock": {"value": 1, "unit": "GHz"}}}
    >>> distance(tree, override(tree, "chip.clock=2 GHz"), ["chip.clock"])
    0.6931471805599453
    """
    found = 0.0
    for path in paths:
        keys = path.split(".")
        if keys[-1] in _LINKS:
            keys[-1] = "bandwidth"
        if keys[0] not in ("chip", "network") or keys[1] in ("package", "energy") or "equipment" in keys:
            continue
        before, after = (_number_at(one, keys) for one in (tree, made))
        if keys[1:] == ["power_limit"] and before is None:
            before = _number_at(tree, ["chip", "power"])
        if isinstance(after, int | float) and after > 0:
            known = before if isinstance(before, int | float) and before > 0 else 0.0
            found = max(found, abs(log(after / known)) if known else _WITHIN)
    return found if found >= _WITHIN else 0.0


def numbers_in(tree: Tree, path: tuple[str, ...] = ()) -> tuple[tuple[str, ...], ...]:
    """Return the paths of the numbers of a tree; lists are entered by the names of their records.

    >>> numbers_in({"name": "mine", "power": {"value": 1, "unit": "kW"}, "matmul": {"bf16": "1 TFLOP/s"}})
    (('power',), ('matmul', 'bf16'))
    """
    if isinstance(tree, dict) and "value" not in tree:
        return tuple(found for key, part in tree.items() for found in numbers_in(part, (*path, key)))
    if isinstance(tree, list):
        parts = zip(names_of(tree), tree, strict=True)
        return tuple(found for key, part in parts for found in numbers_in(part, (*path, key)))
    return (path,) if isinstance(_number_at(tree, ()), int | float) else ()


def _number_at(tree: Tree, keys: Sequence[str]) -> object:
    """Return the number at a path in base units, text as it is, None for nothing; a bandwidth may be that of links."""
    found = part_at(tree, keys)
    if found is None and keys[-1:] == ["bandwidth"]:
        links, each = (_number_at(tree, [*keys[:-1], key]) for key in _LINKS)
        return links * each if isinstance(links, int | float) and isinstance(each, int | float) else None
    value, unit = (found.get("value"), found.get("unit") or "") if isinstance(found, dict) else (found, "")
    try:
        return parse_quantity(f"{value} {unit}".strip()).value_si
    except UsageError:
        return value


def _ending(tree: Tree, keys: tuple[str, ...], path: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the paths of a tree that end in some keys."""
    if path[-len(keys) :] == keys:
        return (".".join(path),)
    inside = tree.items() if isinstance(tree, dict) else ()
    return tuple(found for key, part in inside for found in _ending(part, keys, (*path, key)))


def form_at(keys: Sequence[str], tree: Tree, form: FileForm, called: str) -> FileForm:
    """Return the form of what stands at a path; UnknownNameError names the nearest legal key.

    Lists are entered by the names of their records, which are those of the tree.
    """
    path = called
    rest = list(keys)
    while rest:
        key = rest.pop(0)
        if not isinstance(form, Inside):
            raise UnknownNameError(f"'{path}' has no parts; set it as a whole, as in {path}=...")
        known = form.fields()
        if key not in known:
            error = UnknownNameError.of(f"key of {path}", key, known)
            whole = _ending(tree, tuple(keys)) if path == called else ()
            raise UnknownNameError(f"{error}; the whole path: {', '.join(whole)}") if whole else error
        path = key if path == called else f"{path}.{key}"
        tree = tree.get(key) if isinstance(tree, dict) else None
        form = known[key].form
        if isinstance(form, Several):
            tree, form = _entry(tree, rest[:1], path, form.form), form.form
            path += f".{rest.pop(0)}"
        elif isinstance(form, ByName):
            form = form.form
            # What a mapping has under a name; one number alone makes no new record of several.
            found = tree if isinstance(tree, dict) else {}
            if rest and rest[0] not in found and isinstance(form, Inside | OneOf):
                raise UnknownNameError.of(f"name in {path}", rest[0], found)
            tree = found.get(rest[0]) if rest else None
            path += f".{rest.pop(0)}" if rest else ""
        if isinstance(form, OneOf):
            form = form.of(tree)
    return form


def _entry(entries: Tree, wanted: Sequence[str], path: str, form: FileForm) -> Tree:
    """Return the entry of a list that has a name."""
    names = names_of(entries)
    if not wanted:
        raise UnknownNameError(f"'{path}' is a list; continue with one of: {', '.join(names)}")
    if wanted[0] not in names:
        first = form.forms[0] if isinstance(form, OneOf) else form
        called = first.called if isinstance(first, Inside) else "entry"
        raise UnknownNameError.of(f"{called} of {path}", wanted[0], names)
    assert isinstance(entries, list)
    return entries[names.index(wanted[0])]
