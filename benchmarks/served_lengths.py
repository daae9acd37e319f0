"""`python -m benchmarks.served_lengths [TYPE...]`: every causal language model is served at random lengths.

A server runs whatever length a request has. Each type of transformers is recorded with a small config, and a server of
it answers for prompts and answers of random lengths, as far as the model has positions for them.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from slipstick.backends.machine.load import load_system
from slipstick.backends.machine.software.engine_file import load_engine
from slipstick.cost.serving.traffic.requests import Lengths
from slipstick.driver.estimate import lower
from slipstick.driver.serve.load import Load
from slipstick.driver.serve.serve import serve
from slipstick.driver.serve.server import Server
from slipstick.driver.serve.tables import ServedModel
from slipstick.ir.errors import SlipstickError
from slipstick.ir.graph import Workload
from slipstick.ir.plan import Family, make_plan

from .coverage.case import model_types
from .coverage.graphs import of_config, traced
from .small_configs import small_config

LONGEST = 2000
SAMPLES = 6


def outcomes(model_type: str, samples: int = SAMPLES) -> Iterator[str]:
    """Yield what becomes of requests of random lengths: `served`, or why not."""
    phases = (Workload.PREFILL, Workload.DECODE)
    found = traced(lambda workload: of_config(model_type, small_config(model_type), workload), phases)
    if found.why_not:
        yield f"not recorded: {next(iter(found.why_not.values()))}"
        return
    prefill, decode = (lower(found.graphs[one], Family(workload=one)) for one in phases)
    served, system = ServedModel(prefill, decode), load_system("dgx-h100", ["chip.memory.hbm.capacity=8 TB"])
    engine = load_engine("vllm", system.chip.name)
    most = min(decode.source.max_positions or LONGEST, LONGEST)
    chance = random.Random(model_type)
    for _ in range(samples):
        prompt = chance.randint(1, most - 1)
        output = chance.randint(1, most - prompt)
        plan = make_plan(num_gpus=1, seq_len=prompt + output, family=Family(workload=Workload.DECODE))
        try:
            server = Server.of(served, system, plan, engine, prompt + output)
            answer = serve(server, Lengths(float(prompt), float(output)), Load(concurrency=1.0))
        except SlipstickError as error:
            yield f"isl {prompt}, osl {output}: {error}"
            continue
        latency_s = answer.metrics["e2el_s"]
        yield "served" if 0.0 < latency_s < float("inf") else f"isl {prompt}, osl {output}: {latency_s} s"


def main(words: Sequence[str] | None = None) -> None:
    """Print what was not served, and counts."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    given = list(words if words is not None else sys.argv[1:])
    found: Counter[str] = Counter()
    for name in given or model_types():
        for outcome in outcomes(name):
            found[outcome.partition(":")[0] if outcome.startswith("not") else outcome[:6]] += 1
            if outcome != "served":
                print(f"{name}: {outcome}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in found.most_common()), file=sys.stderr)


if __name__ == "__main__":
    main()
