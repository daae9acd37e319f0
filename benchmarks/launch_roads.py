"""The law of launches: `estimate --from X FLAGS` is `import X` with its flags, then `estimate --plan` with the others.

`python -m benchmarks.launch_roads FOLDER` tries it on the launches of `benchmarks.importers`, of clones in FOLDER.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from slipstick.cli import run
from slipstick.cli.estimate import estimate_command
from slipstick.cli.flags.command import arguments_of
from slipstick.ir.errors import SlipstickError

# What `import` takes of flags; the model stands alone on the command line of `estimate`.
OF_IMPORT = ("--gpus", "--system", "--model", "--env")
# Words that name where others are.
_FILES = ("launch", "plan", "environment")
FLAGS: tuple[tuple[str, ...], ...] = (
    ("--system", "dgx-h100"),
    ("--system", "dgx-h200", "--gpus", "8", "--gbs", "64"),
    ("--gpus", "64", "--model", "llama-3.1-8b", "--mbs", "2", "--seq", "4096", "--set", "chip.memory.hbm.capacity=1GB"),
    ("--gpus", "16", "--system", "dgx-h100", "--env", "TP=8", "--env", "NNODES=4", "--zero", "1", "--tp", "2"),
)


def disagreement(launch: str, flags: Sequence[str], plan: Path) -> str | None:
    """Return what the two roads make different of a launch, None where nothing; `plan` is written.

    Equal parameters are equal answers: a verb sees nothing else. A launch that both refuse is no disagreement.
    """
    context, others = _split(flags)
    words = [*context, "-o", str(plan)]
    direct = _parameters([*_of_estimate(context), *others, f"--from={launch}"])
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        code = run(["import", *words, launch] if " " not in launch else ["import", *words, "--", launch])
    stepwise = said.getvalue().strip() if code else _parameters([*others, f"--plan={plan}"])
    if isinstance(direct, str) or isinstance(stepwise, str):
        return None if isinstance(direct, str) and isinstance(stepwise, str) else f"--from {direct}, --plan {stepwise}"
    names = sorted({*direct, *stepwise})
    wrong = [f"{n} {direct.get(n)} and {stepwise.get(n)}" for n in names if direct.get(n) != stepwise.get(n)]
    return "; ".join(wrong) or None


def _split(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part pairs of flags and values into those of `import` and the others."""
    pairs = list(zip(flags[::2], flags[1::2], strict=True))
    context, others = ([w for p in pairs if (p[0] in OF_IMPORT) is own for w in p] for own in (True, False))
    return context, others


def _of_estimate(context: Sequence[str]) -> list[str]:
    """Return flags of `import` as `estimate` has them."""
    pairs = zip(context[::2], context[1::2], strict=True)
    return [word for name, value in pairs for word in ((value,) if name == "--model" else (name, value))]


def _parameters(words: Sequence[str]) -> Mapping[str, object] | str:
    """Return the parameters of an estimate, or why it is refused."""
    try:
        with redirect_stderr(io.StringIO()), estimate_command.make_context("estimate", list(words)) as ctx:
            said = arguments_of(ctx).settings.items()
            return {name: _content(one.value) for name, one in said if name not in _FILES}
    except (SlipstickError, click.ClickException) as error:
        return str(error)


def _content(value: object) -> object:
    """Return the shape of a model in the place of the file that it is written to."""
    is_shape = isinstance(value, str) and value.endswith(".json") and Path(value).is_file()
    return Path(str(value)).read_text(encoding="utf-8") if is_shape else value


def main() -> None:
    """Try the law on the launches of all sources, and print disagreements and a count for each source."""
    from .importers import SOURCES, launches_of

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of clones, as owner+name/repo")
    folder = parser.parse_args().folder
    for source in SOURCES:
        clone = folder / source.repository.replace("/", "+") / "repo"
        num = wrong = 0
        for name, text in launches_of(clone, source) if clone.is_dir() else ():
            with TemporaryDirectory() as place:
                launch = written(Path(place), name, text)
                for flags in FLAGS:
                    found = disagreement(launch, flags, Path(place, "plan.yaml"))
                    num, wrong = num + 1, wrong + (found is not None)
                    if found is not None:
                        print(f"{source.repository} {name} {' '.join(flags)}: {found}")
        print(f"{source.repository} {source.pattern}: {num} cases, {wrong} disagree", flush=True)


def written(folder: Path, name: str, text: str, files: Mapping[str, str] | None = None) -> str:
    """Write a launch and the files that it names below a folder; return what `--from` is given of it."""
    file, colons, recipe = name.partition("::")
    for path, content in {**(files or {}), file or "launch.sh": text}.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, encoding="utf-8")
    return f"{folder / (file or 'launch.sh')}{colons}{recipe}"


if __name__ == "__main__":
    main()
