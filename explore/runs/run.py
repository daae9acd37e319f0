"""What a ledger says of its run: the search, the version that does it, and how it was asked for."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field

from ...ir.errors import UsageError
from ...ir.records import dataclass
from ..job import Described

# Lines of two spaces that are shown where they differ.
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class SearchRun:
    """A search as a ledger keeps it, beside the blocks.

    Attributes:
        tool_version: what does it; see `tool.tool_version`.
        digest: of the job.
        text: the space as YAML.
        columns: names of all columns, in order.
        num_blocks: of the space.
        model: as people call it.
        command: the command line as it was typed.
        objectives: metrics it is for, as `Goal` prints them, the first first; may be none.
        words: of columns whose numbers stand for words, the words from 0 on.
    """

    tool_version: str
    digest: str
    text: str
    columns: tuple[str, ...]
    num_blocks: int
    model: str = ""
    command: str = ""
    objectives: tuple[str, ...] = ()
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        job: Described,
        tool_version: str,
        model: str = "",
        command: str = "",
        objectives: Sequence[str] = (),
        words: Mapping[str, Sequence[str]] | None = None,
    ) -> SearchRun:
        """Return the run of a job."""
        kept = {name: tuple(found) for name, found in (words or {}).items()}
        return cls(
            tool_version,
            job.digest,
            job.text,
            tuple(job.columns),
            len(job.blocks()),
            model,
            command,
            tuple(objectives),
            kept,
        )

    def to_json(self) -> str:
        """Return it as one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> SearchRun:
        """Read what `to_json` wrote, unchanged."""
        record = json.loads(text)
        lists = {name: tuple(record[name]) for name in ("columns", "objectives")}
        words = {name: tuple(found) for name, found in record["words"].items()}
        return cls(**(record | lists | {"words": words}))

    def check_version(self, version: str, name: str) -> None:
        """UsageError where another version of the tool than this did the blocks that are kept."""
        if version != self.tool_version:
            raise UsageError(
                f"run '{name}' was written by slipstick {self.tool_version}, this is {version}: results of two "
                f"versions are never mixed; start a new run, or resume it with slipstick {self.tool_version}"
            )

    def check_job(self, job: Described, name: str) -> None:
        """UsageError where a job is not the one of this run; says how their spaces differ."""
        mine = (self.digest, self.columns, self.num_blocks)
        if mine != (job.digest, tuple(job.columns), len(job.blocks())):
            raise UsageError(
                f"run '{name}' is another search{self._difference(job.text)}; leave out what you ask for to resume "
                "it, or start a new run"
            )

    def _difference(self, text: str) -> str:
        """Lines that only the run has (-), and those that only the other has (+)."""
        lines = list(difflib.unified_diff(self.text.splitlines(), text.splitlines(), lineterm="", n=0))[2:]
        told = [line for line in lines if not line.startswith("@@")]
        if not told:
            return f": its digest is {self.digest[:12]}, with the same space but another model, system or block size"
        more = f", and {len(told) - _SHOWN} lines more" if len(told) > _SHOWN else ""
        return f" (- there, + here): {'; '.join(told[:_SHOWN])}{more}"
