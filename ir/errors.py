"""Every error of the product on one page: what was given, what is allowed, the nearest legal thing.

SlipstickError                 a message for people; the command line prints it without a traceback
  UsageError             (2)   what the user typed is wrong
    UnknownNameError           a name that is not in a catalogue, a key that is not in a schema
    PlanError                  degrees or batches that do not fit together or do not divide
    SystemFileError            a system file with missing units, absurd values or unknown keys
    StorageError               a disk that is full, a folder that cannot be written
    ClusterLostError           machines that worked on a search are gone
    DrawingError               the process that draws pictures ended before it had drawn
  InfeasibleError        (3)   well formed, but it does not fit
  NotUnderstoodError     (4)   input that cannot be analysed
    NotBuiltError              a capability that this version does not have
    TraceError                 a module whose control flow depends on data
    UnsupportedOpError         an operator without a rule
    ParseError                 text that is not a graph
  GateError              (5)   a comparison that breaks a limit which the user set
  InternalError          (1)   our own mistake
    VerifyError                a graph that breaks the rules of the IR
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class SlipstickError(ValueError):
    """Base class of all errors: a message for users, and the exit code of the command line."""

    exit_code = 1


class UsageError(SlipstickError):
    """What the user typed is wrong (exit code 2)."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that is not in its catalogue."""

    @classmethod
    def of(cls, kind: str, given: str, allowed: Iterable[str]) -> UnknownNameError:
        """Build the message: the name given, the nearest match, what is allowed.

        >>> str(UnknownNameError.of("system", "dgx-h10", ["dgx-h100", "dgx-a100-80gb"]))
        "unknown system 'dgx-h10'; did you mean 'dgx-h100'? allowed: dgx-a100-80gb, dgx-h100"
        """
        names = sorted(allowed)
        return cls(f"unknown {kind} '{given}'{did_you_mean(given, names)} allowed: {', '.join(names)}")


class PlanError(UsageError):
    """Degrees or batches that do not fit together or do not divide."""


class SystemFileError(UsageError):
    """A system description with missing units, absurd values or unknown keys."""


class StorageError(UsageError):
    """A disk that is full or a folder that cannot be written; what was kept before is whole."""


class ClusterLostError(UsageError):
    """Machines that worked on a search are gone; what was kept before is whole."""


class DrawingError(UsageError):
    """The process that draws pictures ended before it had drawn."""

    @classmethod
    def of(cls, why: str) -> DrawingError:
        """Build the message: why it ended, what to type.

        >>> str(DrawingError.of("ended by SIGTRAP"))  # doctest: +ELLIPSIS
        'the process that draws charts ended by SIGTRAP: its engine needs room; `ulimit -v unlimited` gives it, ...'
        """
        return cls(
            f"the process that draws charts {why}: its engine needs room; `ulimit -v unlimited` gives it, and "
            "-o FILE.json, .csv and .md draw nothing"
        )


class InfeasibleError(SlipstickError):
    """Well formed, but it does not fit the machine (exit code 3)."""

    exit_code = 3


class NotUnderstoodError(SlipstickError):
    """Input that cannot be analysed (exit code 4)."""

    exit_code = 4


class NotBuiltError(NotUnderstoodError):
    """A capability that this version does not have; refused, never ignored."""


class TraceError(NotUnderstoodError):
    """A module that cannot be recorded, usually because its control flow depends on data."""


class DataSizeError(TraceError):
    """A size that only the data says."""


class UnsupportedOpError(NotUnderstoodError):
    """An operator without a rule; never priced as zero."""


class ParseError(NotUnderstoodError):
    """Text that is not a graph, with the line where reading stopped."""


class GateError(SlipstickError):
    """A comparison that breaks a limit which the user set (exit code 5)."""

    exit_code = 5


class InternalError(SlipstickError):
    """Our own mistake (exit code 1)."""


class VerifyError(InternalError):
    """A graph that breaks the rules of the IR; names the node, the rule and the module path."""


def check_once(flag: str, names: Sequence[str]) -> None:
    """Refuse a name of which a flag that may be repeated says two things.

    >>> check_once("--dim", ["past", "total"])
    """
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{flag} says {names.count(name)} things of '{name}': give it once")


def did_you_mean(given: str, allowed: Sequence[str]) -> str:
    """Return '; did you mean X?' for the nearest allowed name in any case, or ';' when nothing is near.

    >>> did_you_mean("trian", ["train", "decode"])
    "; did you mean 'train'?"
    >>> did_you_mean("h100", ["h100-pcie", "h100-sxm", "h200"])
    "; did you mean 'h100-pcie' or 'h100-sxm'?"
    >>> did_you_mean("H100_PCIe", ["h100-pcie", "h100-sxm"])
    "; did you mean 'h100-pcie'?"
    >>> did_you_mean("zzz", ["train", "decode"])
    ';'
    """
    from difflib import get_close_matches

    known = {name.lower().replace("_", "-"): name for name in allowed}
    word = given.strip().lower().replace("_", "-").replace(" ", "-")
    begun = [name for key, name in known.items() if len(word) > 2 and key.startswith(word)]
    if 1 < len(begun) < 5 and not get_close_matches(word, known, n=1, cutoff=0.9):
        listed = ", ".join(f"'{name}'" for name in begun[:-1])
        return f"; did you mean {listed} or '{begun[-1]}'?"
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean '{known[near[0]]}'?" if near else ";"
