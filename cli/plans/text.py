"""A plan as a file that is read back before it is given away: what `--plan` makes of it is the plan itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def words_around(request: Request) -> Words:
    """Return what a request says besides its plan, in the words of plan files: all that flags do not say by themselves.

    >>> words_around(request_of("model: gpt2, system: dgx-h100, flops_convention: causal, mbs: 2".replace(", ", chr(10))))
    {'model': 'gpt2', 'dtype': 'bf16', 'system': 'dgx-h100', 'flops_convention': 'causal'}
    """
    from .schema import words

    given, usual = dict(_values(request)), dict(_values(_usual()))
    found = {key: given[str(flag.name)] for key, flag in words().items() if str(flag.name) in given}
    always = ("model", "dtype")
    return {k: v for k, v in found.items() if v is not None and (k in always or v != usual[str(words()[k].name)])}


def _values(request: Request) -> Iterator[tuple[str, Word]]:
    """Yield what a request says besides its plan, by the parameters of its flags."""
    for part in (request, request.source, request.machine, request.run):
        yield from ((f.name, getattr(part, f.name)) for f in fields(part))


@cache
def _usual() -> Request:
    return request_of("model: none")


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
    import yaml

    from ..estimate import EstimateCommand
    from .schema import words

    command = EstimateCommand("estimate")
    with command.make_context("estimate", list(args)) as ctx:
        typed = click.core.ParameterSource.COMMANDLINE
        said = {
            k: ctx.params[str(p.name)] for k, p in words().items() if ctx.get_parameter_source(str(p.name)) is typed
        }
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in said.items()}
    head = "".join(f"# {line}\n" for line in comments)
    return head + yaml.safe_dump({"schema": SCHEMA, **plain}, sort_keys=False, width=120, allow_unicode=True)
