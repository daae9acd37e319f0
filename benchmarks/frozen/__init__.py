"""What slipstick answers, word for word, so that a change of structure can be told from a change of answers."""
