"""One command on a hostile file, judged: what it may do, and what is a fault."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import resource
import signal
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType, TracebackType

import click

from slipstick.cli import invoke
from slipstick.ir.errors import InternalError, SlipstickError
from slipstick.ir.text.stages import LOGGER

MOST_S, MOST_BYTES = 20, 2 << 30
# What the code of the folder leaves behind where it runs, by any name that files give it.
MARKER = Path("code-ran")
CODE = ("evil.py:make", "evil:make", "./evil.py:make")
_PRODUCT = Path(__file__).resolve().parents[2]
# Where texts become values, before anything is known of what they mean.
_PARSERS = tuple(
    str(_PRODUCT / place)
    for place in (
        "ir/text", "measured/traces/stream.py", "frontend/onnx/reading.py", "frontend/replay/archive.py",
        "frameworks/shell", "cli/__init__.py", "benchmarks",
    )
)  # fmt: skip
# The same of command lines.
FLAGS = (*_PARSERS, str(_PRODUCT / "cli/flags"))
# Exit codes of answers: all that was asked was done, and it fits, does not, or fails a gate.
ANSWERED = (0, 3, 5)
# Those of commands on files; 1 is an internal error, and nobody interrupts.
_DOCUMENTED = (*ANSWERED, 2, 4)
# The stages that a graph goes through once it is built and admitted: `driver.lower`, and `driver.estimate` behind it.
_MARKS = ("lower ", "price ")


class Depth(StrEnum):
    """How far a file got: refused by a parser, refused by what stands behind it, or at work."""

    DOOR = "refused at the door"
    BEHIND = "refused behind the parser"
    DEEP = "deep"


class _OverTimeError(BaseException):
    """A case that takes longer than any may."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did with a file.

    Attributes:
        code: the exit code, -1 where it did not end with one.
        depth: how far the file got; deep is what was answered, or refused once a graph was built and lowered.
        fault: why this may not be, empty where it may.
        told: the message, or the traceback of a fault.
    """

    code: int
    depth: Depth
    fault: str = ""
    told: str = ""


class _Stages(logging.Handler):
    """Listens for the stages that mark depth."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = False

    def emit(self, record: logging.LogRecord) -> None:
        """See whether a stage is one of the marks."""
        self.reached |= record.getMessage().startswith(_MARKS)


def judged(command: Sequence[str], parsers: tuple[str, ...] = _PARSERS) -> Outcome:
    """Run a command of slipstick in this process and say whether it did what any command may do with any file.

    It may answer, or refuse with a message and its exit code; not fail, leave Python or with another code, run longer
    than 20 s of CPU, take more than 2 GB, run code that nobody typed, or print numbers that are none. A refusal is
    at the door where what raised it first is in one of `parsers`.
    """
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with _listening() as stages:
        code, fault, told, error = _ended(command, out)
    if code in ANSWERED and not fault:
        fault = _wrong_numbers(_text(out))
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if MARKER.exists():
        MARKER.unlink()
        fault = "code ran that nobody typed"
    elif taken > MOST_BYTES:
        fault = f"{taken / 1e9:.1f} GB"
    elif code not in _DOCUMENTED:
        fault = fault or f"exit code {code}"
    if code in ANSWERED or stages.reached:
        depth = Depth.DEEP
    else:
        depth = Depth.BEHIND if error is None or _is_behind(error, parsers) else Depth.DOOR
    return Outcome(code, depth, fault, told)


def _ended(command: Sequence[str], out: io.TextIOWrapper) -> tuple[int, str, str, BaseException | None]:
    """Run a command, and return its exit code, what is wrong with its end, its message, and what it raised."""
    try:
        with _limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = invoke(command)
    except click.exceptions.Exit as leave:
        return leave.exit_code, "", "", None
    except click.ClickException as error:
        return error.exit_code, "", error.format_message(), error
    except SlipstickError as error:
        if not isinstance(error, InternalError):
            return error.exit_code, "" if str(error).strip() else "no message", str(error), error
        return -1, *_fault(error), error
    except (Exception, SystemExit, _OverTimeError) as error:
        return -1, *_fault(error), error
    return code if isinstance(code, int) else 0, "", "", None


@contextlib.contextmanager
def _listening() -> Iterator[_Stages]:
    logger, stages = logging.getLogger(LOGGER), _Stages()
    level = logger.level
    logger.addHandler(stages)
    logger.setLevel(logging.DEBUG)
    try:
        yield stages
    finally:
        logger.setLevel(level)
        logger.removeHandler(stages)


def _text(out: io.TextIOWrapper) -> str:
    out.seek(0)
    return out.read()


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _OverTimeError(f"more than {MOST_S} s")

    old = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)


def _files(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    """Yield the places of the product that a traceback goes through."""
    for frame, line in traceback.walk_tb(trace):
        name = str(Path(frame.f_code.co_filename).resolve())
        if name.startswith(str(_PRODUCT)) and "/.venv/" not in name:
            yield name, line


def _is_behind(error: BaseException, parsers: tuple[str, ...]) -> bool:
    """Whether what refused first stands behind the parsers; others may have said more on the way out."""
    while isinstance(error.__context__, SlipstickError):
        error = error.__context__
    names = [name for name, _ in _files(error.__traceback__)]
    return bool(names) and not names[-1].startswith(parsers)


def _fault(error: BaseException) -> tuple[str, str]:
    """Return where something was raised, and its traceback."""
    places = list(_files(error.__traceback__))
    name, line = places[-1] if places else ("", 0)
    fault = f"{type(error).__name__} at {name.removeprefix(f'{_PRODUCT}/')}:{line}"
    return fault, "".join(traceback.format_exception(error))[-4000:]


def _wrong_numbers(text: str) -> str:
    """Return what is wrong with a document: no JSON, or numbers that are not finite."""
    if not text.startswith("{"):
        return ""
    try:
        json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except ValueError as error:
        return f"JSON: {error}"
    return ""


def _refuse(word: str) -> object:
    raise ValueError(word)


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)
