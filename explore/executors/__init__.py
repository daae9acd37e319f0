"""Blocks to workers: processes of this machine or of a Ray cluster, replaced when they are lost."""
