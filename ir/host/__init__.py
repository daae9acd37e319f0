"""What the machine gives: folders of its user, and processes that take no modules from the current folder."""
