"""Architectures beside the plain transformer: given as a config or a module, run under plans, held against papers."""
