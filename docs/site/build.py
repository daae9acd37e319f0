"""Build the site and the man pages: `python docs/site/build.py OUT`; every warning is an error.

The pages are those of docs/; the reference of the command line and of Python is written from the code.
"""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

import slipstick
from slipstick.cli import VERBS, root

DOCS = Path(__file__).resolve().parents[1]


def main(out: Path) -> None:
    """Write out/html and out/man."""
    source = out / "source"
    shutil.rmtree(source, ignore_errors=True)
    (source / "commands").mkdir(parents=True)
    for page in (*DOCS.glob("*.md"), *DOCS.glob("*.svg")):
        shutil.copy(page, source)
    for verb, (_, line) in VERBS.items():
        (source / "commands" / f"{verb}.md").write_text(_command(verb, line), encoding="utf-8")
    names = "\n".join(f"commands/{verb}" for verb in VERBS)
    toc = f"# Commands\n\n```{{toctree}}\n:maxdepth: 1\n\n{names}\n```\n"
    (source / "commands.md").write_text(toc, encoding="utf-8")
    (source / "api.md").write_text("\n".join(_api()), encoding="utf-8")
    # A process each: Sphinx keeps what it has registered.
    for builder in ("html", "man"):
        given = ["-q", "-W", "--keep-going", "-b", builder, "-c", str(DOCS / "site"), "-d", str(out / "trees")]
        done = subprocess.run([sys.executable, "-m", "sphinx", *given, str(source), str(out / builder)], check=False)  # noqa: S603 - our own builders
        if done.returncode:
            sys.exit(done.returncode)


def _command(verb: str, line: str) -> str:
    """Return the page of a verb: what its --help-all says."""
    said = CliRunner().invoke(root, [verb, "--help-all"], terminal_width=100, prog_name="slipstick")
    if said.exit_code:
        said = CliRunner().invoke(root, [verb, "--help"], terminal_width=100, prog_name="slipstick")
    assert said.exit_code == 0, said.output
    return f"# slipstick {verb}\n\n{line}\n\n```text\n{said.output.rstrip()}\n```\n"


def _api() -> Iterator[str]:
    """Yield the public names: their signature, and what their docstring says."""
    yield "# Python reference\n"
    yield "Public names of the package `slipstick`, as their docstrings describe them.\n"
    for name in slipstick.__all__:
        found = getattr(slipstick, name)
        yield f"## {name}\n"
        try:
            signature = str(inspect.signature(found)).replace("'", "")
        except (TypeError, ValueError):
            signature = ""
        yield f"```text\n{name}{signature}\n\n{inspect.getdoc(found) or ''}\n```\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
