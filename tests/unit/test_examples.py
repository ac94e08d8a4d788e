"""The configuration files that the package brings: each is right as it stands."""

from pathlib import Path

import pytest

from agent.settings.read import load_settings

FOLDER = Path(__file__).parents[2] / "etc/compute-node-agent"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("examples/*.conf")), ids=lambda file: file.stem)
def test_each_example_is_a_configuration_without_mistakes(file: Path) -> None:
    load_settings([file])


def test_the_first_configuration_says_nothing_until_somebody_changes_it() -> None:
    begun = load_settings([FOLDER / "compute-node-agent.conf"])
    nothing = load_settings([])

    assert (begun.policy, begun.role, begun.hypervisor) == (nothing.policy, nothing.role, nothing.hypervisor)
    assert not begun.apis.placement_chosen


def test_each_example_of_an_option_in_the_first_configuration_is_right(tmp_path: Path) -> None:
    text = (FOLDER / "compute-node-agent.conf").read_text(encoding="utf-8")
    lines = [line[1:] if line.startswith("#") and line[1:2].islower() and " =" in line else line
             for line in text.splitlines()]  # fmt: skip
    file = tmp_path / "all.conf"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    begun = load_settings([file])

    assert begun.role == "sole"
    assert begun.apis.placement_chosen
