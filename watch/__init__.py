"""Compare a training run with its prediction while it runs: `slipstick.watch`, and callbacks for trainers."""
