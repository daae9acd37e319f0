"""Sharded graphs against what PyTorch and transformers run: `python -m benchmarks.oracles`."""
