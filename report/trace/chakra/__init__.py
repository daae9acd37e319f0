"""Execution traces of a compiled plan in MLCommons' Chakra format, one a rank, as ASTRA-sim replays them."""
