"""`slipstick ui`: a page of this machine on which models, machines and plans are dragged."""

from __future__ import annotations

import gc
import webbrowser
from collections.abc import Mapping

import click

from ..flags.numbers import Named, Whole

# What the page begins with: a plan that is a good one on eight nodes, and a server of one.
_START: Mapping[str, object] = {
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
_SERVER: Mapping[str, object] = {
    "gpus": 8,
    "tp": 4,
    "pp": 1,
    "ep": 1,
    "precision": "none",
    "isl": 2048,
    "osl": 256,
    "load": "request rate",
    "rate": 4.0,
    "clients": 64,
    "limits": "p90",
    "ttft_ms": 1000.0,
    "tpot_ms": 50.0,
}


@click.command("ui")
@click.argument("model", default="llama-3.1-8b")
@click.option("--system", default="dgx-h100", show_default=True, metavar="NAME", help="System to begin with.")
@click.option(
    "--phase",
    type=Named(("train", "serve")),
    default="train",
    show_default=True,
    help="Steps of training, or a server.",
)
@click.option("--port", type=Whole(0, 65535), default=0, help="Port of 127.0.0.1.  [default: a free one]")
@click.option("--open/--no-open", "opens", default=True, help="Open the page in the browser.  [default: open]")
def ui_command(model: str, system: str, phase: str, port: int, opens: bool) -> None:
    """Open a local page with sliders for GPUs, degrees, bandwidths and prices; time, memory and cost follow.

    It answers for steps of training and for servers: latencies and cost under a load. It listens on 127.0.0.1 only and
    needs the address that is printed, with its token; stop it with Ctrl-C. Models and systems are those of the
    catalogue.

    \b
    slipstick ui llama-3.1-405b --system dgx-h100
    slipstick ui llama-3.1-70b --phase serve
    """  # noqa: D301
    from ...backends.machine.software.usual import usual_engine
    from .dragged_server import SERVE, TRAIN, choices, read_point
    from .rule import SlideRule
    from .server import RuleServer, page_of

    common = {"model": model, "system": system}
    starts = {
        TRAIN: {**common, "phase": TRAIN, **_START},
        SERVE: {**common, "phase": SERVE, "engine": usual_engine(), **_SERVER},
    }
    for start in starts.values():
        read_point(start)
    rule = SlideRule()
    page, policy = page_of({"phase": phase, **starts}, choices())
    with RuleServer(rule, page, policy, port) as server:
        click.echo(f"slipstick ui: {server.address}")
        click.echo("it answers this machine alone; stop it with Ctrl-C", err=True)
        if opens:
            webbrowser.open(server.address)
        # A command is short, a server is not: its garbage is collected.
        gc.enable()
        server.serve_forever()
