"""`python -m benchmarks.numeric`: small models of many kinds, sharded by many kinds of plans, against themselves.

Each cell lowers a graph by a plan, runs it on simulated ranks in float64 and compares loss, logits and every gradient
with the module under autograd; of prefill and a decode step it compares logits, tokens and every cache behind the step.
A cell is equal, or listed with what differs or why it was not run.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from time import perf_counter
from types import MappingProxyType

from slipstick.frontend.huggingface.configs.models import config_of
from slipstick.frontend.huggingface.configs.shrink import shrunken
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family
from slipstick.passes.families import pipeline_for
from slipstick.verify.numeric.compare import ComparedModule, Verdict, compare, subject_of
from slipstick.verify.numeric.serving import compare_step, step_of

from .small_configs import small_config

BATCH, SEQ = 4, 24

DENSE = (
    "llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "gpt2", "gpt_neox", "gptj",
    "gpt_neo", "opt", "bloom", "falcon", "stablelm", "starcoder2", "cohere", "cohere2", "olmo", "olmo2", "glm", "glm4",
    "granite", "nemotron", "codegen", "gpt_bigcode", "smollm3", "ministral", "exaone4", "helium", "apertus",
)  # fmt: skip
EXPERTS = (
    "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss", "llama4_text", "olmoe", "granitemoe",
    "glm4_moe", "hunyuan_v1_moe", "ernie4_5_moe", "minimax", "jamba", "qwen3_next",
)  # fmt: skip
LATENT = ("deepseek_v2", "deepseek_v3")
RECURRENT = ("mamba", "falcon_mamba", "bamba", "zamba2", "recurrent_gemma", "lfm2", "nemotron_h", "granitemoehybrid")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of plan: its family and how many ranks are on each axis.

    `experts` and `latent` are for models that have some, or latent attention.
    """

    family: Family
    degrees: Mapping[str, int] = field(default_factory=dict)
    experts: bool = False
    latent: bool = False

    def suits(self, model_type: str) -> bool:
        """Whether the plan means something to a type of models."""
        return (not self.experts or model_type in EXPERTS) and (not self.latent or model_type in LATENT)


PLANS: Mapping[str, Kind] = MappingProxyType(
    {
        "one rank": Kind(Family()),
        "dp": Kind(Family(), {"dp": 2}),
        "tp": Kind(Family(), {"tp": 2}),
        "tp, copied heads": Kind(Family(), {"tp": 4}),
        "tp + sp": Kind(Family(sp=True), {"tp": 2}),
        "async tp": Kind(Family(sp=True, async_tp=True), {"tp": 2, "dp": 2}),
        "dtensor plan": Kind(Family(tp_plan="dtensor", sp=True), {"tp": 2}),
        "naive plan": Kind(Family(tp_plan="dtensor-naive"), {"tp": 2}),
        "hf plan": Kind(Family(tp_plan="hf"), {"tp": 2}),
        "auto plan": Kind(Family(tp_plan="auto", sp=True), {"tp": 2}),
        "cp all-gather": Kind(Family(cp="allgather"), {"cp": 2}),
        "cp ring": Kind(Family(cp="ring", sp=True), {"cp": 2, "tp": 2}),
        "cp ulysses": Kind(Family(cp="ulysses"), {"cp": 2}),
        "cp ring x ulysses": Kind(Family(cp="ring", usp=True), {"cp": 2, "up": 2}),
        "zero 1": Kind(Family(zero=1, sp=True), {"dp": 2, "tp": 2}),
        "zero 2": Kind(Family(zero=2), {"dp": 2}),
        "zero 3": Kind(Family(zero=3, sp=True), {"dp": 2, "tp": 2}),
        "hsdp": Kind(Family(zero=3, hsdp=True), {"fsdp": 2, "dp": 2}),
        "recompute selective": Kind(Family(recompute="selective", sp=True), {"tp": 2}),
        "recompute full": Kind(Family(recompute="full", sp=True), {"tp": 2}),
        "pipeline": Kind(Family(pp=True, sp=True), {"pp": 2, "tp": 2}),
        "pipeline, pieces": Kind(Family(pp=True, scatter_p2p=True), {"pp": 2, "tp": 2}),
        "kernels torch": Kind(Family(kernels="torch"), {"tp": 2}),
        "kernels compiled": Kind(Family(kernels="compiled"), {"tp": 2}),
        "kernels fused": Kind(Family(kernels="fused", sp=True), {"tp": 2}),
        "kernels merged": Kind(Family(kernels="merged"), {"tp": 2}),
        "no fusion": Kind(Family(fused=False), {"tp": 2}),
        "ep": Kind(Family(ep=True), {"ep": 2}, experts=True),
        "ep x etp": Kind(Family(ep=True, sp=True), {"ep": 2, "tp": 2}, experts=True),
        "ep over tp": Kind(Family(ep=True, etp=False, sp=True), {"ep": 2, "tp": 2}, experts=True),
        "ep over tp, no sp": Kind(Family(ep=True, etp=False), {"ep": 2, "tp": 2}, experts=True),
        "ep x etp, no sp": Kind(Family(ep=True), {"ep": 2, "tp": 2}, experts=True),
    }
)

