"""Launches that train, by framework, in the words of a plan."""
