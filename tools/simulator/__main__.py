"""
Simulate from the measured costs, and write the tables and plots of docs/scale.md.

Usage: python -m simulator [measure]: with ``measure`` the costs are measured anew first.
"""

import sys
import time

from simulator import measure, validate
from simulator.costs import read_costs
from simulator.page import draw, tables
from simulator.sizing import answer


def main() -> int:
    """Do it, and print the tables."""
    began = time.monotonic()
    if sys.argv[1:] == ["measure"]:
        measure.main()
    costs = read_costs()
    found = answer(costs)
    text = f"{validate.origin()}\n\n{tables(found, validate.read_kept(), validate.simulate(costs))}"
    validate.TABLES.write_text(text, encoding="utf-8")
    draw(found, validate.TABLES.parent)
    print(text)
    print(f"simulated in {time.monotonic() - began:.0f} s; see {validate.TABLES.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