# Plans of prefill and of a decode step, both.
STEPS: Mapping[str, Kind] = MappingProxyType(
    {
        "one rank": Kind(Family()),
        "dp": Kind(Family(), {"dp": 2}),
        "tp": Kind(Family(), {"tp": 2}),
        "tp, copied heads": Kind(Family(), {"tp": 4}),
        "tp + sp": Kind(Family(sp=True), {"tp": 2}),
        "pipeline": Kind(Family(pp=True), {"pp": 2, "tp": 2}),
        "kernels fused": Kind(Family(kernels="fused"), {"tp": 2}),
        "fused, copied heads": Kind(Family(kernels="fused"), {"tp": 4, "dp": 2}),
        "latents expanded": Kind(Family(mla="expanded"), {"tp": 2}, latent=True),
        "latents expanded, fused": Kind(Family(mla="expanded", kernels="fused"), {"tp": 2}, latent=True),
        "ep": Kind(Family(ep=True), {"ep": 2}, experts=True),
        "ep over tp": Kind(Family(ep=True, etp=False), {"ep": 2, "tp": 2}, experts=True),
        "ep over tp + sp": Kind(Family(ep=True, etp=False, sp=True), {"ep": 2, "tp": 2}, experts=True),
        "ep x tp, fused": Kind(Family(ep=True, kernels="fused"), {"ep": 2, "tp": 2}, experts=True),
    }
)
SERVING = (Workload.PREFILL, Workload.DECODE)


def subject(model_type: str, workload: Workload = Workload.TRAIN) -> ComparedModule:
    """Return a small model of a type of transformers, recorded as a workload."""
    config = config_of(model_type, {"model_type": model_type, **small_config(model_type)})
    return subject_of(shrunken(config), workload)


def kinds_for(model_type: str, kinds: Mapping[str, Kind] = PLANS) -> list[str]:
    """Return the plans for a type: those of experts for models that have some."""
    return [name for name, kind in kinds.items() if kind.suits(model_type)]


def verdicts(of: ComparedModule, names: Sequence[str]) -> Iterator[tuple[str, Verdict]]:
    """Compare a model under several plans; a plan that is refused is a reason."""
    answer = of.answer(of.inputs(BATCH, SEQ))
    for name in names:
        kind = PLANS[name]
        try:
            lowered, _ = pipeline_for(kind.family).run(of.graph)
            yield name, compare(of, lowered, kind.degrees, BATCH, SEQ, answer)
        except SlipstickError as error:
            yield name, Verdict(reason=f"refused: {error}")


def step_verdicts(of: ComparedModule, names: Sequence[str]) -> Iterator[tuple[str, Verdict]]:
    """Compare a prefill or a decode step of a model under several plans."""
    workload = of.graph.workload
    try:
        step = step_of(of, workload, BATCH, SEQ)
    except SlipstickError as error:
        yield from ((name, Verdict(reason=str(error))) for name in names)
        return
    for name in names:
        try:
            lowered, _ = pipeline_for(replace(STEPS[name].family, workload=workload)).run(of.graph)
            yield name, compare_step(of, lowered, STEPS[name].degrees, step)
        except SlipstickError as error:
            yield name, Verdict(reason=f"refused: {error}")


def outcome(found: Verdict) -> str:
    """Say in one line what a comparison found."""
    if found.equal:
        return "equal"
    if found.broken or found.reason:
        return f"BROKEN {found.broken}" if found.broken else f"not run: {found.reason}"
    worst = found.worst
    told = [] if worst is None else [f"{worst.what} by {worst.relative:.1e}"]
    return f"DIFFERENT {'; '.join([*told, *(f'no gradient of {n}' for n in found.missing)])}"


Cell = tuple[str, str, str, float]


def row(task: tuple[str, Workload]) -> list[Cell]:
    """Return type, plan, outcome and seconds of each cell of one type and workload."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    model_type, workload = task
    names = kinds_for(model_type, STEPS if workload in SERVING else PLANS)
    prefix = f"{workload}: " if workload in SERVING else ""
    start = perf_counter()
    try:
        of = subject(model_type, workload)
        found = list(step_verdicts(of, names) if workload in SERVING else verdicts(of, names))
    except Exception as error:
        told = f"not run: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
        return [(model_type, prefix + name, told, perf_counter() - start) for name in names]
    return [(model_type, prefix + name, outcome(v), v.time_s) for name, v in found]


def main(words: Sequence[str] | None = None) -> None:
    """Run the matrix, print what is not equal, and how many cells are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.numeric", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="TYPE", help="model types (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--phase", choices=[w.value for w in Workload], nargs="*", help="workloads (default: all)")
    given = parser.parse_args(words)
    types = given.only or [*DENSE, *EXPERTS, *RECURRENT]
    workloads = [w for w in (Workload.TRAIN, *SERVING) if not given.phase or w.value in given.phase]
    tasks = [(model_type, w) for model_type in types for w in workloads]
    start, cells = perf_counter(), list[tuple[str, str, str, float]]()
    with ProcessPoolExecutor(given.jobs) as pool:
        for found in pool.map(row, tasks):
            cells += found
            equal = sum(text == "equal" for _, _, text, _ in found)
            print(f"{found[0][0]}: {equal} of {len(found)} equal", flush=True)
            for _, name, text, _ in found:
                if text != "equal":
                    print(f"    {name}: {text[:240]}", flush=True)
    count = {word: sum(text.startswith(word) for _, _, text, _ in cells) for word in _OUTCOMES}
    print(
        f"{len(cells)} cells: {', '.join(f'{n} {word}' for word, n in count.items())}; {perf_counter() - start:.0f} s"
    )


_OUTCOMES = ("equal", "DIFFERENT", "BROKEN", "not run")

if __name__ == "__main__":
    main()
