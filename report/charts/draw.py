"""A program of its own that draws one chart: what it draws comes by stdin, and goes to stdout when it is drawn.

The engine that draws takes tens of GB of addresses as it starts, and where it gets none it ends its process at once.
"""

from __future__ import annotations

import json
import sys


def draw(form: str, version: str, spec: str) -> bytes:
    """Return a chart of a version of the grammar as SVG, as PNG, or the scripts that draw charts on a page."""
    import vl_convert

    if form == "scripts":
        return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version).encode()
    if form == "svg":
        return vl_convert.vegalite_to_svg(spec, vl_version=version, allowed_base_urls=[]).encode()
    # So many pixels a pixel of the page.
    return bytes(vl_convert.vegalite_to_png(spec, vl_version=version, scale=2.0, allowed_base_urls=[]))


if __name__ == "__main__":
    sys.stdout.buffer.write(draw(*json.load(sys.stdin.buffer)))
