"""Closed forms of steps over plans, which the schedules that have one name."""
