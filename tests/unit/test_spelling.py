"""PCI addresses in names of providers: in capitals, as nova writes them; version 0.1.0 wrote small letters."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.audit.audit import witness
from agent.sync.outcome import Status
from beds.one_host import ROOT, OneHost, begun
from drivers.policy import DevicePolicy, Policy
from hardware import card, host
from reportclient.names import spelled
from reportclient.ownership import MARKER
from reportclient.plan import Rename
from reportclient.renaming import child_uuid
from reportclient.tree import ObservedTree

SMALL, CAPITAL = "0000:8a:00.0", "0000:8A:00.0"
HOST = host(*card(SMALL, 4))
POLICY = Policy(devices=DevicePolicy(discover_all=True))
VFS = {"SRIOV_NET_VF": (4, 0)}


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    return begun(tmp_path, HOST, POLICY.devices)


def write_as_before(one: OneHost) -> None:
    """The tree and the memory as version 0.1.0 left them."""
    seen = one.tree().by_name[f"host_{CAPITAL}"]
    body = {"name": f"host_{SMALL}", "parent_provider_uuid": ROOT}
    one.send("PUT", f"/resource_providers/{seen.uuid}", body)
    file = one.node.state_file(ROOT)
    memory = file.read(one.node.where)
    assert memory.observed
    old = tuple(
        replace(each, provider=replace(each.provider, name=each.name.replace(CAPITAL, SMALL)))
        for each in memory.observed
    )
    reported = {name.replace(CAPITAL, SMALL): names for name, names in memory.reported.items()}
    configured = {name.replace(CAPITAL, SMALL): names for name, names in memory.configured.items()}
    observed = ObservedTree(old, memory.observed.last_modified)
    file.write(replace(memory, observed=observed, reported=reported, configured=configured))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("host_0000:8a:00.0", "host_0000:8A:00.0"),
        ("0000:8a:0b.7", "0000:8A:0B.7"),
        ("10000:e1:00.0", "10000:E1:00.0"),
        ("host_pci_0000_8a_00_0", "host_pci_0000_8a_00_0"),  # libvirt's name, which nova takes as it is
        ("host_0000:8a:00", "host_0000:8a:00"),
        ("abc", "abc"),
    ],
)
def test_only_a_pci_address_at_the_end_is_in_capitals(name: str, wanted: str) -> None:
    assert (spelled(name), spelled(wanted)) == (wanted, wanted)


def test_a_uuid_does_not_depend_on_the_spelling() -> None:
    assert child_uuid(ROOT, "host", f"host_{SMALL}") == child_uuid(ROOT, "host", f"host_{CAPITAL}")
    assert child_uuid(ROOT, "host", "host_NUMA0") != child_uuid(ROOT, "host", "host_numa0")


def test_a_new_provider_is_named_as_nova_names_it(one: OneHost) -> None:
    assert one.stock(CAPITAL) == VFS
    assert one.stock(SMALL) == {}


def test_the_provider_that_nova_made_is_taken_over(one: OneHost) -> None:
    uuid = one.make_as_nova(CAPITAL, "SRIOV_NET_VF")
    one.forget()

    assert one.sync().status is Status.CHANGED

    assert [seen.uuid for seen in one.tree()] == [ROOT, uuid]
    assert MARKER in one.traits(CAPITAL)


@pytest.mark.parametrize("lost", [False, True], ids=["with its memory", "with its memory lost"])
def test_a_provider_of_before_is_renamed_with_all_that_it_has(one: OneHost, lost: bool) -> None:
    write_as_before(one)
    before = one.tree().by_name[f"host_{SMALL}"]
    one.claim({SMALL: {"SRIOV_NET_VF": 2}})
    one.set_by_hand(SMALL, "SRIOV_NET_VF", reserved=1)
    if lost:
        one.forget()

    done = one.sync()

    assert (done.status, [type(step) for step in done.plan.operations]) == (Status.CHANGED, [Rename])
    assert one.stock(CAPITAL) == {"SRIOV_NET_VF": (4, 1)}
    assert one.tree().by_name[f"host_{CAPITAL}"].uuid == before.uuid
    assert one.held() == {f"host_{CAPITAL}": {"SRIOV_NET_VF": 2}}
    assert one.sync().status is Status.UNCHANGED


def test_an_audit_before_that_pass_finds_nothing_wrong(one: OneHost) -> None:
    write_as_before(one)

    assert witness(one.node).findings == ()


def test_a_file_of_the_operators_may_have_either_spelling(one: OneHost) -> None:
    write_as_before(one)

    one.write_provider_config(SMALL, "CUSTOM_LICENCE", 2)
    assert one.sync().status is Status.CHANGED

    assert one.stock(CAPITAL) == VFS | {"CUSTOM_LICENCE": (2, 0)}
    one.write_provider_config(CAPITAL, "CUSTOM_LICENCE", 2)
    assert one.sync().status is Status.UNCHANGED
