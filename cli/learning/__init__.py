"""Verbs of training beyond one step: memory policies that are found, and post-training."""
