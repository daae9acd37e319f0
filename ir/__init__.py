"""The graph and its vocabulary; imports nothing of ours from outside this folder."""

# Here, where every floor may read it; the package has it from here.
__version__ = "0.1.0"
