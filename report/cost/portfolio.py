"""A portfolio of products that share designs: a line for each product, and one for each design."""

from __future__ import annotations

from ...backends.prices.section import Prices
from ...cost.silicon.portfolio import Portfolio
from ...ir import __version__
from ...ir.text.json_text import json_text
from ...ir.units import format_usd
from ..columns import in_columns
from ..results.documents import DocumentResult
from .bills import right

SCHEMA = "slipstick/portfolio/1"
_PRODUCTS = ("product", "volume", "made", "design", "a package", "alone", "all packages", "all, alone", "reuse")
_DESIGNS = ("designed once", "cost", "uses", "each", "by")


def portfolio_result(found: Portfolio, prices: Prices) -> DocumentResult:
    """Return a portfolio as a result."""
    return DocumentResult(
        title=f"portfolio {found.name}",
        document=lambda: portfolio_json(found, prices),
        screen=lambda width: portfolio_text(found, prices, width),
    )


def portfolio_text(found: Portfolio, prices: Prices, width: int | None = None) -> str:
    """Return what products cost with the designs that they share, and without; then what is designed.

    `made` is a package without design, `design` its part of it, `alone` with designs that no other product uses.
    """
    rows = [[*_PRODUCTS]]
    for one in found.products:
        each = (one.made_usd, one.design_usd, one.usd, one.alone_usd, one.usd * one.volume, one.alone_usd * one.volume)
        rows.append([one.name, f"{one.volume:,.0f}", *map(format_usd, each), _change(one.usd, one.alone_usd)])
    volume, change = sum(one.volume for one in found.products), _change(found.usd, found.alone_usd)
    whole = [format_usd(found.usd), format_usd(found.alone_usd), change]
    rows.append(["all", f"{volume:,.0f}", "", "", "", "", *whole])
    designs = [[*_DESIGNS]]
    for made in sorted(found.designs, key=lambda one: -one.usd):
        by = ", ".join(f"{name} {count:,.0f}" for name, count in made.uses.items())
        uses = f"{sum(made.uses.values()):,.0f}"
        designs.append([made.name, format_usd(made.usd), uses, format_usd(made.each_usd), by])
    heading = f"{found.name}  {len(found.products)} products  prices {prices.name}"
    return "\n".join([heading, in_columns(right(rows), width), "", in_columns(designs, width), ""])


def _change(usd: float, before_usd: float) -> str:
    return f"{usd / before_usd - 1.0:+.1%}"


def portfolio_json(found: Portfolio, prices: Prices) -> str:
    """Return the document: products, then designs with who uses them."""
    document = {
        "schema": SCHEMA,
        "tool_version": __version__,
        "name": found.name,
        "prices": prices.name,
        "usd": found.usd,
        "usd_alone": found.alone_usd,
        "usd_design": found.design_usd,
        "usd_design_alone": found.design_alone_usd,
        "products": [
            {
                "name": one.name,
                "volume": one.volume,
                "usd_made": one.made_usd,
                "usd_design": one.design_usd,
                "usd": one.usd,
                "usd_alone": one.alone_usd,
            }
            for one in found.products
        ],
        "designs": [
            {"name": one.name, "usd": one.usd, "usd_each": one.each_usd, "uses": dict(one.uses)}
            for one in found.designs
        ],
    }
    return json_text(document, indent=1)
