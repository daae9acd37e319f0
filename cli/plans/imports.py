"""`slipstick import` and `--from`: a launch of another framework as a plan file, with what was left out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

from ...ir.errors import NotUnderstoodError, UsageError
from ...ir.records import dataclass
from ...ir.text.json_text import json_text
from ...ir.text.limits import limits
from ...ir.text.untrusted import read_settings, read_stdin
from ..flags.names import of_catalogue
from ..flags.numbers import Named, Whole
from ..output.files import check_suffix, write_text

if TYPE_CHECKING:
    from ...frontend.launches.launch import Launch

FRAMEWORKS = (
    "megatron",
    "torchtitan",
    "deepspeed",
    "transformers",
    "nanotron",
    "maxtext",
    "vllm",
    "sglang",
    "tensorrt-llm",
    "lmdeploy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """What a user wants of an import, as typed."""

    framework: str | None
    system: str | None
    num_gpus: int | None
    model: str | None
    environment: tuple[str, ...]
    strict: bool
    form: str
    output: str
    launch: tuple[str, ...]


class ImportCommand(click.Command):
    """A verb whose function receives all that was typed as one `asked`."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb's function."""
        ctx.params["asked"] = Importing(**{f.name: ctx.params.pop(f.name) for f in fields(Importing)})
        return super().invoke(ctx)


@click.command("import", cls=ImportCommand, context_settings={"ignore_unknown_options": True})
@click.option(
    "--framework",
    type=Named(FRAMEWORKS),
    metavar="NAME",
    help=f"Source framework: {', '.join(FRAMEWORKS)}.  [default: detected]",
)
@click.option(
    "--system",
    metavar="NAME|FILE",
    shell_complete=of_catalogue("systems"),
    help="System that it runs on, for the plan file.",
)
@click.option("--gpus", "num_gpus", type=Whole(min=1), metavar="N", help="Number of GPUs, if the launch does not say.")
@click.option("--model", metavar="NAME|FILE", help="Model, if the launch names none of the catalogue.")
@click.option(
    "--env", "environment", multiple=True, metavar="NAME=VALUE", help="Environment variable for the script. Repeatable."
)
@click.option("--strict", is_flag=True, help="Exit with code 4 when a setting that may matter is not understood.")
@click.option(
    "--format", "form", type=Named(("plan", "json")), default="plan", show_default=True, help="Output format."
)
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Output file; - is stdout.")
@click.argument("launch", nargs=-1, required=True, metavar="FILE | -- COMMAND...", type=click.UNPROCESSED)
def import_command(asked: Importing) -> int:
    """Read a launch of another framework into a plan file for `slipstick estimate --plan`.

    FILE is a shell or Slurm script, a JSON, TOML or YAML file of settings, a Kubernetes manifest, a recipe of
    Megatron-Bridge or NeMo (recipes.py::NAME), or - for stdin; a COMMAND comes after --. Nothing in it is run.
    Every setting is in the plan, as its stack or engine usually has it, known to change neither time nor memory, or
    listed as left out.

    \b
    slipstick import train_llama3.sh --gpus 64 --system dgx-h100 -o plan.yaml
    slipstick import --system dgx-h100 -- vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4
    """  # noqa: D301
    check_suffix(asked.output, ".json" if asked.form == "json" else ".yaml")
    text, name = _text(asked.launch)
    if wrong := [one for one in asked.environment if "=" not in one]:
        raise UsageError(f"--env {wrong[0]}: NAME=VALUE, as in NNODES=8")
    environment = {name: value for name, _, value in (one.partition("=") for one in asked.environment)}
    found = read(text, name, asked.framework, asked.num_gpus, environment)
    model = asked.model or model_of(found, asked.output)
    around = {"model": model, **({} if asked.system is None else {"system": asked.system})}
    document = {
        "schema": "slipstick/import/1",
        "framework": found.framework,
        "plan": {**found.words, **{name: word for name, word in around.items() if word}},
        "model_config": found.config,
        "understood": dict(found.understood),
        "usual": list(found.usual),
        "assumed": list(found.assumed),
        "ignored": list(found.ignored),
        "left_out": dict(found.left_out),
        "coverage": found.coverage,
    }
    as_json = json_text(document, indent=1)
    write_text(as_json if asked.form == "json" else plan_text(found, around), asked.output)
    if asked.strict and found.left_out:
        names = list(found.left_out)
        told = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        raise NotUnderstoodError(f"--strict: {len(names)} settings are not understood: {told}")
    return 0


