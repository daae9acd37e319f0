"""The error model of the package: what predictions missed by, and bands that hold what was measured."""
