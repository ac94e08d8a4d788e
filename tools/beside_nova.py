"""
Print what nova 34's own driver and this agent count of the recorded hosts in some folders, a row for each.

``PYTHONPATH=.:tests .bench/nova/bin/python tools/beside_nova.py tests/hosts``; ``make nova-test`` makes that Python.
"""

import os
import sys
from pathlib import Path

from beds.nova_numbers import cases, differences, novas, short


def main() -> None:
    """Print a row for each host with each of its configurations: equal, or what differs and why."""
    for case in (case for folder in sys.argv[1:] for case in cases(Path(folder))):
        found = differences(case)
        print(f"{case.name} | {'differs' if found else 'equal'} | {short(novas(case))}")
        for one in found:
            print(f"    {one.text}: {one.reason or 'NO REASON'}")
    sys.stdout.flush()
    os._exit(0)  # nova's threads stay


if __name__ == "__main__":
    main()
