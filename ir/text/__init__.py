"""Graphs as text and back: printed, read, kept in files, seen by networkx."""