def from_launch(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Let a launch say what the command line does not, as a plan file does."""
    if path is None or ctx.resilient_parsing:
        return path
    from .file import defaults

    text, name = _text((path,))
    found = read(text, name, None, None, {})
    model = found.words.get("model")
    known = {} if model is None and found.config is None else {"model": model_of(found, "-")}
    said = plan_text(found, {name: word for name, word in known.items() if word})
    ctx.default_map = {**(ctx.default_map or {}), **defaults(said, path, ctx)}
    for line in (
        *(f"assumed: {one}" for one in found.assumed),
        *(f"left out: {n} {v}" for n, v in found.left_out.items()),
    ):
        click.echo(f"note: {path}: {line}", err=True)
    return path


def read(text: str, name: str, framework: str | None, num_gpus: int | None, environment: Mapping[str, str]) -> Launch:
    """Read a launch; its errors name the file."""
    from ...frontend.launches.reading import read_launch

    try:
        return read_launch(text, name, framework, num_gpus, environment, _beside(name))
    except NotUnderstoodError as error:
        raise type(error)(f"{name or 'the command'}: {error}") from None


def _beside(name: str) -> Callable[[str], str | None]:
    """Return a reader of files that a launch names, below its folder or the user's; modules below any folder above."""

    def text(path: str) -> str | None:
        named = PurePath(path)
        if named.is_absolute() or ".." in named.parts or named.suffix not in (".json", ".yaml", ".yml", ".toml", ".py"):
            return None
        above = Path(name).absolute().parents if named.suffix == ".py" else ()
        places = [folder / named for folder in (Path(name).parent, Path(), *above)]
        found = next((place for place in places if os.path.isfile(place)), None)
        return None if found is None else read_settings(found)

    return text


def plan_text(found: Launch, around: Mapping[str, object]) -> str:
    """Return a launch as a plan file, with what was assumed and left out above it."""
    import yaml

    head = [
        f"a launch of {found.framework}: {len(found.understood)} settings in the plan, {len(found.usual)} as usual, "
        f"{len(found.ignored)} of no influence, {len(found.left_out)} left out",
        *(f"assumed: {line}" for line in found.assumed),
        *(f"left out: {name} {value}" for name, value in found.left_out.items()),
    ]
    named = {name: word for name, word in around.items() if word}
    words = {"schema": "slipstick/plan/1", **named, **{k: v for k, v in found.words.items() if k not in named}}
    body = yaml.safe_dump(words, sort_keys=False, width=120, allow_unicode=True)
    return "".join(f"# {line}\n" for line in head) + body


def _text(launch: Sequence[str]) -> tuple[str, str]:
    """Return the text of a launch and the name of its file: one word that is a file, stdin, or a command."""
    import shlex

    if len(launch) > 1:
        return shlex.join(launch), ""
    if " " in launch[0] and not os.path.isfile(launch[0]):
        return launch[0], ""
    if launch[0] == "-":
        return read_stdin(limits().settings_bytes), ""
    # Behind a file of recipes stands which: `llama3.py::llama3_8b_pretrain_8gpu_h100_bf16_config`.
    path = Path(launch[0].partition("::")[0])
    if not os.path.exists(path):
        raise UsageError(f"no file '{launch[0]}'; a command comes after --, as in `slipstick import -- vllm serve ...`")
    return read_settings(path), launch[0]


def model_of(found: Launch, output: str) -> str | None:
    """Return the model of a launch: its name where it is known, else its shape as a config.json beside the plan."""
    from ...frontend.huggingface.configs.models import aliases
    from ...frontend.launches.shapes import catalogue_model

    named = found.words.get("model")
    if isinstance(named, str):
        for one in (named, named.rsplit("/", 1)[-1]):
            if one.casefold() in aliases():
                return aliases()[one.casefold()]
        return named
    if found.config is None:
        return None
    if (name := catalogue_model(found.config)) is not None:
        return name
    text = json_text(dict(sorted(found.config.items())), indent=1) + "\n"
    path = _config_path(text, output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def _config_path(text: str, output: str) -> Path:
    """Beside the plan file; of a plan on stdout in the user's cache folder, under the digest of the shape."""
    if output != "-":
        return Path(output).with_suffix(".config.json")
    from ...frontend.cache import GraphCache

    return GraphCache.default().folder / "launches" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
