"""Whether a sharded graph lies as its ops need: laws of ops, messages and gradients, looked at after every pass."""
