"""What every test runs under; imports nothing heavy, so that a light test stays light."""

import os

from hypothesis import settings

# A test that would fetch from a hub must fail at once, on every machine alike.
os.environ["HF_HUB_OFFLINE"] = "1"

# The same examples on every machine, and no deadline: a busy machine is not a bug.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")
