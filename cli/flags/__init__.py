"""Flags that verbs share, and the one request that they make."""
