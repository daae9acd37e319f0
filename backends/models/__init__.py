"""Kernel models on the nodes of a graph, one file a class: which nodes, what the model is given, which constants."""
