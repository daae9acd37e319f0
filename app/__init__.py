"""Requests as records, and the functions that answer them for the command line and Python."""
