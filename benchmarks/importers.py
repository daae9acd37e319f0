"""Sweep of public launches through `slipstick import` and `estimate`: `python -m benchmarks.importers FOLDER`.

FOLDER holds clones by `owner+name`, bare ones in `repo`; none of their files is copied here. It prints the table
of docs/importers.md: files that were read, settings understood, plans that were answered or refused with a reason.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from slipstick.cli import run
from slipstick.frameworks.imported import LaunchAround, imported_plan
from slipstick.frameworks.launch import Launch
from slipstick.frameworks.reading import read_launch
from slipstick.frameworks.training.recipes import recipes_in
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


_MEGATRON, _MAXTEXT = ("NVIDIA/Megatron-LM", "d98e8a64ddf3"), ("AI-Hypercomputer/tpu-recipes", "c8cfe2f68908")
_PRIMUS, _INFERENCEX = ("AMD-AGI/Primus", "fd1eeabbad15"), ("SemiAnalysisAI/InferenceX", "843c6254ff69")
SOURCES = (
    Source(*_MEGATRON, r"tests/functional_tests/test_cases/.*model_config\.yaml", "dgx-h100"),
    Source(*_MEGATRON, r"examples/.*(train|pretrain)[^/]*\.sh", "dgx-h100"),
    Source("NVIDIA-NeMo/Megatron-Bridge", "067f987df03b", r"src/megatron/bridge/perf_recipes/.*/.*\.py", "dgx-h100"),
    Source("NVIDIA/NeMo", "8cfedd720346", r"nemo/collections/llm/recipes/[a-z]\w*\.py", "dgx-h100"),
    Source(*_PRIMUS, r"examples/megatron/configs/.*\.yaml", "mi300x-platform"),
    Source(*_PRIMUS, r"examples/torchtitan/configs/.*\.yaml", "mi300x-platform"),
    Source(*_PRIMUS, r"examples/maxtext/configs/.*\.yaml", "mi300x-platform"),
    Source(*_MAXTEXT, r"training/ironwood/.*(run_recipe\.sh|k8s_manifest\.yaml)", "tpu-v5p-pod"),
    Source("huggingface/nanotron", "2411b022a75f", r"examples/.*config_.*\.yaml", "dgx-h100"),
    Source(
        "deepspeedai/DeepSpeedExamples",
        "45b4b7156c87",
        r"applications/DeepSpeed-Chat/training/.*\.sh|training/.*(ds_config|zero)[^/]*\.json",
        "dgx-h100",
    ),
    Source(
        "hiyouga/LLaMA-Factory",
        "ff6d4d12eeb0",
        r"examples/(train_|extras|accelerate|deepspeed).*\.(yaml|json)",
        "dgx-h100",
    ),
    Source("axolotl-ai-cloud/axolotl", "067b021c8b87", r"examples/.*\.ya?ml", "dgx-h100"),
    Source(*_INFERENCEX, r"benchmarks/single_node/.*\.sh", "dgx-b200", ("--concurrency", "64")),
)


_RECIPE = re.compile(r"^([a-z].*_(pretrain|sft)_.*gpu.*_config|(pretrain|finetune)_recipe)$")


@dataclass(slots=True)
class Tally:
    """What became of the launches of a source."""

    num: int = 0
    read: int = 0
    answered: int = 0
    refused: int = 0
    in_plan: int = 0
    usual: int = 0
    left: int = 0
    faults: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)

    def row(self, source: Source) -> str:
        """Return a line of the table."""
        matter = max(self.in_plan + self.usual + self.left, 1)
        shares = " | ".join(f"{part:,} ({part / matter:.1%})" for part in (self.in_plan, self.usual, self.left))
        return (
            f"| {source.repository} `{source.commit}` `{source.pattern}` | {self.num} | {self.read} | {shares} | "
            f"{self.answered} | {self.refused} | {self.faults} |"
        )


def main() -> None:
    """Sweep the sources, or those whose names hold one of the words given, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of clones, as owner+name/repo")
    parser.add_argument("parts", nargs="*", help="of names of repositories or patterns: all by default")
    parser.add_argument("--read-only", action="store_true", help="read the launches and ask for none")
    asked = parser.parse_args()
    print("| launches | files | read | in the plan | as usual | left out | answered | refused | faults |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for source in SOURCES:
        if asked.parts and not any(part in source.repository + source.pattern for part in asked.parts):
            continue
        found = swept(asked.folder / source.repository.replace("/", "+") / "repo", source, asked.read_only)
        print(found.row(source), flush=True)
        for reason, num in found.reasons.most_common(20):
            print(f"    {num} {reason}", file=sys.stderr)
        print("   ", *(f"{name}:{num}" for name, num in found.names.most_common(40)), file=sys.stderr)


def swept(clone: Path, source: Source, read_only: bool = False) -> Tally:
    """Read and answer every launch of a source."""
    tally = Tally()
    with TemporaryDirectory() as place:
        for number, (name, text) in enumerate(launches_of(clone, source)):
            tally.num += 1
            beside = partial(_beside, clone, source, name.partition("::")[0])
            try:
                launch = read_launch(text, name, environment=HARNESS, beside=beside)
            except SlipstickError as error:
                tally.refused += 1
                tally.reasons[re.sub(r"\d+", "N", str(error))[:100]] += 1
                continue
            tally.read += 1
            tally.in_plan += len(launch.understood)
            tally.usual += len(launch.usual)
            tally.left += len(launch.left_out)
            tally.names.update(list(launch.left_out))
            if not read_only:
                _answer(launch, Path(place, f"{number}.yaml"), source, tally)
    return tally


def _answer(launch: Launch, plan: Path, source: Source, tally: Tally) -> None:
    """Estimate a launch as a user would, from its plan file."""
    plan.write_text(imported_plan(launch, LaunchAround(system=source.system), str(plan)).text, encoding="utf-8")
    serves = launch.words.get("phase") == "serve"
    words = ["estimate", "--plan", str(plan), "-q", *(source.more if serves else ("--allow-infeasible",))]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as told:
        code = run(words)
    tally.answered += code == 0
    tally.refused += code in (2, 3, 4)
    tally.faults += code not in (0, 2, 3, 4)
    if code:
        tally.reasons[re.sub(r"\d+", "N", told.getvalue().strip().rpartition("\n")[2])[:100]] += 1


def launches_of(clone: Path, source: Source) -> Iterator[tuple[str, str]]:
    """Yield the launches of a source: files, and of files of recipes each recipe."""
    for name, text in _files(clone, source):
        recipes = recipes_in(text, name) if name.endswith(".py") else ()
        yield from ((f"{name}::{recipe}", text) for recipe in recipes if _RECIPE.search(recipe))
        if not name.endswith(".py"):
            yield name, text


def _beside(clone: Path, source: Source, at: str, path: str) -> str | None:
    """Read a file that a launch names, from the folder of the launch or of the repository."""
    above = Path(at).parents if path.endswith(".py") else ()
    found = (_shown(clone, source, str(folder / path)) for folder in (Path(at).parent, Path(), *above))
    return next((text for text in found if text is not None), None)


def _shown(clone: Path, source: Source, name: str) -> str | None:
    """Return a file of a commit; None where the clone has none of it."""
    done = subprocess.run(["git", "-C", str(clone), "show", f"{source.commit}:{name}"], capture_output=True)
    return None if done.returncode else done.stdout.decode(errors="replace")


def _files(clone: Path, source: Source) -> Iterator[tuple[str, str]]:
    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(clone), *words], capture_output=True, check=True)
        return done.stdout.decode(errors="replace")

    for name in git("ls-tree", "-r", "--name-only", source.commit).splitlines():
        if re.fullmatch(source.pattern, name) and (text := _shown(clone, source, name)) is not None:
            yield name, text


if __name__ == "__main__":
    main()
