"""Where text and timelines go: stdout, or a file that is complete or not there at all."""
