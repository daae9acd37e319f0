"""Defects into the part of dies that is good; every function takes numbers or arrays.

Areas are in mm2, densities of defects in 1/mm2; their product is the mean number of defects of a die.
"""

from __future__ import annotations

from math import comb, lgamma, log, log1p, sqrt

import numpy as np

from ....backends.machine.package import Harvest
from ....backends.prices.silicon_schema import SiliconSection
from ....ir.sizes.expr import Num

# Units whose binomial coefficients are floats: C(1029, 514) is the largest.
_FEW = 1000


def poisson(area_mm2: Num, defects: Num) -> Num:
    """Y = exp(-A D): defects fall anywhere, independently.

    >>> round(float(poisson(814.0, 0.0011)), 4)
    0.4084
    """
    return np.exp(-np.multiply(area_mm2, defects))


def murphy(area_mm2: Num, defects: Num) -> Num:
    """Y = ((1 - exp(-A D)) / (A D))^2: the density differs between wafers as a triangle does.

    >>> round(float(murphy(814.0, 0.0011)), 4), float(murphy(0.0, 0.0011))
    (0.4365, 1.0)
    """
    mean = np.multiply(area_mm2, defects)
    least = np.maximum(mean, 1e-12)
    return np.where(mean < 1e-12, 1.0, (-np.expm1(-least) / least) ** 2)


def seeds(area_mm2: Num, defects: Num) -> Num:
    """Y = 1 / (1 + A D): an exponential density, the most clustered of all.

    >>> round(float(seeds(814.0, 0.0011)), 4)
    0.5276
    """
    return 1.0 / (1.0 + np.multiply(area_mm2, defects))


def negative_binomial(area_mm2: Num, defects: Num, cluster: Num) -> Num:
    """Y = (1 + A D / alpha)^-alpha: seeds for alpha = 1, poisson for alpha without end.

    >>> round(float(negative_binomial(814.0, 0.0011, 10.0)), 4)
    0.4242
    """
    return np.power(1.0 + np.multiply(area_mm2, defects) / cluster, np.negative(cluster))


def bose_einstein(area_mm2: Num, layer_defects: Num, layers: Num) -> Num:
    """Y = (1 + A D_layer)^-n: each of n critical layers has defects of its own.

    >>> round(float(bose_einstein(814.0, 0.00011, 10.0)), 4)
    0.4242
    """
    return np.power(1.0 + np.multiply(area_mm2, layer_defects), np.negative(layers))


def harvested(unit: Num, rest: Num, units: int, needed: int) -> Num:
    """Y = sum over j <= u - n of C(u, j) y^(u-j) (1-y)^j, times the yield of the rest of the die.

    Args:
        unit: yield of one of the units.
        rest: yield of what must be good as a whole.
        units: how many there are.
        needed: how many must be good.

    >>> float(harvested(0.5, 1.0, 2, 1)), float(harvested(0.5, 0.5, 2, 2))
    (0.75, 0.125)
    """
    if units > _FEW:
        rows = [_of_many(float(y), units, units - needed) for y in np.ravel(unit)]
        found: Num = np.reshape(rows, np.shape(unit))
    else:
        bad = 1.0 - np.asarray(unit)
        terms = (comb(units, j) * np.power(unit, units - j) * np.power(bad, j) for j in range(units - needed + 1))
        found = sum(terms, start=0.0)
    return np.minimum(found, 1.0) * rest


def _of_many(unit: float, units: int, spare: int) -> float:
    """Sum the same series in logarithms, over the terms within 40 deviations of the mean: others are below 1e-300."""
    if not 0.0 < unit < 1.0:
        return float(unit >= 1.0 or spare >= units)
    mean, reach = units * (1.0 - unit), 40.0 * (sqrt(units * unit * (1.0 - unit)) + 1.0)
    first, last = max(0, int(mean - reach)), min(spare, int(mean + reach))
    bad = np.arange(first, last + 1)
    ratios = np.log(units - bad[:-1]) - np.log(bad[:-1] + 1.0) + log1p(-unit) - log(unit)
    start = lgamma(units + 1) - lgamma(first + 1) - lgamma(units - first + 1)
    start += (units - first) * log(unit) + first * log1p(-unit)
    return float(np.exp(start + np.concatenate(([0.0], np.cumsum(ratios)))).sum()) if bad.size else 0.0


def area_yield(area_mm2: Num, defects: Num, book: SiliconSection) -> Num:
    """Return the yield of an area by the model of the book (`models.yield`).

    `bose_einstein` spreads the density evenly over the critical layers.
    """
    match book.model("yield"):
        case "poisson":
            return poisson(area_mm2, defects)
        case "murphy":
            return murphy(area_mm2, defects)
        case "seeds":
            return seeds(area_mm2, defects)
        case "bose_einstein":
            layers = book.yields.layers.si
            return bose_einstein(area_mm2, np.divide(defects, layers), layers)
        case _:
            return negative_binomial(area_mm2, defects, book.yields.cluster.si)


def die_yield(area_mm2: Num, node: str, book: SiliconSection, harvest: Harvest | None = None) -> Num:
    """Return the part of a node's dies that are good, by the book: Y0 Y(A r_c D).

    A harvested die is good when enough of its units and all of the rest are.
    """
    prices = book.node(node)
    defects = prices.defect_density.si * prices.critical_area.si
    whole = book.wafer.process_yield.si
    if harvest is None:
        return whole * area_yield(area_mm2, defects, book)
    of_units = np.multiply(area_mm2, harvest.area_share)
    unit = area_yield(of_units / harvest.units, defects, book)
    rest = area_yield(np.subtract(area_mm2, of_units), defects, book)
    return whole * harvested(unit, rest, harvest.units, harvest.needed)
