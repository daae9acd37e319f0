"""`slipstick export`: a plan as the flags or the file of a framework that runs it."""

from __future__ import annotations

import click

from ..app.arguments.others import ExportArgs
from ..app.export import ExportRequest, export_plan
from .estimate import ServerCommand
from .flags.build import words
from .flags.command import arguments_of
from .flags.talk import watched
from .output.files import check_suffix, write_text


class ExportCommand(ServerCommand):
    """A verb whose function takes its context."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb's function."""
        assert self.callback is not None  # it is made of a function
        return self.callback(ctx)


@click.command("export", cls=ExportCommand)
@words(ExportArgs)
@click.option("-o", "--output", default="-", show_default=True, metavar="FILE", help="Output file; - is stdout.")
def export_command(ctx: click.Context) -> int:
    """Write a plan of MODEL as flags or config of a training or serving framework.

    Flags of Megatron-LM, torchtitan, vLLM and SGLang, a recipe of Megatron-Bridge (NeMo), a JSON file for DeepSpeed, a
    script with the options of TensorRT-LLM; Kubernetes manifests, a Dynamo graph or llm-d values of servers,
    disaggregated ones too. Comments above the flags (for JSON: stderr) list settings of the plan that the framework
    has no option for, and options that the plan does not determine. With --system, the launch is for its nodes, and
    overlap options follow its stack.

    \b
    slipstick export --plan best.yaml --to megatron
    slipstick export llama-3.1-70b --phase serve --system dgx-h100 --gpus 16 --tp 8 --to vllm
    """  # noqa: D301
    from ..frameworks.export import written

    request, output = ExportRequest.of(arguments_of(ctx)), str(ctx.params["output"])
    check_suffix(output, *{"deepspeed": (".json",), "megatron-bridge": (".py",)}.get(request.framework, ()))
    with watched(ctx):
        export, headline = export_plan(request)
    if not export.takes_comments:
        for note in (f"{export.framework}, names as of {export.version}", *export.notes):
            request.report(f"note: {note}")
    write_text(written(export, headline), output)
    return 0
