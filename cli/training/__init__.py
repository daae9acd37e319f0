"""Verbs of training beyond one step: memory policies that are found, several systems, and post-training."""
