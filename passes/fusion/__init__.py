"""Which nodes run as one kernel, and which as several: fusion, merged products, kernels of engines."""
