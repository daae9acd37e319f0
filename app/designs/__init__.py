"""Spaces of chip designs and of networks: what is asked of them, and the best of them."""
