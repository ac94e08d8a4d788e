"""Nova's own driver beside ours on recorded hosts: CPUs, memory and PCI classes are equal, or the page says why not."""

from pathlib import Path

import pytest

pytest.importorskip("nova.monkey_patch")

from beds.nova_numbers import Case, cases, differences, novas

TOP = Path(__file__).parents[2]
CASES = tuple(cases(TOP / "tests/hosts"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_nova_counts_the_same_or_the_page_says_why_not(case: Case) -> None:
    page = (TOP / "docs/novas-options.md").read_text(encoding="utf-8")

    assert [one.text for one in differences(case) if not (one.reason and f"| {one.reason} " in page)] == []


def test_there_are_hosts_to_compare() -> None:
    found = [novas(case) for case in CASES]

    assert sum("VCPU" in one.get("", {}) for one in found if not isinstance(one, str)) >= len(CASES) // 2
