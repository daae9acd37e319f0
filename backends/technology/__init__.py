"""Chips from budgets: area, power and perimeter of a technology node into peaks, capacities and bandwidths."""
