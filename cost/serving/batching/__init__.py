"""Engines in closed form: static, continuous and offline batches, speculative decoding."""
