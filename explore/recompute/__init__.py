"""Memory policies found: what layers keep, offload and recompute, so that a step is fastest within a limit."""
