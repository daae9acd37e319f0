"""Network levels into switches, adapters, cables and optics."""
