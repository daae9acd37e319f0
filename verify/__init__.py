"""Whether a lowered graph is the model: proven without running it, and run on simulated ranks beside the module."""
