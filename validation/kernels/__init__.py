"""Tables of measured kernels, layers and collectives, judged kind by kind."""
