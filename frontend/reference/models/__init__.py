"""What a graph on simulated ranks is compared with: the module itself, made small, in float64."""
