"""Models on machines that serve requests: tables of step times from lowered graphs, and what engines make of them."""
