"""Reference implementations: a graph run on simulated ranks, in float64, to be compared with the module itself."""
