"""Outcomes of judging: by data set and kind, as statistics, reports and tables of accuracy."""
