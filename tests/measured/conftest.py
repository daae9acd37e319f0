"""A tiny Llama trained on this CPU under the profiler of PyTorch, and the prediction of its step."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipstick.cli import run

# A process of its own: the profiler of PyTorch is started once a process. Modules mark themselves in the forward pass.
_TRAIN = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
from torch.profiler import ProfilerActivity, profile, record_function

torch.set_num_threads(1)
torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=128, intermediate_size=352, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=4,
    vocab_size=1024, max_position_embeddings=256, attn_implementation=sys.argv[2], tie_word_embeddings=False,
)
config.architectures = ["LlamaForCausalLM"]
config.save_pretrained(sys.argv[1])
model = LlamaForCausalLM(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(0, 1024, (2, 64))

def marked(name, module):
    marks = []
    def enter(*_):
        marks.append(record_function("module " + name))
        marks[-1].__enter__()
    def leave(*_):
        marks.pop().__exit__(None, None, None)
    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave)

for name, module in model.named_modules():
    if isinstance(module, torch.nn.Linear):
        marked(name, module)

def step():
    model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()

for _ in range(3):
    step()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for k in range(int(sys.argv[3])):
        with record_function(f"ProfilerStep#{k}"):
            step()
profiler.export_chrome_trace(sys.argv[1] + "/trace.json")
"""


@dataclass(frozen=True)
class Trained:
    """A trace of marked steps, and the report of a prediction of the same step."""

    trace: Path
    report: Path
    config: Path


def train(folder: Path, attention: str, steps: int) -> Path:
    """Train on this CPU; return the trace."""
    words = [sys.executable, "-c", _TRAIN, str(folder), attention, str(steps)]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "trace.json"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained")
    trace = train(folder, "sdpa", 4)
    report = folder / "predicted.json"
    words = (
        "estimate",
        str(folder / "config.json"),
        "--system",
        "dgx-h100",
        "--gpus",
        "1",
        "--seq",
        "64",
        "--mbs",
        "2",
    )
    assert run([*words, "--dtype", "fp32", "--no-fuse", "-q", "-o", str(report)]) == 0
    return Trained(trace, report, folder / "config.json")
