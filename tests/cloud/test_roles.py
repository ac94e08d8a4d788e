"""Each role, whatever nova-compute does: on a host of nova's nothing of nova's is written without a person's word."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pytest

from beds.cloud.lab import CARD, NAME, Lab
from beds.synthetic.units import units_of_its_own

pytestmark = pytest.mark.live

ROLES = (None, "sole", "beside", "audit")
REFUSED, WELL = 4, 0
OWN = {f"{NAME}_{CARD}": {"CUSTOM_PCI_8086_10ED": 8}}


def layout_of(role: str | None) -> str:
    """Beside nova there is one layout; in any other role the most dangerous one is tried."""
    return "devices" if role == "beside" else "numa"


def run_service(lab: Lab, role: str | None) -> int:
    """As an exit code what the status of the service says."""
    outcomes = set(lab.serve(role=role, layout=layout_of(role))["outcomes"].values())
    return WELL if outcomes <= {"unchanged", "changed"} else REFUSED


def run_unit(lab: Lab, role: str | None) -> int:
    """As the systemd unit compute-node-agent-reshape does."""
    how = ("--apply", "--approved", "--patience", "0")
    return lab.agent("reshape", *how, role=role, layout=layout_of(role)).code


def one(verb: str, *options: str) -> Callable[[Lab, str | None], int]:
    return lambda lab, role: lab.agent(verb, *options, role=role).code


VERBS: dict[str, Callable[[Lab, str | None], int]] = {
    "sync": one("sync"),
    "reshape": one("reshape", "--to", "numa", "--apply"),
    "unit": run_unit,
    "service": run_service,
    "hand-over": one("hand-over"),
    "retire": one("retire"),
}
MAY = {("beside", verb) for verb in VERBS if verb != "reshape"}
IDLE = {(role, "unit") for role in ROLES} | {(None, "hand-over"), ("sole", "hand-over")}  # there is nothing to do


@contextmanager
def running(_lab: Lab) -> Iterator[None]:
    """nova-compute runs."""
    yield


@contextmanager
def enabled(lab: Lab) -> Iterator[None]:
    """nova-compute does not run, and its unit is enabled."""
    with units_of_its_own(lab.host) as enable, lab.stopped():
        enable("nova-compute.service")
        yield


@contextmanager
def disabled(lab: Lab) -> Iterator[None]:
    """nova-compute runs, and nova schedules nothing to it."""
    lab.cloud.set_service(NAME, status="disabled")
    try:
        yield
    finally:
        lab.cloud.set_service(NAME, status="enabled")


STATES: dict[str, Callable[[Lab], AbstractContextManager[None]]] = {
    "running": running,
    "stopped": Lab.stopped,
    "enabled": enabled,
    "disabled": disabled,
}


@pytest.mark.parametrize("state", STATES)
def test_no_verb_in_any_role_writes_what_is_novas(lab: Lab, state: str) -> None:
    before = lab.totals()
    said: list[str] = []
    with STATES[state](lab):
        nova = lab.of_nova()
        for role in ROLES:
            for verb, run in VERBS.items():
                code = run(lab, role)
                said.append(f"{state:9} {role or 'unset':7} {verb:10} exit {code}, providers of ours: {len(lab.own())}")
                assert lab.of_nova() == nova, said[-1]
                assert lab.own() in (({}, OWN) if role == "beside" else ({},)), said[-1]
                assert (code == WELL) == ((role, verb) in MAY | IDLE), said[-1]
    print("\n" + "\n".join(said))
    lab.wait_for_nova()
    assert lab.totals() == before
    assert lab.own() == {}


def test_what_a_person_took_over_and_nova_doubled_is_found_and_taken_back(lab: Lab) -> None:
    before, nova = lab.totals(), lab.of_nova()
    lab.compute.stop()
    taken = lab.agent("sync", "--take-over", role="sole")
    assert (taken.code, taken.json["outcome"]) == (0, "changed"), taken.out
    converted = lab.agent("reshape", "--to", "numa", "--apply", role="sole")
    assert (converted.code, converted.json["outcome"]) == (0, "changed"), converted.out
    assert lab.totals() == before

    lab.restart_nova()
    lab.wait_for_nova()
    assert lab.totals() == {name: 2 * total for name, total in before.items()}
    found = lab.agent("audit", role="sole").json
    assert "twice-on-offer" in {one["kind"] for one in found["findings"]}

    lab.compute.stop()
    back = lab.agent("reshape", "--to", "devices", "--apply", role="sole")
    assert (back.code, back.json["outcome"]) == (0, "changed"), back.out
    assert lab.totals() == before
    bare = replace(lab, pci={})  # what nova would not maintain goes first
    assert bare.agent("sync", role="sole").json["outcome"] == "changed"
    handed = bare.agent("hand-over", role="sole")
    assert handed.code == 0, handed.out
    lab.restart_nova()
    lab.wait_for_nova()
    assert lab.totals() == before
    assert {name: stock for name, (_, stock) in lab.of_nova().items()} == {
        name: stock for name, (_, stock) in nova.items()
    }
