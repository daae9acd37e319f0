"""Exports of plans: the subject, the flags of a framework, lost settings and open settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from ..ir.errors import UsageError
from ..ir.graph import Workload
from ..ir.plan.low_inference import AS_PUBLISHED
from ..ir.plan.words import PLAIN, WORDS
from ..ir.records import dataclass
from ..ir.schedules.registry import names_in
from .launch import Word

if TYPE_CHECKING:
    from ..backends.machine.software.engine import Scheduler
    from ..backends.machine.software.stack import StackConstants
    from ..ir.plan import Family, Plan

# What is run and on how many devices, which every framework is told.
_ALWAYS = ("phase", "seq", "mbs", "gbs", "gpus", "dp")
# A flag and its value; None for one that stands alone.
Flag: TypeAlias = tuple[str, str | int | float | bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSubject:
    """What is exported.

    Attributes:
        plan: degrees, batches and policy; of a server those of its decode steps.
        model: as people name it here.
        dtype: of weights and activations.
        config: the model's config.json, None where it has none.
        stack: software that the plan was priced with, for what it hides; None where no system was named.
        node_size: devices of a node.
        layers: layers of each chunk of a stage, in the order of the model; empty without pipeline stages.
        scheduler: limits of a server.
        longest: most tokens of a request of a server, prompt and answer.
        is_server: whether requests are answered; else one step was planned.
        weights: where the model's weights are: a name on the hub, or a folder; None where nobody says.
        drafts: what drafts tokens of a server: `mtp` or `ngram` with a number, or `draft` and `draft_length`.
        prompt, output, rate: tokens of requests of a server, and requests a second; None where nobody says.
    """

    plan: Plan
    model: str
    dtype: str = "bf16"
    config: Mapping[str, object] | None = None
    stack: StackConstants | None = None
    node_size: int | None = None
    layers: tuple[int, ...] = ()
    scheduler: Scheduler | None = None
    longest: int | None = None
    is_server: bool = False
    weights: str | None = None
    drafts: Mapping[str, int | str] = field(default_factory=dict)
    prompt: int | None = None
    output: int | None = None
    rate: float | None = None

    @property
    def family(self) -> Family:
        """The structural part of the plan."""
        return self.plan.family

    @property
    def words(self) -> Mapping[str, Word]:
        """What a plan file says of the plan and of the limits of its server, by name; without what has no value."""
        plan, at = self.plan.words, self.scheduler
        said: dict[str, Word | None] = {name: row.written(getattr(plan, row.field)) for name, row in WORDS.items()}
        more: dict[str, Word | None] = {"dp": self.plan.dp, "dtype": self.dtype}
        if self.family.published_of:
            more["precision"] = AS_PUBLISHED
        if self.layers:
            more["pp_layout"] = ",".join(map(str, self.layers))
        if at is not None:
            more |= {
                "max_num_seqs": at.max_num_seqs,
                "chunked_prefill": at.max_batched_tokens if at.chunked_prefill else 0,
                "memory_utilization": at.memory_utilization,
                "block_size": at.block_tokens,
            }
        if self.stack is not None:
            more["cuda_graph"] = self.stack.cuda_graph
        return {name: value for name, value in {**said, **more}.items() if value is not None}

    @property
    def headline(self) -> str:
        """What was planned, in one line."""
        plan = self.plan
        work = "serve" if self.is_server else str(self.family.workload)
        batch = "" if self.is_server else f" mbs{plan.micro_batch} gbs{plan.global_batch} seq{plan.seq_len}"
        return f"{self.model} {work} on {plan.num_gpus} GPUs: {plan.degrees}{batch}"

    @property
    def is_even(self) -> bool:
        """Whether all chunks have as many layers."""
        return len(set(self.layers)) <= 1

    @property
    def layers_text(self) -> str:
        """Layers of chunks as people read them: `7, 8 (x14), 7`."""
        runs = ((n, len(list(same))) for n, same in groupby(self.layers))
        return ", ".join(f"{n} (x{num})" if num > 1 else str(n) for n, num in runs)

    def number(self, *keys: str) -> float | None:
        """Return the first of these numbers that the model's config has; None where it has none."""
        for key in keys:
            value = None if self.config is None else self.config.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value
        return None

    def hides(self, axis: str) -> bool:
        """Whether the stack hides messages of an axis (`tp`, `ep`, `dp`, `pp`, `batches`) behind computation."""
        return self.stack is not None and float(getattr(self.stack.overlap, axis)) > 0.0


