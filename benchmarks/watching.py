"""What `slipstick.watch` takes of the steps that it watches, its hooks timed: `python -m benchmarks.watching STEPS`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter

SECONDS = {"hooks": 0.0}


def share_of_steps(num_steps: int) -> float:
    """Return the percent of the steps behind the first that the hooks of a watch take: a small Llama on this CPU."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from slipstick.watch.session import RunWatch, watch

    for name in ("_before_forward", "_after_step"):
        setattr(RunWatch, name, _timed(getattr(RunWatch, name)))
    config = LlamaConfig(
        vocab_size=1024, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    net = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(net.parameters())
    ids = torch.randint(0, 1024, (4, 128))
    start = 0.0
    with watch(net, "xeon-server", say=lambda line: None):
        for step in range(num_steps + 1):
            net(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 0:
                SECONDS["hooks"], start = 0.0, perf_counter()
        taken = perf_counter() - start
    return 100.0 * SECONDS["hooks"] / taken


def _timed(method: Callable[..., None]) -> Callable[..., None]:
    def run(*args: object) -> None:
        start = perf_counter()
        method(*args)
        SECONDS["hooks"] += perf_counter() - start

    return run


if __name__ == "__main__":
    print(share_of_steps(int(sys.argv[1])))
