"""`make errors`: judge every row again, and write what backs answers and how far off these are."""

from __future__ import annotations

from slipstick.benchmarks.errors.files import (
    bands_of,
    coverage_table,
    read_residuals,
    residuals_of,
    write_errors,
    write_evidence,
    write_residuals,
)
from slipstick.benchmarks.errors.observe import observed
from slipstick.driver.uncertainty.evidence import forget


def main() -> None:
    """Write the three files, and print the coverage of the bands."""
    seen = list(observed())
    write_evidence(seen)
    forget()
    write_residuals(residuals_of(seen))
    # As written, to as many places.
    residuals = read_residuals()
    write_errors(bands_of(residuals))
    print(coverage_table(residuals))


main()
