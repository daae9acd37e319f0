"""`python -m slipstick` into the command line."""

import os
import sys

# Python puts the current folder first; what lies there is data, and no module of ours or of others.
if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]

from .cli import main

if __name__ == "__main__":
    main()
