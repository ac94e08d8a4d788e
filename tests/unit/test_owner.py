"""Who reports a host's root, by what can be seen of nova."""

import pytest

from agent.nova.answers import NovaRecord
from agent.sync.decide.owner import (
    advice,
    against_handing,
    against_writing,
    disputed,
    signs_of_nova,
    tell_disputed,
)
from drivers.facts import ServiceSigns
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.tree import Inventory, ObservedProvider, Provider


def root(*traits: str) -> ObservedProvider:
    return ObservedProvider(uuid="host", generation=1, provider=Provider(name="host", traits=frozenset(traits)))


@pytest.mark.parametrize(
    ("stands", "found", "keys"),
    [
        pytest.param(None, ServiceSigns(), [], id="a new host"),
        pytest.param(root(), ServiceSigns(), [], id="nothing of nova's"),
        pytest.param(root(OWNER_NOVA), ServiceSigns(), ["root"], id="nova's trait"),
        pytest.param(root(OWNER_NOVA, MARKER), ServiceSigns(), [], id="nova's trait on a root that we know we wrote"),
        pytest.param(root(MARKER), ServiceSigns(processes=(7, 9)), ["process"], id="a process, whatever the root has"),
        pytest.param(None, ServiceSigns(units=("nova-compute.service",)), ["nova-compute.service"], id="a unit"),
        pytest.param(None, ServiceSigns(hidden=True), ["hidden"], id="processes that cannot be seen"),
        pytest.param(root(MARKER), ServiceSigns(hidden=True), [], id="the same on a root of ours"),
    ],
)
def test_the_signs_that_nova_reports_a_root(
    stands: ObservedProvider | None, found: ServiceSigns, keys: list[str]
) -> None:
    assert list(signs_of_nova(stands, found)) == keys


def test_both_marks_on_a_root_that_we_do_not_remember_are_those_of_our_driver_inside_nova() -> None:
    signs = signs_of_nova(root(OWNER_NOVA, MARKER), ServiceSigns(), remembered=False)

    assert list(signs) == ["root"]
    assert "does not remember" in signs["root"]
    assert list(signs_of_nova(root(MARKER), ServiceSigns(), remembered=False)) == []


@pytest.mark.parametrize(
    ("signs", "taken_over", "refused"),
    [
        pytest.param({}, (), False, id="nothing shows nova"),
        pytest.param({"root": "it carries OWNER_NOVA"}, (), True, id="nova reports the root"),
        pytest.param({"process": "it runs"}, (), True, id="nova-compute runs"),
        pytest.param({"root": "it carries OWNER_NOVA"}, ("root",), False, id="a person took the root over"),
        pytest.param({"nova-compute.service": "enabled", "record": "known"}, (), False, id="nova is about to go on"),
    ],
)
def test_a_root_that_nova_reports_already_is_not_handed_over(
    signs: dict[str, str], taken_over: tuple[str, ...], refused: bool
) -> None:
    assert bool(against_handing("host", signs, taken_over)) is refused


def test_a_person_may_hand_over_what_our_driver_inside_nova_reported_while_nova_compute_is_stopped() -> None:
    signs = {"root": "it carries OWNER_NOVA"}

    assert against_handing("host", signs, (), force=True) == ()
    assert against_handing("host", {**signs, "process": "it runs"}, (), force=True)


@pytest.mark.parametrize(
    ("stands", "record", "keys"),
    [
        pytest.param(root(MARKER), NovaRecord(host="nova-host"), ["record"], id="nova has the hypervisor"),
        pytest.param(root(MARKER), NovaRecord(), [], id="nova does not show it"),
        pytest.param(root(MARKER), NovaRecord(silence="no answer"), [], id="no answer, and the root is ours"),
        pytest.param(root(), NovaRecord(silence="no answer"), ["silence"], id="no answer, and whose is the root?"),
        pytest.param(None, NovaRecord(silence="no answer"), ["silence"], id="no answer about a new host"),
        pytest.param(root(), NovaRecord(unknown=True), ["unknown"], id="nova does not know a root that stands"),
        pytest.param(None, NovaRecord(unknown=True), [], id="nova does not know a new host"),
    ],
)
def test_what_nova_says_of_itself_is_a_sign(
    stands: ObservedProvider | None, record: NovaRecord, keys: list[str]
) -> None:
    signs = signs_of_nova(stands, ServiceSigns(), record)

    assert list(signs) == keys
    assert not keys or ("may report" in against_writing("host", signs, ())[0]) == (keys != ["record"])


def test_a_refusal_names_the_new_signs_only() -> None:
    signs = signs_of_nova(root(MARKER), ServiceSigns(processes=(7,), units=("nova-compute.service",)))

    why, advice = against_writing("host", signs, {"nova-compute.service"})

    assert why == "nova-compute reports host: nova-compute (pid 7) runs on this host"
    assert "sync --take-over" in advice
    assert against_writing("host", signs, set(signs)) == ()


def test_three_doubts_are_no_proof() -> None:
    signs = dict.fromkeys(("silence", "unknown", "hidden"), "a doubt")

    assert against_writing("host", signs, ())[0] == "nova-compute may report host: a doubt; a doubt; a doubt"


def test_cpus_and_memory_that_options_give_otherwise_than_nova_are_disputed() -> None:
    stock = {"VCPU": Inventory(total=8), "MEMORY_MB": Inventory(total=1024), "DISK_GB": Inventory(total=9)}
    cells = [Provider(name=name, inventories={"VCPU": Inventory(total=3)}) for name in ("host_NUMA0", "host_NUMA1")]
    memory = Provider(name="host", inventories={"MEMORY_MB": Inventory(total=1024)})

    found = disputed([Provider(name="host", inventories=stock)], [memory, *cells])

    assert found == {"VCPU": (8, 6)}
    assert tell_disputed("host", found).startswith("placement has 8 VCPU, not 6 on host, which nova reports")


@pytest.mark.parametrize(
    ("reserved", "offered", "until"),
    [
        (
            1,
            ". Placement still offers VGPU of this provider to guests. Bring",
            "set card --amend --resource VGPU:reserved=2",
        ),
        (2, "matches this provider. Bring", "run sync. If the device is gone"),
    ],
)
def test_the_advice_on_a_device_of_novas_that_is_gone_reserves_what_is_on_offer(
    reserved: int, offered: str, until: str
) -> None:
    stock = {"VGPU": Inventory(total=2, reserved=reserved)}

    told = advice(ObservedProvider(uuid="card", generation=1, provider=Provider(name="host_card", inventories=stock)))

    assert offered in told
    assert until in told
