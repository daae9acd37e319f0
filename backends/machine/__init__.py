"""A machine as the models see it: systems, chips, packages, servers, tables of many."""
