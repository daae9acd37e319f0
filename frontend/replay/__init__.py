"""Graphs that torch made (exported, traced, compiled) run again on fake tensors, so that they arrive as recordings."""
