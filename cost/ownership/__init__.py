"""Systems and their ownership: servers, networks and facilities as bills, energy, carbon, and money for tokens."""
