"""Nova's own driver beside ours on hosts: CPUs, memory and PCI classes are equal, or the page says why not."""

from pathlib import Path

import pytest

pytest.importorskip("nova.monkey_patch")

from beds.nova_numbers import Case, cases, differences, novas
from beds.odd_hosts import odd_host
from beds.upgrades import write_config

TOP = Path(__file__).parents[2]
CASES = tuple(cases(TOP / "tests/hosts"))


def unexplained(case: Case) -> list[str]:
    page = (TOP / "docs/novas-options.md").read_text(encoding="utf-8")
    return [one.text for one in differences(case) if not (one.reason and f"| {one.reason} " in page)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_nova_counts_the_same_of_a_recorded_host_or_the_page_says_why_not(case: Case) -> None:
    assert unexplained(case) == []


@pytest.mark.parametrize("seed", range(60))
def test_nova_counts_the_same_of_a_made_up_host_or_the_page_says_why_not(seed: int, tmp_path: Path) -> None:
    host = odd_host(seed)
    case = Case(host.name, host.write(tmp_path), write_config(host.options("devices"), tmp_path / "agent.conf"))

    assert unexplained(case) == []


def test_there_are_hosts_to_compare() -> None:
    found = [novas(case) for case in CASES]

    assert sum("VCPU" in one.get("", {}) for one in found if not isinstance(one, str)) >= len(CASES) // 2
