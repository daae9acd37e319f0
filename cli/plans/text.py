"""A plan as a file that is read back before it is given away: what `--plan` makes of it is the plan itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

import click

from ...ir.plan.files import SCHEMA, SERVE, check_said, plan_yaml
from ..flags.request import Request
from .file import defaults
from .software import with_software

if TYPE_CHECKING:
    from ...ir.plan import Plan
    from ...ir.plan.files import Word, Words
    from ..serving.flags import Serving


def plan_file_text(plan: Plan, around: Words, comments: Sequence[str] = (), phase: str | None = None) -> str:
    """Return a plan as the YAML that `--plan` reads; see `ir.plan_file.plan_yaml` for what it takes.

    `around` names the model, and the system where the precision is that of a checkpoint. PlanError where flags do not
    make this very plan, with what differs.
    """
    from ..prepare import plan_of

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
    from .schema import words

    given, usual = _values(request, serving), _usual()
    names = {key: str(flag.name) for key, flag in words().items() if str(flag.name) in given}
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
    """Return the same of flags that nobody gives."""
    from ..estimate import EstimateCommand
    from ..serving.flags import Serving

    with EstimateCommand("estimate").make_context("estimate", ["none"]) as ctx:
        params = dict(ctx.params)
        return _values(Request.of(params), Serving.said(params))


def request_of(text: str) -> Request:
    """Return what the text of a plan file asks of an estimate."""
    from ..estimate import EstimateCommand

    command = EstimateCommand("estimate")
    given = defaults(text, "plan", click.Context(command))
    with command.make_context("estimate", [], default_map=given) as ctx:
        return Request.of(dict(ctx.params))


def command_file_text(args: Sequence[str], comments: Sequence[str] = ()) -> str:
    """Return what a command line of `slipstick estimate` says, as the YAML that `--plan` reads.

    Flags of one run and not of a plan (--format, --quiet, ...) are left out. UsageError as the command itself has it.

    >>> print(command_file_text(["gpt2", "--tp", "2", "--no-sp", "--set", "a=1", "--disagg", "2:6"]), end="")
    schema: slipstick/plan/1
    model: gpt2
    tp: 2
    sp: false
    set:
    - a=1
    disagg: '2:6'
    """
    from ..estimate import EstimateCommand
    from .schema import words

    command = EstimateCommand("estimate")
    with command.make_context("estimate", list(args)) as ctx:
        typed = click.core.ParameterSource.COMMANDLINE
        said = {
            k: ctx.params[str(p.name)] for k, p in words().items() if ctx.get_parameter_source(str(p.name)) is typed
        }
    return words_text(said, comments)


def words_text(words: Words, comments: Sequence[str] = ()) -> str:
    """Return words as the YAML that `--plan` reads."""
    import yaml

    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in words.items()}
    head = "".join(f"# {line}\n" for line in comments)
    return head + yaml.safe_dump({"schema": SCHEMA, **plain}, sort_keys=False, width=120, allow_unicode=True)
