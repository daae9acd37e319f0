"""Dies and packages: what silicon costs, from wafers to a package that works."""
