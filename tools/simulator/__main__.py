"""
Simulate from the measured costs, and write the tables and plots of docs/scale.md.

Usage: python -m simulator [measure]: with ``measure`` the costs are measured anew first.
"""

import sys
import time

from simulator import measure, validate
from simulator.costs import COSTS, read_costs
from simulator.page import draw, tables
from simulator.sizing import answer


def main() -> int:
    """Do it, and print the tables."""
    began = time.monotonic()
    if sys.argv[1:] == ["measure"]:
        measure.main()
    try:
        costs = read_costs()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{COSTS} cannot be read ({type(error).__name__}: {error}): measure anew by SIMULATE=measure")
    found = answer(costs)
    kept = validate.read_kept()
    text = f"{validate.origin()}\n\n{tables(found, kept, validate.simulate(costs, kept))}"
    validate.TABLES.write_text(text, encoding="utf-8")
    draw(found, validate.TABLES.parent)
    print(text)
    print(f"simulated in {time.monotonic() - began:.0f} s; see {validate.TABLES.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
