"""Sweep of public launches through `slipstick import` and `estimate`: `python -m benchmarks.importers FOLDER`.

FOLDER holds clones by `owner+name`, bare ones in `repo`; none of their files is copied here. It prints the table
of docs/importers.md: files that were read, settings understood, plans that were answered or refused with a reason.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from slipstick.cli import run
from slipstick.cli.plans.imports import model_of, plan_text
from slipstick.frontend.launches.launch import Launch
from slipstick.frontend.launches.reading import read_launch
from slipstick.ir.errors import SlipstickError

# What scripts of benchmarks find set by the harness that runs them.
HARNESS = {
    "MODEL": "deepseek-ai/DeepSeek-V3", "MODEL_PATH": "deepseek-ai/DeepSeek-V3", "TP": "8", "EP_SIZE": "8", "EP": "8",
    "CONC": "64", "ISL": "1024", "OSL": "1024", "DP_ATTENTION": "false", "PORT": "8888", "MAX_MODEL_LEN": "10240",
    "mtp": "1", "DP": "1", "PP": "1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """Launches of one repository: files by pattern, read under a commit, and the system that they are asked on."""

    repository: str
    commit: str
    pattern: str
    system: str
    more: tuple[str, ...] = ()


SOURCES = (
    Source("NVIDIA/Megatron-LM", "d98e8a64ddf3", r"tests/functional_tests/test_cases/.*model_config\.yaml", "dgx-h100"),
    Source("NVIDIA/Megatron-LM", "d98e8a64ddf3", r"examples/.*(train|pretrain)[^/]*\.sh", "dgx-h100"),
    Source(
        "SemiAnalysisAI/InferenceX",
        "843c6254ff69",
        r"benchmarks/single_node/.*\.sh",
        "dgx-b200",
        ("--concurrency", "64"),
    ),
)


@dataclass(slots=True)
class Tally:
    """What became of the launches of a source."""

    num: int = 0
    read: int = 0
    answered: int = 0
    refused: int = 0
    understood: int = 0
    matter: int = 0
    faults: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def row(self, source: Source) -> str:
        """Return a line of the table."""
        share = self.understood / max(self.matter, 1)
        return (
            f"| {source.repository} `{source.commit}` `{source.pattern}` | {self.num} | {self.read} | "
            f"{self.understood:,} of {self.matter:,} ({share:.1%}) | {self.answered} | {self.refused} | {self.faults} |"
        )


def main() -> None:
    """Sweep all sources and print the table."""
    folder = Path(sys.argv[1])
    print("| launches | files | read | settings understood | answered | refused with a reason | faults |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for source in SOURCES:
        found = swept(folder / source.repository.replace("/", "+") / "repo", source)
        print(found.row(source), flush=True)
        for reason, num in found.reasons.most_common(20):
            print(f"    {num} {reason}", file=sys.stderr)


def swept(clone: Path, source: Source) -> Tally:
    """Read and answer every launch of a source."""
    tally = Tally()
    with TemporaryDirectory() as place:
        for number, (name, text) in enumerate(_files(clone, source)):
            tally.num += 1
            try:
                launch = read_launch(text, name, environment=HARNESS)
            except SlipstickError as error:
                tally.refused += 1
                tally.reasons[re.sub(r"\d+", "N", str(error))[:100]] += 1
                continue
            tally.read += 1
            tally.understood += len(launch.understood)
            tally.matter += len(launch.understood) + len(launch.left_out)
            _answer(launch, Path(place, f"{number}.yaml"), source, tally)
    return tally


def _answer(launch: Launch, plan: Path, source: Source, tally: Tally) -> None:
    """Estimate a launch as a user would, from its plan file."""
    plan.write_text(
        plan_text(launch, {"model": model_of(launch, str(plan)), "system": source.system}), encoding="utf-8"
    )
    serves = launch.words.get("phase") == "serve"
    words = ["estimate", "--plan", str(plan), "-q", *(source.more if serves else ("--allow-infeasible",))]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as told:
        code = run(words)
    tally.answered += code == 0
    tally.refused += code in (2, 3, 4)
    tally.faults += code not in (0, 2, 3, 4)
    if code:
        tally.reasons[re.sub(r"\d+", "N", told.getvalue().strip().rpartition("\n")[2])[:100]] += 1


def _files(clone: Path, source: Source) -> Iterator[tuple[str, str]]:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(clone), *words], capture_output=True, check=True)
        return done.stdout.decode(errors="replace")

    for name in git("ls-tree", "-r", "--name-only", source.commit).splitlines():
        if re.fullmatch(source.pattern, name):
            yield name, git("show", f"{source.commit}:{name}")


if __name__ == "__main__":
    main()
