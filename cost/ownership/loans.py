"""Interest of a loan that is paid back in equal monthly parts."""

from __future__ import annotations

import numpy as np

from ...ir.sizes.expr import Num

YEAR_S = 365 * 86400.0  # a year of bills, without leap days


def total_interest_usd(principal_usd: Num, rate_per_year: Num, life_s: Num) -> Num:
    """Return all interest of a loan: n p - P, p = P m / (1 - (1 + m)^-n) a month, m = rate/12, n = 12 years.

    Source: evalTotalInterestPaid of Chiplet Cloud (github bespoke-silicon-group/reallm 4c550c3).

    >>> round(total_interest_usd(310_000, 0.08, 4 * YEAR_S), 2)
    53264.28
    """
    months = np.asarray(life_s) / YEAR_S * 12.0
    monthly = np.asarray(rate_per_year) / 12.0
    # Without interest a payment is an even part; the smallest rate there is keeps the quotient finite.
    some = np.maximum(monthly, 1e-300)
    paid = np.where(monthly > 0, some / -np.expm1(-months * np.log1p(some)), 1.0 / months)
    interest = principal_usd * (paid * months - 1.0)
    return float(interest) if np.ndim(interest) == 0 else interest
