"""The site: pages of this folder and what is generated beside them; no request to another host."""

from slipstick.cli import VERBS
from slipstick.ir import __version__

project = "Slipstick"
author = "The Slipstick developers"
copyright = author
version = release = __version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"Slipstick {__version__}"
html_static_path: list[str] = []
# Headings get anchors as on the forges, so that links between pages hold in both.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
man_pages = [(f"commands/{verb}", f"slipstick-{verb}", line.rstrip("."), [], 1) for verb, (_, line) in VERBS.items()]
# Links to code lead out of the pages; `tests/docs` looks after all links. Outputs of commands are in no language.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure", "myst.header"]
