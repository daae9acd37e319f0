"""A plan as a file that is read back before it is given away: what `--plan` makes of it is the plan itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, cast

from ...ir.errors import UsageError
from ...ir.plan.files import SCHEMA, SERVE, check_said, plan_yaml
from ..arguments.options import Opt, options_of
from ..arguments.serving import ServerArgs
from ..prepare import plan_of
from ..request import Request
from ..serving.words import Serving
from ..software import with_software
from ..sources import Setting, Source, VerbArguments, merge_layers
from .file import read_plan
from .words import LOWERED, MODEL, STEP, plan_words

if TYPE_CHECKING:
    from ...ir.plan import Plan
    from ...ir.plan.files import Word, Words


def plan_file_text(plan: Plan, around: Words, comments: Sequence[str] = (), phase: str | None = None) -> str:
    """Return a plan as the YAML that `--plan` reads; see `ir.plan_file.plan_yaml` for what it takes.

    `around` names the model, and the system where the precision is that of a checkpoint. PlanError where flags do not
    make this very plan, with what differs.
    """
    text = plan_yaml(plan, around, comments, phase)
    request = request_of(text)
    if phase == SERVE:
        request = request.said({"phase": str(plan.family.workload), "mbs": plan.micro_batch, "seq": plan.seq_len})
    check_said(plan, plan_of(with_software(request)))
    return text


def words_around(request: Request, serving: Serving | None = None) -> Words:
    """Return what a request says besides its plan, in the words of plan files: all that flags do not say by themselves.

    >>> text = "model: gpt2, system: dgx-h100, flops_convention: causal, mbs: 2"
    >>> words_around(request_of(text.replace(", ", chr(10))))
    {'model': 'gpt2', 'dtype': 'bf16', 'system': 'dgx-h100', 'flops_convention': 'causal'}
    """
    given, usual = _values(request, serving), _usual()
    names = {key: opt.field for key, opt in plan_words().items() if opt.field in given}
    always = ("model", "dtype")
    said = {key: given[name] for key, name in names.items() if key in always or given[name] != usual[name]}
    return {key: value for key, value in said.items() if value is not None}


def _values(request: Request, serving: Serving | None) -> Mapping[str, Word | None]:
    """Return what is said besides a plan, by the parameters of flags."""
    of_server = () if serving is None else (serving, serving.drafts, serving.apart)
    parts = (request, request.source, request.machine, request.run, *of_server)
    return {f.name: getattr(part, f.name) for part in parts for f in fields(part)}


@cache
def _usual() -> Mapping[str, Word | None]:
    """Return the same of words that nobody says."""
    arguments = _arguments({MODEL.field: "none"})
    return _values(Request.of(arguments), Serving.of(arguments))


def request_of(text: str) -> Request:
    """Return what the text of a plan file asks of an estimate."""
    return Request.of(_arguments(read_plan(text, "plan", "estimate", plan_words()).values))


def _arguments(values: Mapping[str, object]) -> VerbArguments:
    """Return the arguments of an estimate of which a plan says these."""
    options = {MODEL.word: MODEL, **options_of(*STEP, *LOWERED, ServerArgs)}
    layer = {name: Setting(value, Source.PLAN) for name, value in values.items()}
    return VerbArguments(settings=merge_layers(options, layer))


def command_file_text(args: Sequence[str], comments: Sequence[str] = ()) -> str:
    """Return what a command line of `slipstick estimate` says, as the YAML that `--plan` reads.

    Flags of one run and not of a plan (--quiet, ...) are left out. UsageError for a flag that there is not.

    >>> print(command_file_text(["gpt2", "--tp", "2", "--no-sp", "--set", "a=1", "--disagg", "2:6"]), end="")
    schema: slipstick/plan/1
    model: gpt2
    tp: 2
    sp: false
    set:
    - a=1
    disagg: '2:6'
    """
    said = read_command(args)
    return words_text({word: said[word] for word in plan_words() if word in said}, comments)


def read_command(args: Sequence[str]) -> dict[str, Word]:
    """Return the words of a command line of an estimate; UsageError for a flag that there is not."""
    said: dict[str, Word] = {}
    for opt, value in _flags(args):
        before = said.get(opt.word, ())
        said[opt.word] = (*before, *value) if isinstance(value, tuple) and isinstance(before, tuple) else value
    return said


def command_arguments(args: Sequence[str]) -> VerbArguments:
    """Return the arguments of a command line of an estimate; UsageError for a flag that there is not."""
    fields_of = {word: opt.field for word, opt in options_of(*STEP, *LOWERED, ServerArgs).items()}
    return _arguments({fields_of.get(word, word): value for word, value in read_command(args).items()})


def _flags(args: Sequence[str]) -> Iterator[tuple[Opt, Word]]:
    named = {name: opt for opt in options_of(*STEP, *LOWERED, ServerArgs).values() for name in opt.names}
    words = iter(args)
    for word in words:
        name, equals, text = word.partition("=")
        if not word.startswith("-"):
            yield MODEL, word
        elif (opt := named.get(name)) is not None and opt.is_switch:
            yield opt, True
        elif opt is not None:
            yield opt, cast("Word", opt.read(text if equals else next(words, "")))
        else:
            off = next((one for one in named.values() if name in one.names_off), None)
            if off is None:
                raise UsageError(f"No such option: {name}")
            yield off, False


def words_text(words: Words, comments: Sequence[str] = ()) -> str:
    """Return words as the YAML that `--plan` reads."""
    import yaml

    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in words.items()}
    head = "".join(f"# {line}\n" for line in comments)
    return head + yaml.safe_dump({"schema": SCHEMA, **plain}, sort_keys=False, width=120, allow_unicode=True)