@dataclass(frozen=True, slots=True)
class Export:
    """A plan in the words of a framework.

    Attributes:
        framework: the target.
        version: of the framework, from which its names were read.
        text: flags of a command, or a file.
        lost: what the plan says and the framework's words cannot.
        left: what they need and the plan does not say, and what the framework decides by itself.
        takes_comments: whether lines that begin with # may stand in the text.
        benchmark: the command that measures it.
    """

    framework: str
    version: str
    text: str
    lost: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    takes_comments: bool = True
    benchmark: str = ""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know, line by line."""
        return (*(f"cannot be said: {line}" for line in self.lost), *(f"left open: {line}" for line in self.left))


def config_of(model: str) -> Mapping[str, object] | None:
    """Return the config.json of a model by its name or path, None where it comes from elsewhere."""
    from ..frontend.forms import has_config
    from ..frontend.huggingface.configs.models import read_config

    if not has_config(model):
        return None
    found: Mapping[str, object] = json.loads(read_config(model).text)
    return found


def written(export: Export, headline: str) -> str:
    """Return the text with what a reader must know above it, where comments may stand there."""
    if not export.takes_comments:
        return export.text
    lines = [headline, f"{export.framework}, names as of {export.version}", *export.notes]
    measured = f"# measure it: {export.benchmark}\n" if export.benchmark else ""
    return "".join(f"# {line}\n" for line in lines) + export.text + measured


def command(start: str, flags: Sequence[Flag]) -> str:
    r"""Return a command for a shell, a flag a line.

    >>> print(command("run", [("--tp", 8), ("--sp", None)]), end="")
    run \
      --tp 8 \
      --sp
    """
    lines = [start, *(" ".join(map(shlex.quote, flag_words(*flag))) for flag in flags)]
    return " \\\n  ".join(lines) + "\n"


def flag_words(name: str, value: str | int | float | bool | None) -> list[str]:
    """Return a flag and its value as words: a list of values is several."""
    if value is None:
        return [name]
    is_list = isinstance(value, str) and not any(c in value for c in "|*({[\"'")
    return [name, *(str(value).split(" ") if is_list else [str(value)])]


def nested(flags: Sequence[Flag]) -> dict[str, object]:
    """Return settings of dotted names as mappings in mappings.

    >>> nested([("a.b", 1), ("a.c", True), ("d", "x")])
    {'a': {'b': 1, 'c': True}, 'd': 'x'}
    """
    tree: dict[str, object] = {}
    for name, value in flags:
        at = tree
        *above, key = name.split(".")
        for part in above:
            inner = at.setdefault(part, {})
            assert isinstance(inner, dict)
            at = inner
        at[key] = value
    return tree


def yaml_text(tree: object) -> str:
    """Return mappings and lists as YAML, in their order; texts of several lines as blocks."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

        def represent_text(self, text: str) -> yaml.ScalarNode:
            style = "|" if "\n" in text else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_text)
    return str(yaml.dump(tree, Dumper=Dumper, sort_keys=False, width=10_000, allow_unicode=True))


def torchrun(subject: ExportSubject, script: str) -> str:
    """Return the launch of a script on all devices; without a node size, of the script alone."""
    if not subject.node_size:
        return script
    per_node = min(subject.node_size, subject.plan.num_gpus)
    nodes = -(-subject.plan.num_gpus // per_node)
    return f"torchrun --nnodes {nodes} --nproc-per-node {per_node} {script}"


def of_workload(subject: ExportSubject, framework: str, train: bool) -> None:
    """Raise UsageError for a framework that does not run what was planned."""
    if (subject.family.workload is Workload.TRAIN) != train:
        runs, takes = ("trains", "train") if train else ("serves", "serve")
        what = "a server" if subject.is_server else f"a step of {subject.family.workload}"
        raise UsageError(f"{framework} {runs}, and this is the plan of {what}: give one of --phase {takes}")


def lost_schedule(subject: ExportSubject, framework: str, called: str) -> Iterator[str]:
    """Yield the schedule of a plan with stages where a framework, as `ScheduleKind.names` calls it, has none such."""
    plan, family = subject.plan, subject.family
    if plan.pp > 1 and not family.pipeline.name_in(framework, plan.vpp):
        has_other = any(family.pipeline.name_in(framework, vpp) for vpp in (1, 2))
        of = f" with vpp {plan.vpp}" if has_other else ""
        yield f"schedule {family.schedule}{of}: {called} runs {', '.join(names_in(framework))}"


def unsaid(subject: ExportSubject, known: Container[str]) -> Iterator[str]:
    """Yield what a plan says otherwise than by default, in words that a framework's rows do not know."""
    words = subject.plan.words
    for name, row in WORDS.items():
        value = getattr(words, row.field)
        usual = getattr(PLAIN, row.field, False if row.default is None else row.default)
        if name not in _ALWAYS and name not in known and value is not None and value != usual:
            yield f"{name} {row.told(value)}: there is no word for it"
