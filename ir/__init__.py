"""The graph and its vocabulary; imports nothing of ours from outside this folder."""
