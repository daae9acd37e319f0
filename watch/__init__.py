"""A training run beside its prediction, while it runs: `slipstick.watch`, and callbacks for trainers."""
