"""Requests one by one on a server: their simulation, replicas that come and go, tiers that keep caches."""
