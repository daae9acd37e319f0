"""A launch and what its user says around it, to a plan file: the one way of `import`, `--from` and `launch=`."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from ..ir.errors import NotUnderstoodError, UsageError
from ..ir.plan.files import SCHEMA
from ..ir.records import dataclass
from ..ir.text.json_text import json_text
from ..ir.text.limits import limits
from ..ir.text.untrusted import read_settings, read_stdin
from .launch import Launch, Word
from .reading import read_launch


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAround:
    """What a user says around a launch; None where nothing.

    Attributes:
        framework: one of `reading.FRAMEWORKS`; None to find out.
        num_gpus: devices that it runs on.
        system: machine that it runs on.
        model: what it trains or serves.
        environment: variables that its script finds set, each as NAME=VALUE.
    """

    framework: str | None = None
    num_gpus: int | None = None
    system: str | None = None
    model: str | None = None
    environment: tuple[str, ...] = ()

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables by name; UsageError for what is none."""
        if wrong := [text for text in self.environment if "=" not in text]:
            raise UsageError(f"--env {wrong[0]}: NAME=VALUE, as in NNODES=8")
        return {name: value for name, _, value in (text.partition("=") for text in self.environment)}


@dataclass(frozen=True, slots=True)
class ImportedPlan:
    """A launch, and all words of a plan file that it and what is said around it make."""

    launch: Launch
    words: Mapping[str, Word]

    @property
    def notes(self) -> Iterator[str]:
        """What was assumed and what was left out, a line each."""
        yield from (f"assumed: {line}" for line in self.launch.assumed)
        yield from (f"left out: {name} {value}" for name, value in self.launch.left_out.items())

    @property
    def record(self) -> Mapping[str, object]:
        """Every setting of the launch, and what became of it."""
        at = self.launch
        return {
            "schema": "slipstick/import/1",
            "framework": at.framework,
            "plan": dict(self.words),
            "model_config": at.config,
            "understood": dict(at.understood),
            "usual": list(at.usual),
            "assumed": list(at.assumed),
            "ignored": list(at.ignored),
            "left_out": dict(at.left_out),
            "coverage": at.coverage,
        }

    @property
    def text(self) -> str:
        """The plan file, with what was assumed and left out above it."""
        import yaml

        at = self.launch
        head = (
            f"a launch of {at.framework}: {len(at.understood)} settings in the plan, {len(at.usual)} as usual, "
            f"{len(at.ignored)} of no influence, {len(at.left_out)} left out"
        )
        words = {"schema": SCHEMA, "framework": at.framework, **self.words}
        body = yaml.safe_dump(words, sort_keys=False, width=120, allow_unicode=True)
        return "".join(f"# {line}\n" for line in (head, *self.notes)) + body


def import_launch(given: Sequence[str], around: LaunchAround, output: str = "-") -> ImportedPlan:
    """Read a launch into the words of a plan file; nothing of it is run.

    Args:
        given: a file (`recipes.py::NAME` for one of its recipes), `-` for stdin, or a command, as one word or several.
        around: what its user says.
        output: where the plan file goes: the shape of a model that the launch spells out is written beside it, and of
            a plan on stdout in the cache folder.

    Raises:
        UsageError: no such file, or a launch of no framework that is known.
        NotUnderstoodError: a value that is none of its setting's; the error names the file.
    """
    text, name = _read_text(given)
    try:
        launch = read_launch(text, name, around.framework, around.num_gpus, around.variables, _neighbours(name))
    except NotUnderstoodError as error:
        raise type(error)(f"{name or 'the command'}: {error}") from None
    return imported_plan(launch, around, output)


def imported_plan(launch: Launch, around: LaunchAround, output: str = "-") -> ImportedPlan:
    """Return the plan file of a launch that was read; `output` as of `import_launch`."""
    named = {"model": around.model or _model_of(launch, output), "system": around.system}
    known = {name: word for name, word in named.items() if word}
    return ImportedPlan(launch, {**known, **{name: word for name, word in launch.words.items() if name not in known}})


def _read_text(given: Sequence[str]) -> tuple[str, str]:
    """Return the text of a launch and the name of its file: one word that is a file, stdin, or a command."""
    if len(given) > 1:
        return shlex.join(given), ""
    if given[0] == "-":
        return read_stdin(limits().settings_bytes), ""
    # Behind a file of recipes stands which: `llama3.py::llama3_8b_pretrain_8gpu_h100_bf16_config`.
    path = Path(given[0] if os.path.isfile(given[0]) else given[0].partition("::")[0])
    if " " in given[0] and not os.path.isfile(path):
        return given[0], ""
    if not os.path.exists(path):
        raise UsageError(f"no file '{given[0]}'; a command comes after --, as in `slipstick import -- vllm serve ...`")
    return read_settings(path), given[0]


def _neighbours(name: str) -> Callable[[str], str | None]:
    """Return a reader of files that a launch names, below its folder or the user's; modules below any folder above."""

    def read(path: str) -> str | None:
        named = PurePath(path)
        if named.is_absolute() or ".." in named.parts or named.suffix not in (".json", ".yaml", ".yml", ".toml", ".py"):
            return None
        above = Path(name).absolute().parents if named.suffix == ".py" else ()
        places = [folder / named for folder in (Path(name).parent, Path(), *above)]
        place = next((place for place in places if os.path.isfile(place)), None)
        return None if place is None else read_settings(place)

    return read


def _model_of(launch: Launch, output: str) -> str | None:
    """Return the model of a launch: its name where it is known, else its shape as a config.json beside the plan."""
    from ..frontend.huggingface.configs.models import aliases
    from .shapes import catalogue_model

    named = launch.words.get("model")
    if isinstance(named, str):
        names = (named, named.rsplit("/", 1)[-1])
        return next((aliases()[name.casefold()] for name in names if name.casefold() in aliases()), named)
    if launch.config is None:
        return None
    if (name := catalogue_model(launch.config)) is not None:
        return name
    text = json_text(dict(sorted(launch.config.items())), indent=1) + "\n"
    path = _config_path(text, output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def _config_path(text: str, output: str) -> Path:
    """Beside the plan file; of a plan on stdout in the user's cache folder, under the digest of the shape."""
    if output != "-":
        return Path(output).with_suffix(".config.json")
    from ..frontend.cache import GraphCache

    return GraphCache.default().folder / "launches" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
