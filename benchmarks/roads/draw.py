"""Random questions as flags: models of the catalogue and modules of one's own, plans over every axis, machines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

DATA = Path(__file__).parents[2] / "tests" / "data"
DENSE = ("llama-3.1-8b", "gpt2-xl", "qwen3-8b", "llama-2-7b")
EXPERTS = ("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b")
OWN = tuple(f"{DATA / name}" for name in ("packed_gpt.py:GPT", "nets.py:gpt", "nets.py:llama", "routed.py:plain"))
SYSTEMS = ("dgx-h100", "dgx-a100-80gb", "dgx-b200", "gb200-nvl72", "mi300x-platform", "tpu-v5p-pod")
SERVED = ("llama-3.1-8b", "qwen3-8b", "mixtral-8x7b", "qwen3-30b-a3b")
ENGINES = ("vllm", "sglang", "tensorrt-llm")
# Of a flag, what it may be where a question says it at all, and how often it does.
_WORDS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("--stack", 0.5, ("megatron-core", "torchtitan", "nanotron", "default")),
    ("--calibration", 0.1, ("default",)),
    ("--set", 0.2, ("chip.clock=1.5GHz", "chip.memory.hbm.bandwidth=2.5TB/s")),
    ("--flops-convention", 0.2, ("causal",)),
    ("--kernels", 0.2, ("torch", "fused", "plain", "compiled", "merged", "eager")),
    ("--precision", 0.15, ("fp8", "mxfp8")),
    ("--grad-dtype", 0.15, ("bf16",)),
    ("--reduce-dtype", 0.15, ("fp32", "bf16")),
    ("--main-params-dtype", 0.1, ("fp16", "none")),
    ("--exp-avg-dtype", 0.1, ("bf16",)),
    ("--attention", 0.1, ("unfused",)),
    ("--tp-plan", 0.3, ("dtensor", "dtensor-naive", "hf")),
    ("--pp-layout", 0.2, ("even", "balanced")),
    ("--order", 0.2, ("tp-cp-ep-pp-dp", "tp-pp-cp-ep-dp")),
    ("--offload", 0.1, ("optimizer", "activations")),
    ("--dtype", 0.1, ("fp16",)),
    ("--prices", 0.1, ("catch",)),
    ("--basis", 0.1, ("build",)),
    ("--lora-rank", 0.1, ("8",)),
)
_SWITCHES = (("--async-tp", 0.05), ("--no-fuse", 0.1), ("--no-cuda-graph", 0.1))
_EXPERT_WORDS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("--capacity-factor", 0.2, ("1.25",)),
    ("--expert-imbalance", 0.2, ("1.5",)),
    ("--dispatch-dtype", 0.1, ("fp8",)),
    ("--ep-exchange", 0.1, ("allgather",)),
)


class Draw:
    """Draws questions of one seed."""

    def __init__(self, seed: int) -> None:
        """Begin."""
        self.random = random.Random(seed)

    def model(self) -> str:
        """Return a model: one in three is of one's own."""
        kind = self.random.choice((DENSE, EXPERTS, OWN))
        return self.random.choice(kind)

    def system(self) -> list[str]:
        """Return the flags of a system."""
        return ["--system", self.random.choice(SYSTEMS)]

    def words(self, model: str) -> Iterator[str]:
        """Yield flags that a plan may have or not."""
        for flag, often, values in (*_WORDS, *(_EXPERT_WORDS if model in EXPERTS else ())):
            if self.random.random() < often:
                yield from (flag, self.random.choice(values))
        yield from (flag for flag, often in _SWITCHES if self.random.random() < often)

    def one(self, flag: str, *values: int | str) -> list[str]:
        """Return a flag with one of some values."""
        return [flag, str(self.random.choice(values))]

    def length(self, model: str) -> list[str]:
        """Return the length of a sequence, within the positions of small models."""
        short = model.startswith("gpt2") or model in OWN
        return self.one("--seq", *((128, 512) if short else (512, 2048, 4096)))

    def training(self) -> list[str]:
        """Return a question about a training step: model and flags."""
        model, pick = self.model(), self.random
        tp, pp = pick.choice((1, 1, 2, 4)), pick.choice((1, 1, 2, 4))
        cp, gpus = pick.choice((1, 1, 1, 2)), pick.choice((8, 16, 32))
        flags = [model, *self.system(), "--gpus", str(gpus), "--tp", str(tp), "--pp", str(pp), "--cp", str(cp)]
        flags += [*self.length(model), *self.one("--gbs", 32, 64), *self.one("--zero", 0, 1, 2, 3)]
        flags += self.one("--recompute", "none", "none", "selective", "full")
        flags += self.one("--cp-method", "allgather", "ring", "ulysses") if cp > 1 else []
        flags += self.one("--schedule", "1f1b", "gpipe", "zb-h1") if pp > 1 else []
        flags += [] if tp == 1 else pick.choice(([], ["--sp"], ["--no-sp"]))
        flags += self.one("--ep", 1, 2) if model in EXPERTS else []
        flags += ["--recompute-modules", "mlp"] if "selective" in flags and pick.random() < 0.5 else []
        return [*flags, *self.words(model)]

    def step(self) -> list[str]:
        """Return a question about a step of any phase."""
        flags = self.training()
        if self.random.random() < 0.5:
            return [*flags, *self.one("--mbs", 1, 2)]
        phase = self.random.choice(("prefill", "decode"))
        model, *_ = flags
        degrees = [*self.one("--tp", 1, 2, 4), *self.one("--gpus", 4, 8), *self.one("--mbs", 1, 4, 16)]
        found = [model, *self.system(), "--phase", phase, *self.length(model), *degrees]
        found += self.one("--stack", *ENGINES) if self.random.random() < 0.5 else []
        found += self.one("--kv-dtype", "same", "fp8") if self.random.random() < 0.3 else []
        return found + (self.one("--precision", "fp8", "w4a16") if self.random.random() < 0.3 else [])

    def of_one_rank(self) -> list[str]:
        """Return a question about a training step whose axes have one rank each but data parallelism."""
        model = self.model()
        flags = [model, *self.system(), "--gpus", "8", *self.length(model), "--gbs", "32", *self.one("--mbs", 1, 2)]
        flags += [*self.one("--zero", 0, 1, 2, 3), *self.one("--recompute", "none", "selective", "full")]
        own = list(self.words(model))
        left_out = ("--tp-plan", "--expert-imbalance", "--async-tp")
        for at, flag in enumerate(own):
            if flag.startswith("--") and flag not in left_out:
                flags += [flag, *(value for value in own[at + 1 : at + 2] if not value.startswith("--"))]
        return flags

    def plans(self) -> list[str]:
        """Return a search of training plans with a few axes open."""
        asked, free = self.training(), self.random.sample(("--tp", "--pp", "--zero", "--recompute", "--schedule"), 2)
        kept, at = [asked[0]], 1
        while at < len(asked):
            both = at + 1 < len(asked) and not asked[at + 1].startswith("--")
            if asked[at] not in free:
                kept += asked[at : at + 1 + both]
            at += 1 + both
        chunks = [] if self.random.random() < 0.3 else ["--vpp", "1"]
        return [*kept, *chunks, *self.one("--mbs", 1, 2)]

    def servers(self) -> list[str]:
        """Return a search of servers."""
        pick = self.random
        flags = [pick.choice(SERVED), *self.system(), "--phase", "serve", *self.one("--gpus", 4, 8)]
        flags += [*self.one("--engine", *ENGINES), *self.one("--isl", 200, 1000), *self.one("--osl", 50, 200)]
        flags += self.one("--tp", 1, 2, 4) if pick.random() < 0.5 else []
        return flags + list(self._of_servers()) + self.one("--pools", "off", "off", "on", "auto")

    def sizes(self) -> list[str]:
        """Return a question about the size of a fleet."""
        pick = self.random
        flags = [pick.choice(SERVED), *self.system(), *self.one("--rps", 2, 20, 100), *self.one("--engine", *ENGINES)]
        flags += [*self.one("--isl", 200, 1000), *self.one("--osl", 50, 200), *self.one("--disagg", "off", "off", "on")]
        return flags + list(self._of_servers())

    def _of_servers(self) -> Iterator[str]:
        for flag, often, values in (
            ("--cached", 0.2, ("100",)), ("--chunked-prefill", 0.2, ("0", "2048")), ("--max-num-seqs", 0.2, ("64",)),
            ("--block-size", 0.1, ("32",)), ("--memory-utilization", 0.2, ("0.8",)), ("--kv-dtype", 0.2, ("fp8",)),
            ("--precision", 0.2, ("fp8",)), ("--ttft", 0.3, ("500ms", "p99:2s")), ("--tpot", 0.3, ("40ms",)),
            ("--flops-convention", 0.1, ("causal",)), ("--set", 0.2, ("chip.memory.hbm.bandwidth=3TB/s",)),
            ("--dtype", 0.1, ("fp16",)), ("--stack", 0.1, ("sglang",)), ("--calibration", 0.1, ("default",)),
        ):  # fmt: skip
            if self.random.random() < often:
                yield from (flag, self.random.choice(values))
