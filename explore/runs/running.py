"""Run what a ledger does not hold yet: every block is kept before it is shown, and an interrupt loses none."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Iterator, Sequence, Sized
from contextlib import contextmanager

from ...ir.errors import ClusterLostError, InternalError
from ...ir.records import dataclass
from ..block import Block, Found
from ..job import Executor, Job
from .ledger import Ledger
from .runs import called


@dataclass(frozen=True, slots=True)
class Ran:
    """How many blocks came from where.

    Attributes:
        num_kept: blocks that the ledger held already.
        num_damaged: blocks that it held, but not as they were written; they were done again.
        num_new: blocks that were done now, those among them.
    """

    num_kept: int
    num_damaged: int
    num_new: int


def run_blocks(job: Job, executor: Executor, ledger: Ledger | None, on_found: Callable[[Found], None]) -> Ran:
    """Show every block of a job: first those that a ledger holds, then those that it lacks, as they are done.

    Args:
        job: what is searched; the ledger is of it.
        executor: what works on blocks.
        ledger: gets each block before it is shown; None keeps nothing.
        on_found: is shown every block once; in what order, the executor says.

    Raises:
        KeyboardInterrupt: somebody stopped it; the message says how to go on.
        ClusterLostError: so does this one, where machines are gone.
        StorageError: a block cannot be kept; those before it are.
        InternalError: the executor left blocks out, or did one that was not asked for.
    """
    blocks = job.blocks()
    seen: set[int] = set()
    with telling(ledger, len(blocks), seen):
        for found in ledger.sound() if ledger is not None else ():
            seen.add(found.number)
            on_found(found)
        num_kept = len(seen)
        num_damaged = 0 if ledger is None else ledger.num_done() - num_kept
        for found in _new(job, executor, [block for block in blocks if block.number not in seen]):
            if ledger is not None:
                ledger.write(found)
            seen.add(found.number)
            on_found(found)
    return Ran(num_kept, num_damaged, len(blocks) - num_kept)


def _new(job: Job, executor: Executor, blocks: Sequence[Block]) -> Iterator[Found]:
    """Each of these blocks once; whatever ends this also stops the executor."""
    if not blocks:
        return
    left = {block.number for block in blocks}
    found = executor.run(job, blocks)
    try:
        for one in found:
            if one.number not in left:
                raise InternalError(f"the executor found block {one.number}, which it was not asked for or gave before")
            left.remove(one.number)
            yield one
    finally:
        if isinstance(found, Generator):
            found.close()
    if left:
        raise InternalError(f"the executor left out {len(left)} of {len(blocks)} blocks, the first of them {min(left)}")


@contextmanager
def telling(ledger: Ledger | None, num_blocks: int, seen: Sized) -> Iterator[None]:
    """Say what an interrupt, or a cluster that is lost, leaves: how many blocks are kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted: {_left(ledger, num_blocks, seen)}") from None
    except ClusterLostError as error:
        raise ClusterLostError(f"{error}; {_left(ledger, num_blocks, seen)}") from error


def _left(ledger: Ledger | None, num_blocks: int, seen: Sized) -> str:
    if ledger is None:
        return f"{len(seen)} of {num_blocks} blocks were done and are not saved (--no-ledger)"
    return (
        f"{ledger.num_done()} of {num_blocks} blocks are kept; resume with `slipstick search "
        f"--resume {shlex.quote(called(ledger.path))}`"
    )
