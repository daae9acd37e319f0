"""What a worker in another process says of itself and of its pieces, and how it comes to say it.

Loads nothing heavy: a worker sets how many threads libraries may start before it loads any.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...ir.errors import InternalError, SlipstickError
from ...ir.records import dataclass

if TYPE_CHECKING:
    from ..block import Block, Found
    from ..job import Job, Worker

# What libraries of numbers read before they start threads: one for each worker, whose number is for others to say.
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Errand:
    """Pieces to be worked on one after another and answered together, with news that come before them."""

    pieces: Sequence[Block]
    news: bytes = b""


@dataclass(frozen=True, slots=True)
class Ready:
    """The search is open, pieces may come."""


@dataclass(frozen=True, slots=True)
class Done:
    """What is found in the oldest piece that was given and not answered."""

    found: Found


@dataclass(frozen=True, slots=True)
class Failed:
    """The oldest piece failed, the worker lives on."""

    why: str


@dataclass(frozen=True, slots=True)
class RefusedPiece:
    """There is an error that is the user's to see, and no piece will do better."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Gone:
    """The worker is no more; what it was doing is lost; `with_machine` where its machine was lost, and it along."""

    why: str
    with_machine: bool = False


Report = Ready | Done | Failed | RefusedPiece | Gone


def opened(job: Callable[[], Job]) -> Worker | RefusedPiece:
    """Open a job; whatever keeps it from opening would do so in any worker."""
    try:
        return job().open()
    except Exception as error:
        # The error with the worker's traceback, which does not travel by itself; people's errors need none.
        if not isinstance(error, SlipstickError) or isinstance(error, InternalError):
            error.add_note("In a worker:\n" + "".join(traceback.format_exception(error)))
        return RefusedPiece(error)


def worked(worker: Worker, piece: Block) -> Done | Failed | RefusedPiece:
    """Work on a piece; an error for people to read is no candidate's fault, any other may be."""
    try:
        return Done(worker.work(piece))
    except InternalError as error:
        return Failed(in_words(error))
    except SlipstickError as error:
        return RefusedPiece(error)
    except Exception as error:
        return Failed(in_words(error))


def answered(worker: Worker, errand: Errand) -> bytes:
    """Take the news, work on every piece, and return all reports as bytes; what is refused ends it."""
    from ..job import Learning

    if errand.news and isinstance(worker, Learning):
        worker.learn(errand.news)
    reports = list[Report]()
    for piece in errand.pieces:
        reports.append(worked(worker, piece))
        if isinstance(reports[-1], RefusedPiece):
            break
    return packed(*reports)


def packed(*reports: Report) -> bytes:
    """Return reports as bytes that can be read in the process that asked; an error that cannot is told in words."""
    refused = [report for report in reports if isinstance(report, RefusedPiece)]
    try:
        packet = pickle.dumps(reports, protocol=pickle.HIGHEST_PROTOCOL)
        if refused:
            pickle.loads(packet)
    except Exception as error:
        cause = refused[0].error if refused else error
        return pickle.dumps((RefusedPiece(InternalError(f"a worker failed: {in_words(cause)}")),))
    return packet


def in_words(error: Exception) -> str:
    """Return an error on one line, with where it was raised.

    >>> in_words(KeyError("tp"))
    "KeyError: 'tp'"
    """
    text = " ".join(f"{type(error).__name__}: {error}".split())
    text = text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else text
