"""Schedules of pipelines, a file each in `known/`: all that anything else asks of one, it asks the object there."""
