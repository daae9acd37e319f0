"""Multi-token prediction in training."""
