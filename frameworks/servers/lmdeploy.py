"""LMDeploy: the command `lmdeploy serve api_server`, names as in its --help of 0.9."""

from __future__ import annotations

from ..export import command
from .engine import ServerFlags, engine

# fmt: off
LMDEPLOY = engine(
    "lmdeploy",
    "LMDeploy",
    "LMDeploy 0.9",
    ServerFlags(
        tp="--tp", dp="--dp", ep="--ep", seqs="--max-batch-size", tokens="--max-prefill-token-num",
        memory="--cache-max-entry-count", block="--cache-block-seq-len", longest="--session-len",
        quantization="--model-format", model="model_path", eager="--eager-mode",
    ),
    lambda subject, flags: command(f"lmdeploy serve api_server {subject.weights or subject.model}", flags),
)
# fmt: on
