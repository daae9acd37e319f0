"""Measures the machine at hand: kernels as real models run them, as tables, a system file and its calibration."""
