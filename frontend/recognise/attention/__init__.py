"""Attention in single steps to one operator."""
