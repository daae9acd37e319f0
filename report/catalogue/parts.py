"""What machines and plans are made of: nodes, memories, units and links with every number; schedules; recipes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING

from ...ir.errors import UnknownNameError
from ...ir.text.json_text import json_text
from ..columns import in_columns
from ..numbers import shown_value

if TYPE_CHECKING:
    from ...backends.machine.files.records import NumberRecord

Record = Mapping[str, object]
# Kinds of parts, each a part of the price book, of the technology, or of both: what one says stands beside the other.
PARTS = ("adapters", "cables", "d2d", "memories", "nodes", "switches", "transceivers", "units")
# Columns of a list: those that most entries have, in the order of their files, as many as a screen has room for.
_MOST_COLUMNS = 6


def parts(kind: str) -> list[Record]:
    """Return a line for each part of a kind, its numbers as their authors wrote them."""
    found = {
        name: {
            path.partition(f".{name}.")[2]: said if isinstance(said, str) else shown_value(said)
            for path, said in reversed(leaves)
        }
        for name, leaves in _parts(kind).items()
    }
    counted = Counter(path for said in found.values() for path in reversed(said))
    columns = [path for path, times in counted.items() if 2 * times >= len(found)][:_MOST_COLUMNS]
    return [{"name": name, **{path: said.get(path) for path in columns}} for name, said in found.items()]


def show_part(kind: str, name: str, as_json: bool, columns: int | None) -> str:
    """Return every number of a part with its path, unit and source; UnknownNameError names the nearest."""
    found = _parts(kind)
    if name not in found:
        raise UnknownNameError.of(f"name of {kind}", name, found)
    if as_json:
        numbers = [said if isinstance(said, str) else asdict(said) for _, said in found[name]]
        return json_text({"name": name, "numbers": numbers}, indent=2)
    rows = [[path, *_row(said)] for path, said in found[name]]
    return "\n".join([f"{name}: {len(rows)} numbers and words", "", in_columns(rows, columns)])


def schedules() -> list[Record]:
    """Return the pipeline schedules as they were published, each with what frameworks call it."""
    from ...ir.schedules.registry import SCHEDULES

    return [
        {
            "name": kind.name,
            "alias": kind.alias or None,
            "published": kind.published,
            "chunks": "any" if kind.interleaves else str(kind.chunks),
            "frameworks": [framework for framework, names in kind.names.items() if any(names)],
            "what": kind.help,
        }
        for kind in SCHEDULES.values()
    ]


def precisions() -> list[Record]:
    """Return the recipes of low precision: in which phases each runs, and how it scales."""
    from ...ir.plan.low_inference import INFERENCE
    from ...ir.plan.precision import RECIPES

    return [
        {
            "name": name,
            "training": RECIPES[name].doc if name in RECIPES else None,
            "inference": INFERENCE[name].doc if name in INFERENCE else None,
        }
        for name in dict.fromkeys((*RECIPES, *INFERENCE))
    ]


def _parts(kind: str) -> Mapping[str, Sequence[tuple[str, NumberRecord | str]]]:
    """Return what the price book and the technology say of each part of a kind, with the path that --set takes."""
    from ...backends.machine.files.number import Number
    from ...backends.machine.files.section import leaves_of
    from ...backends.prices.book import load_prices
    from ...backends.technology.data import load_technology

    found: dict[str, list[tuple[str, NumberRecord | str]]] = {}
    for path, leaf in chain(leaves_of(load_prices().section, "prices"), leaves_of(load_technology().section)):
        of, _, rest = path.removeprefix("prices.").partition(".")
        name, dot, _ = rest.partition(".")
        if of == kind and dot:
            found.setdefault(name, []).append((path, leaf.record(path) if isinstance(leaf, Number) else leaf))
    return found


def _row(said: NumberRecord | str) -> Sequence[str]:
    if isinstance(said, str):
        return [said, "", ""]
    dated = f" ({said.as_of})" if said.as_of else ""
    return [shown_value(said), said.confidence, f"{said.source}{dated}"]
