"""A step into a whole training run: checkpoints, failures, how long and how many GPU-hours."""
