"""Traits and aggregates that a hand set on a provider: a conversion that would delete the provider is refused."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from agent.sync.outcome import Status
from beds.one_host import RESHAPE, OneHost
from drivers.policy import DevicePolicy, Layout, MdevRule, Policy
from hardware import card, gpu, host, parent

NIC, CELL = "0000:81:00.0", "NUMA0"
ALL = DevicePolicy(discover_all=True, mdevs=(MdevRule(type="a"),))
FACTS = host(*card(NIC, 4), gpu(), parents=(parent(gpu(), a=8),))
AGGREGATE = "0c1f6b1d-e201-4a3c-9d26-a4f1c3f05d7f"


def add(one: OneHost, suffix: str, kind: str) -> None:
    """Put a trait or an aggregate of a hand on a provider."""
    if kind == "CUSTOM_RACK_7":
        one.put_trait(suffix, kind)
        return
    seen = one.tree().by_name[f"{one.facts.hostname}_{suffix}"]
    body = {"aggregates": [AGGREGATE], "resource_provider_generation": seen.generation}
    one.send("PUT", f"/resource_providers/{seen.uuid}/aggregates", body)


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("kind", ["CUSTOM_RACK_7", AGGREGATE])
@pytest.mark.parametrize(("layout", "target", "suffix"), [("numa", "devices", CELL), ("devices", "flat", NIC)])
def test_what_a_hand_set_is_kept_or_the_conversion_is_refused(
    tmp_path: Path, kind: str, layout: Layout, target: Layout, suffix: str, remembers: bool
) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout=layout, devices=ALL))
    one.sync()
    add(one, suffix, kind)
    one.sync()
    if not remembers:
        one.forget()

    done = one.reshape(target)

    assert done.status is Status.UNSAFE
    assert f"{kind} on {one.facts.hostname}_{suffix}" in " ".join(done.notes)
    assert f"{one.facts.hostname}_{suffix}" in one.tree().by_name


def test_what_a_hand_set_goes_once_a_person_agreed_to_the_plan_that_tells_it(tmp_path: Path) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout="devices", devices=ALL))
    one.sync()
    add(one, NIC, "CUSTOM_RACK_7")

    done = one.sync(replace(RESHAPE, agreed="by a person"), policy=replace(one.policy, layout="flat"))

    assert done.status is Status.CHANGED
    assert f"CUSTOM_RACK_7 on {one.facts.hostname}_{NIC}" in " ".join(done.notes)


@pytest.mark.parametrize("target", get_args(Layout))
@pytest.mark.parametrize("layout", get_args(Layout))
def test_what_this_agent_set_itself_stops_no_conversion(tmp_path: Path, layout: Layout, target: Layout) -> None:
    one = OneHost(tmp_path, FACTS, Policy(layout=layout, devices=ALL))
    one.write_provider_config("", "CUSTOM_LICENCE", 4, traits=("CUSTOM_OWN",))
    one.sync()

    assert one.reshape(target).status is not Status.UNSAFE
