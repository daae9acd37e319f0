"""Searches that are kept: ledgers, what they hold, and their plans as files."""
