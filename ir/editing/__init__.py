"""Regions and graphs changed node by node, and built so."""
