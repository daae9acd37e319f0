"""Vocabulary of each framework that trains or serves: launches read into plans, plans written as launches."""
