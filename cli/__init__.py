"""The command line: results on stdout, everything else on stderr, exit codes that scripts can rely on.

0 ok, 1 internal error, 2 usage, 3 does not fit, 4 input not understood, 5 failed gate, 130 interrupted.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import cast

import click

from ..ir.errors import InternalError, SlipstickError, did_you_mean

# Verb -> module and one line for --help; a verb is imported when it is used.
VERBS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "calibrate": ("calibrate.kernels", "Fit the constants of kernels to tables of measurements."),
        "choose": (
            "search.choose",
            "Choose a cluster for a training run: system, number of GPUs, plan, days and dollars.",
        ),
        "compare": ("compare", "Compare two results, or a result with a measured run; gates for CI."),
        "compile": ("compile", "Write the traced, sharded or costed graph, or the estimate, to files."),
        "completion": ("flags.names", "Print the completion script for bash, zsh or fish."),
        "cost": ("cost", "Show what a system costs: dies, packages, servers, network, a GPU-hour."),
        "design": ("designs.design", "Design a chip or a system from area and power on a technology node."),
        "doctor": ("doctor", "Check this installation: versions, extras, folders, and how to fix them."),
        "estimate": ("estimate", "Estimate how long a step takes, whether it fits, and where the time goes."),
        "export": ("export", "Write a plan as flags or config of Megatron-LM, torchtitan, DeepSpeed or vLLM."),
        "help": ("help", "Show the help of a verb, or of one topic of its flags."),
        "import": (
            "plans.imports",
            "Read a launch of Megatron-LM, torchtitan, DeepSpeed, vLLM, SGLang, ... into a plan file.",
        ),
        "list": (
            "catalogue",
            "List models, systems, chips, stacks, engines, prices, process nodes, schedules, ...",
        ),
        "mixed": ("training.mixed", "Estimate a step whose pipeline stages stand on several systems."),
        "posttrain": (
            "training.posttrain",
            "Estimate a step of post-training: rollouts, passes, training, days and dollars.",
        ),
        "recompute": ("training.recompute", "Find the fastest recomputation and offload policy within a memory limit."),
        "report": ("report", "Turn saved results into one HTML page, or one table."),
        "runs": ("runs", "List, show, export or remove saved searches."),
        "schema": ("plans.schemas", "Print the JSON Schema of plan, search-space, system and other input files."),
        "search": (
            "search.search",
            "Search parallel plans of a model on one or many systems; show the best.",
        ),
        "show": (
            "catalogue",
            "Show one model, system, chip, stack, engine, process node, schedule, ...",
        ),
        "size": ("search.size", "Find the smallest deployment that meets a request rate and latency targets."),
        "support": ("catalogue", "Show which models, chips and software were validated, and the prediction errors."),
        "sweep": ("designs.sweep", "Cost thousands of chip designs, and estimate a model on each."),
        "topologies": (
            "designs.topologies",
            "Compare networks of equal cost, power or bandwidth by a step on each.",
        ),
        "trace": ("trace", "Show the operators, parameters, FLOPs and bytes of a model."),
        "ui": ("ui.ui", "Open a local page with sliders for plan and machine; time, memory and cost follow."),
        "validate": ("validate", "Compare predictions with measurements, row by row."),
    }
)

# Verbs of other tools, and where the same is asked for here.
_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "bench": "calibrate --device",
        "optimize": "search",
        "price": "cost",
        "profile": "estimate --emit trace",
        "serve": "estimate --phase serve",
        "simulate": "estimate --phase serve --serve TRAFFIC",
        "tune": "search",
        "version": "--version",
    }
)

# Of the last of the three streams that a process is given.
_STDERR = 2

_EPILOG = (
    "Exit codes: 0 ok, 1 internal error, 2 usage, 3 does not fit, 4 input not understood, 5 failed gate, "
    "130 interrupted."
)


class LazyGroup(click.Group):
    """A group whose verbs are imported only when they run; --help reads the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb."""
        if cmd_name not in VERBS:
            return None
        found = getattr(import_module(f".{VERBS[cmd_name][0]}", __name__), f"{cmd_name}_command")
        assert isinstance(found, click.Command)
        # A command keeps the help option that it makes first: in a context without our names, `-h` would be gone.
        found.get_help_option(click.Context(found, help_option_names=self.context_settings["help_option_names"]))
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown verb with the nearest one."""
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            from .catalogue import as_kind

            kind = as_kind(args[0])
            here = _ELSEWHERE.get(args[0], "" if kind is None else f"list {kind}")
            near = f"; see `slipstick {here}`;" if here else did_you_mean(args[0], [*VERBS, *_ELSEWHERE])
            for other, where in _ELSEWHERE.items():
                near = near.replace(f"did you mean '{other}'?", f"see `slipstick {where}`;")
            raise click.UsageError(f"unknown verb '{args[0]}'{near} allowed: {', '.join(VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from ..ir import __version__

        click.echo(f"slipstick {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def root() -> None:
    """Compile a transformer or MoE model for a machine; estimate its time, memory and cost.

    \b
    slipstick estimate llama-3.1-8b --system dgx-h100 --gpus 8 --tp 2 --gbs 64
    slipstick search mixtral-8x7b --system dgx-h100 --gpus 64 --gbs 256
    slipstick list models
    """  # noqa: D301


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    A command is short and its memory goes with it: collecting garbage meanwhile, and taking torch apart at the end,
    would cost a quarter of a cold run.
    """
    if "_SLIPSTICK_COMPLETE" in os.environ:
        root.main(prog_name="slipstick")
    gc.disable()
    # Threads of numpy's linear algebra spin while they wait, a fifth of the CPU time of a short command, and no table
    # here is large enough for them. What `calibrate` measures may use them.
    if "calibrate" not in (sys.argv[1:] if args is None else args)[:1]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _open_streams()
    ended = _listen()
    code = run(args)
    code = 128 + ended[0] if ended and code == 130 else code
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _open_streams() -> None:
    """Have streams that can be written to, whatever the shell closed and whichever letters they have.

    Python has no stream where the shell closed one, as in `slipstick list ops >&-`, and the next file that is opened
    would be taken for it by libraries and children. A letter that a stream lacks, or half of one, is written out.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _listen() -> list[int]:
    """End as by Ctrl-C on SIGTERM and SIGHUP, so that a search keeps what is done and says how to go on.

    Returns what came, once something has: the exit code is 128 and its number, as a shell has it. A second signal ends
    the process at once. One that is ignored, as under `nohup`, stays so.
    """
    came: list[int] = []

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        came.append(number)
        raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
    return came


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; people never see a traceback.

    SLIPSTICK_DEBUG=1 shows the traceback of an internal error.
    """
    try:
        code = invoke(sys.argv[1:] if args is None else args)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        from ..ir.text.shown import shown
        from .flags.hints import hinted

        # The message is final to type checkers alone; what shows it looks nowhere else.
        object.__setattr__(error, "message", shown(hinted(error)))
        with suppress(OSError):  # the exit code says it where stderr cannot
            error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort) as stop:
        return _fail(str(stop) or "interrupted", 130)
    except SystemExit as leave:
        return _fail(f"the model's code left Python by itself (SystemExit: {leave.code}), so there is no graph", 2)
    except BrokenPipeError:
        return _close_stdout()
    except InternalError as error:
        return _internal(error)
    except SlipstickError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _unusable(error)
    except UnicodeEncodeError as error:
        return _fail(f"{error.object[:80]!r} is no text, and cannot be written as UTF-8: rename it", 2)
    except Exception as error:
        return _internal(error)
    return code if isinstance(code, int) else 0


def invoke(words: Sequence[str]) -> object:
    """Run a command with its defaults, where code runs only if typed; return what its verb does, or raise."""
    from ..ir.text.untrusted import allow_typed_code
    from .flags.settings import OwnDefaults

    with allow_typed_code(words), root.make_context("slipstick", list(words)) as context:
        # Behind the parse of its own flags: `help` is both a flag and a verb. Defaults are told with --quiet too.
        own = OwnDefaults(root, lambda line: click.echo(line, err=True))
        context.default_map = cast("MutableMapping[str, object]", own)
        return root.invoke(context)


def _internal(error: Exception) -> int:
    if os.environ.get("SLIPSTICK_DEBUG"):
        raise error
    message = f"internal: {type(error).__name__}: {error} (SLIPSTICK_DEBUG=1 shows the traceback; please report it)"
    return _fail(message, 1)


def _unusable(error: OSError) -> int:
    """A file that nobody expected to fail, or a full disk behind stdout."""
    if os.environ.get("SLIPSTICK_DEBUG"):
        raise error
    return _fail(f"cannot use '{error.filename or 'stdout'}': {error.strerror or error}", 2)


def _fail(message: str, exit_code: int) -> int:
    from ..ir.text.shown import shown

    with suppress(OSError):
        click.echo(f"error: {shown(message)}", err=True)
    return exit_code


def _close_stdout() -> int:
    """Nobody reads on, as in `slipstick list ops | head`; what is still buffered must not fail at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
