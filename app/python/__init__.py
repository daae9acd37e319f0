"""The verbs of the command line as functions of Python: the same words, defaults, numbers and errors."""
