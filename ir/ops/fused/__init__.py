"""Ops that are one kernel of many steps: attention, experts, scans."""
