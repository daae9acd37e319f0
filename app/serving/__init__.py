"""Servers: what a user asked of one, what it answers, and how many devices it takes."""
