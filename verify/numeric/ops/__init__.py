"""Reference implementations of ops on one rank."""
