"""Proof that a sharded graph computes what the graph before it computes, without running it."""
