"""Names of the catalogue, and `slipstick completion`: the script by which a shell completes verbs, flags and names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, TypeAlias

import click

from .numbers import Named

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Completed: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"


def of_catalogue(kind: str) -> Completed:
    """Return what completes the last name of a list with commas; where no name goes on so, files may be meant.

    >>> [item.value for item in of_catalogue("systems")(None, None, "dgx-h100,dgx-h2")]
    ['dgx-h100,dgx-h200']
    >>> [item.value for item in of_catalogue("systems")(None, None, "DGX-A")]
    ['dgx-a100-40gb', 'dgx-a100-80gb']
    >>> [item.type for item in of_catalogue("systems")(None, None, "./mi")]
    ['file']
    """

    def completed(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        before, comma, last = begun.rpartition(",")
        found = [CompletionItem(f"{before}{comma}{name}") for name in names_of(kind) if name.startswith(last.lower())]
        return found or [CompletionItem(begun, type="file")]

    return completed


def names_of(kind: str) -> Sequence[str]:
    """Name what the catalogue has of a kind that a flag takes; files are listed, and none is read."""
    if kind == "models":
        from ...frontend.huggingface.configs.models import names as models

        return models()
    if kind == "prices":
        from ...backends.prices.book import profile_names

        return profile_names()
    from ...backends.machine.files.catalogue import names

    return names(kind)


@click.command("completion")
@click.argument("shell", type=Named(("bash", "zsh", "fish")), metavar="{bash|zsh|fish}")
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the script by which a SHELL completes verbs, flags and names.

    Names are those of models, systems, stacks, engines and others. Put it into ~/.bashrc or ~/.zshrc for every shell.

    \b
    eval "$(slipstick completion bash)"
    slipstick completion fish > ~/.config/fish/completions/slipstick.fish
    """  # noqa: D301
    from click.shell_completion import get_completion_class

    of_shell, root = get_completion_class(shell), ctx.find_root().command
    assert of_shell is not None  # click has these three
    click.echo(of_shell(root, {}, "slipstick", "_SLIPSTICK_COMPLETE").source())


def flag_name(param: click.Parameter) -> str:
    """Return the key of a parameter: the first long name of its flag that Python takes as a name, as in `dp_shard`."""
    long = [name for name in param.opts if name.startswith("--") and not iskeyword(name.lstrip("-"))]
    return (long or param.opts)[0].lstrip("-").replace("-", "_")
