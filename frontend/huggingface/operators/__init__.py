"""What models of transformers spell out, as one operator each for the time of a recording."""
