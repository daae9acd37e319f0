"""Ledgers with random damage: what is read of one is what was written, or it is refused in words."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from slipstick.explore.block import Found
from slipstick.explore.runs.ledger import Ledger
from slipstick.ir.errors import InternalError, SlipstickError

from ..fuzz.mutate import flipped
from .search import Row, begun, prepared, ran

_Written = dict[int, tuple[object, ...]]


def of_ledgers(folder: Path, damages: int, draw: random.Random) -> Row:
    """Damage a finished ledger so often, each time anew, and read what is left."""
    prepared(folder)
    ran(folder, begun("ledger"))
    whole = folder / "ledger" / "tiny-1.sqlite"
    with Ledger.open(whole) as ledger:
        written = {found.number: _plain(found) for found in ledger.kept()}
        num_blocks = ledger.run.num_blocks
    data, refused, again, wrong = whole.read_bytes(), 0, 0, 0
    damaged = folder / "damaged.sqlite"
    for _ in range(damages):
        damaged.write_bytes(_damaged(draw, data))
        told = _read(damaged, written, num_blocks)
        refused, again, wrong = refused + (told == "refused"), again + (told == "again"), wrong + (told == "wrong")
        for beside in folder.glob("damaged.sqlite*"):
            beside.unlink()
    shutil.rmtree(folder / "ledger")
    told = (
        f"{refused} refused in words, {again} with blocks that are known to be damaged and are done again, the others "
        "as they were written; no block was other than it was written"
    )
    return Row("damage of a ledger", damages, wrong, told)


def _damaged(draw: random.Random, data: bytes) -> bytes:
    kind = draw.random()
    if kind < 0.7:
        return flipped(draw, data)
    at = draw.randrange(len(data))
    if kind < 0.8:
        return data[:at]
    size = draw.choice([512, 4096, 16384])
    if kind < 0.9:
        return data[:at] + bytes(size) + data[at + size :]
    other = draw.randrange(len(data))
    return data[:at] + data[other : other + size] + data[at + size :]


def _read(path: Path, written: _Written, num_blocks: int) -> str:
    """Say what reading does: `refused`, `again` where blocks are known to be missing, `same`, or `wrong`."""
    try:
        with Ledger.open(path) as ledger:
            sound = {found.number: _plain(found) for found in ledger.sound()}
    except InternalError:
        return "wrong"
    except SlipstickError:
        return "refused"
    except Exception:
        return "wrong"
    if any(written.get(number) != found for number, found in sound.items()):
        return "wrong"
    return "same" if len(sound) == num_blocks else "again"


def _plain(found: Found) -> tuple[object, ...]:
    columns = tuple((name, column.tobytes()) for name, column in found.columns.items())
    return found.num_legal, tuple(sorted(found.pruned.items())), found.crashed, columns
