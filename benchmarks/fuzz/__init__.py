"""Hostile files of every format that is read: mutated, given to the command line, and judged."""
