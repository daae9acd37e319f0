"""Kernel models on the nodes of a graph, one file a class: which nodes, and what the model is asked."""
