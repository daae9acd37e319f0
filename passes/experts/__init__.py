"""Popularity of experts, and placements that make up for it."""
