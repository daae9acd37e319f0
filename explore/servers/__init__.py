"""Spaces of servers: units of devices, pools and replicas under loads, priced as columns."""
