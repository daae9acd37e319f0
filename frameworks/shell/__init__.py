"""A shell script as the commands that it would run; nothing of it is run."""
