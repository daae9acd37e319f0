"""`slipstick ui`: a page of this machine on which models, machines and plans are dragged."""

from __future__ import annotations

import gc
import webbrowser

import click

from ..flags.numbers import Whole

# What the page begins with: a plan that is a good one on two nodes.
_START = {
    "gpus": 64,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "ep": 1,
    "mbs": 1,
    "gbs": 512,
    "seq": 8192,
    "zero": "3",
    "recompute": "none",
}


@click.command("ui")
@click.argument("model", default="llama-3.1-8b")
@click.option("--system", default="dgx-h100", show_default=True, metavar="NAME", help="System to begin with.")
@click.option("--port", type=Whole(0, 65535), default=0, help="Port of 127.0.0.1.  [default: a free one]")
@click.option("--open/--no-open", "opens", default=True, help="Open the page in the browser.  [default: open]")
def ui_command(model: str, system: str, port: int, opens: bool) -> None:
    """Open a local page with sliders for GPUs, degrees, bandwidths and prices; time, memory and cost follow.

    It listens on 127.0.0.1 only and needs the address that is printed, with its token; stop it with Ctrl-C. Models and
    systems are those of the catalogue.

    \b
    slipstick ui llama-3.1-405b --system dgx-h100
    """  # noqa: D301
    from .dragged import Dragged, choices
    from .rule import SlideRule
    from .server import RuleServer, page_of

    Dragged.read({**_START, "model": model, "system": system})
    rule = SlideRule()
    page, policy = page_of({**_START, "model": model, "system": system}, choices())
    with RuleServer(rule, page, policy, port) as server:
        click.echo(f"slipstick ui: {server.address}")
        click.echo("it answers this machine alone; stop it with Ctrl-C", err=True)
        if opens:
            webbrowser.open(server.address)
        # A command is short, a server is not: its garbage is collected.
        gc.enable()
        server.serve_forever()
