"""One command on a hostile file, judged: what it may do, and what is a fault."""

from __future__ import annotations

import contextlib
import io
import json
import math
import resource
import signal
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

import click

from slipstick.cli import invoke
from slipstick.ir.errors import InternalError, SlipstickError

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
        "frontend/launches/shell.py", "cli/__init__.py", "benchmarks",
    )
)  # fmt: skip
# The same of command lines.
FLAGS = (*_PARSERS, str(_PRODUCT / "cli/flags"))


class _OverTimeError(BaseException):
    """A case that takes longer than any may."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did with a file.

    Attributes:
        code: the exit code, -1 where it did not end with one.
        deep: whether the text was parsed, and what it says was looked at.
        fault: why this may not be, empty where it may.
        told: the message, or the traceback of a fault.
    """

    code: int
    deep: bool
    fault: str = ""
    told: str = ""


def judged(command: Sequence[str], parsers: tuple[str, ...] = _PARSERS) -> Outcome:
    """Run a command of slipstick in this process and say whether it did what any command may do with any file.

    It may answer, or refuse with a message and its exit code; not fail, run longer than 20 s of CPU, take more than
    2 GB, run code that nobody typed, or print numbers that are none. A refusal is deep where what raised it first is in
    none of `parsers`.
    """
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with _limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = invoke(command)
    except click.exceptions.Exit as leave:
        found = Outcome(leave.exit_code, True)
    except click.ClickException as error:
        found = Outcome(error.exit_code, _is_deep(error, parsers), told=error.format_message())
    except InternalError as error:
        found = _fault(error)
    except SlipstickError as error:
        found = Outcome(
            error.exit_code, _is_deep(error, parsers), "" if str(error).strip() else "no message", str(error)
        )
    except (Exception, _OverTimeError) as error:
        found = _fault(error)
    else:
        found = Outcome(code if isinstance(code, int) else 0, True, _wrong_numbers(_text(out)))
    if MARKER.exists():
        MARKER.unlink()
        return Outcome(found.code, True, "code ran that nobody typed", found.told)
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if taken > MOST_BYTES:
        return Outcome(found.code, found.deep, f"{taken / 1e9:.1f} GB", found.told)
    return found


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


def _is_deep(error: BaseException, parsers: tuple[str, ...]) -> bool:
    """Whether what refused first stands behind the parsers; others may have said more on the way out."""
    while isinstance(error.__context__, SlipstickError):
        error = error.__context__
    names = [name for name, _ in _files(error.__traceback__)]
    return bool(names) and not names[-1].startswith(parsers)


def _fault(error: BaseException) -> Outcome:
    places = list(_files(error.__traceback__))
    name, line = places[-1] if places else ("", 0)
    fault = f"{type(error).__name__} at {name.removeprefix(f'{_PRODUCT}/')}:{line}"
    return Outcome(-1, True, fault, "".join(traceback.format_exception(error))[-4000:])


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
