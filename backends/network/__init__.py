"""The network: levels and their topologies, groups laid on them, and collectives by the best algorithm."""
