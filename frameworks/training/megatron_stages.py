"""Layers of Megatron-LM's pipeline stages: chunks by number or layers, and its layout of modules."""

from __future__ import annotations

import re
from itertools import groupby

from ...ir.errors import ParseError
from ..launch import MOST_STAGES, Reading
from ..rows import Writing
from ..shapes import layers_of


def read_stages(r: Reading) -> None:
    """Read chunks of stages by their number, their layers, or a layout."""
    pp = int(str(r.words["pp"]))
    if pp > 1:
        _read_chunks(r, pp)
    names = ("virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout")
    r.understand("of one stage", *names, *(("num_layers_per_virtual_pipeline_stage",) if pp == 1 else ()))


def _read_chunks(r: Reading, pp: int) -> None:
    vpp = r.count("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    per_chunk, layers = r.count("num_layers_per_virtual_pipeline_stage"), r.count("num_layers")
    layers = layers or layers_of(r.text("model") or "")
    if per_chunk and layers:
        if layers % (pp * per_chunk):
            raise ParseError(f"{layers} layers are no multiple of {pp} stages x {per_chunk} layers a chunk")
        vpp = layers // (pp * per_chunk)
    layout = r.text("pipeline_model_parallel_layout")
    if layout:
        chunks = layers_of_layout(layout)
        if len(chunks) % pp:
            raise ParseError(f"--pipeline-model-parallel-layout has {len(chunks)} chunks: no multiple of pp={pp}")
        vpp = len(chunks) // pp
        if "m" in layout.rpartition("|")[0]:
            r.assume("modules of multi-token prediction lie on the last stage: the layout has them on another one")
        r.say("pp_layout", ",".join(map(str, chunks)), "pipeline_model_parallel_layout")
    r.say(
        "vpp",
        vpp if vpp and vpp > 1 else None,
        "num_virtual_stages_per_pipeline_rank",
        "virtual_pipeline_model_parallel_size",
        "num_layers_per_virtual_pipeline_stage",
    )
    first, last = r.count("decoder_first_pipeline_num_layers"), r.count("decoder_last_pipeline_num_layers")
    if layers and pp > 1 and (first or last) and not layout:
        middle = pp - (first is not None) - (last is not None)
        each = (layers - (first or 0) - (last or 0)) // max(middle, 1)
        inner = [each] * middle
        named = [*([first] if first else []), *inner, *([last] if last else [])]
        if sum(named) == layers:
            r.say(
                "pp_layout",
                ",".join(map(str, named)),
                "decoder_first_pipeline_num_layers",
                "decoder_last_pipeline_num_layers",
            )


def layers_of_layout(text: str) -> tuple[int, ...]:
    """Return layers of each chunk of `--pipeline-model-parallel-layout`.

    >>> layers_of_layout("Et*7|(t*8|)*2t*7L"), layers_of_layout("Et|(tt|)*2L")
    ((7, 8, 8, 7), (1, 2, 2, 0))
    """
    if len(text) > MOST_STAGES:
        raise ParseError(f"--pipeline-model-parallel-layout '{text[:60]}': more than {MOST_STAGES:,} characters")
    for _ in range(100):
        opened = re.sub(r"\(([^()]*)\)\*([0-9]{1,4})", lambda m: m[1] * int(m[2]), text)
        if opened == text or len(opened) > MOST_STAGES:
            break
        text = opened
    if len(text) + sum(map(int, re.findall(r"\*([0-9]{1,5})", text))) > 10 * MOST_STAGES:
        raise ParseError(f"--pipeline-model-parallel-layout '{text[:60]}': more than {10 * MOST_STAGES:,} layers")
    single = re.sub(r"(\w)\*([0-9]{1,5})", lambda m: m[1] * int(m[2]), text.replace(",", ""))
    if re.search(r"[^EtmLd|]", single):
        raise ParseError(
            f"--pipeline-model-parallel-layout '{text[:60]}': E, t, m, L, |, brackets and repeats are known"
        )
    return tuple(chunk.count("t") + chunk.count("d") for chunk in single.split("|"))


def write_stages(w: Writing) -> None:
    """Write layers of stages: nothing where all have as many, a layout where they do not."""
    plan, layers = w.plan, w.subject.layers
    if plan.pp > 1 and not w.subject.is_even:
        w.say("--pipeline-model-parallel-layout", layout_text(layers, w.family.mtp_num_layers))
    elif plan.pp > 1 and plan.vpp > 1 and layers:
        w.say("--num-layers-per-virtual-pipeline-stage", layers[0])
    elif plan.pp > 1 and plan.vpp > 1:
        w.say("--num-virtual-stages-per-pipeline-rank", plan.vpp)
    num = plan.num_micro_batches
    line = f"vpp {plan.vpp} with pp {plan.pp} and mbs {plan.micro_batch}: {num} micro-batches do not go in whole rounds"
    w.lose(f"{line} of a micro-batch a stage", plan.vpp > 1 and num % plan.pp > 0)


def layout_text(layers: tuple[int, ...], mtp: int = 0) -> str:
    """Return layers of chunks as `--pipeline-model-parallel-layout` has them: E embedding, t a layer, L the loss.

    Layers of multi-token prediction, m, stand in front of the loss.

    >>> layout_text((7, 8, 8, 7)), layout_text((1, 2, 2, 2, 1, 0), mtp=1)
    ('Et*7|(t*8|)*2t*7L', 'Et|(t*2|)*3t|mL')
    """
    chunks = [f"t*{n}" if n > 1 else "t" * n for n in layers]
    inner = [(text, len(list(same))) for text, same in groupby(chunks[1:-1])]
    middle = "".join(f"({text}|)*{num}" if num > 1 else f"{text}|" for text, num in inner)
    return f"E{chunks[0]}|{middle}{chunks[-1]}{'m' * mtp}L"
