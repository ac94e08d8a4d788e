"""What an audit says of providers alone."""

from dataclasses import replace

import pytest

from agent.audit.decide.findings import Kind
from agent.audit.decide.providers import audit_providers
from agent.audit.decide.snapshot import Providers, Snapshot
from reportclient.allocations import Allocation, Backing, Holdings
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

CARD = "host_0000:81:00.0"


def snapshot(
    *providers: Provider, rows: tuple[Allocation, ...] = (), layout: str = "", configured: str = ""
) -> Snapshot:
    """A host with these providers below its root, whose hardware is all here."""
    root = Provider(name="host", inventories={"VCPU": Inventory(total=4)}, traits=frozenset({MARKER}))
    several = (root, *providers)
    return Snapshot(
        tree=ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in several)),
        allocations=rows,
        holdings=Holdings(),
        providers=Providers(
            classes={one.name: frozenset(one.inventories) for one in several},
            present=frozenset(one.name for one in several),
        ),
        layout=configured,
        standing=layout,
    )


def card(reserved: int = 0, *traits: str) -> Provider:
    stock = {"SRIOV_NET_VF": Inventory(total=2, reserved=reserved)}
    return Provider(name=CARD, parent="host", inventories=stock, traits=frozenset(traits))


@pytest.mark.parametrize(
    ("reserved", "used", "words"),
    [
        pytest.param(0, 0, "no hardware", id="nobody wants it"),
        pytest.param(0, 1, "in use", id="a guest has some of it"),
        pytest.param(2, 0, "resource provider delete", id="an operator reserved it, and the card may come back"),
    ],
)
def test_a_card_that_is_gone_is_told_with_what_rests_on_it(reserved: int, used: int, words: str) -> None:
    rows = (Allocation("guest", CARD, "SRIOV_NET_VF", used),) if used else ()
    here = snapshot(card(reserved, MARKER), rows=rows)

    (finding,) = audit_providers(replace(here, providers=replace(here.providers, present=frozenset({"host"}))))

    assert (finding.kind, finding.repair) == (Kind.GHOST, None)
    assert words in finding.seen


@pytest.mark.parametrize(
    ("trait", "kinds"),
    [("HW_NUMA_ROOT", []), ("CUSTOM_MEMORY_PAGE_SIZE_SMALL", []), ("CUSTOM_MEMORY_PAGE_SIZE_OURS", [Kind.GHOST])],
)
def test_a_cell_without_inventory_is_of_a_conversion_and_no_ghost(trait: str, kinds: list[Kind]) -> None:
    begun = Provider(name="host_x", parent="host", traits=frozenset({MARKER, trait}))  # _OURS is an operator's own
    here = snapshot(begun)

    found = audit_providers(replace(here, providers=replace(here.providers, present=frozenset({"host"}))))

    assert [one.kind for one in found] == kinds


@pytest.mark.parametrize(
    ("row", "most"),
    [
        pytest.param(Allocation("guest", "host", "VCPU", 4), None, id="as many CPUs as there are"),
        pytest.param(Allocation("guest", "host", "VCPU", 5), 4, id="more CPUs than there are"),
        pytest.param(Allocation("guest", CARD, "SRIOV_NET_VF", 2), None, id="devices that were reserved under a guest"),
        pytest.param(Allocation("guest", CARD, "SRIOV_NET_VF", 3), 2, id="more devices than the card has"),
    ],
)
def test_a_provider_is_over_its_capacity_by_what_it_can_give(row: Allocation, most: int | None) -> None:
    found = audit_providers(snapshot(card(2, MARKER), rows=(row,)))

    assert [(one.kind, one.provider, one.expected, one.actual) for one in found] == (
        [(Kind.OVER, row.provider, most, row.amount)] if most else []
    )
    assert all("move guests away" in one.seen and one.repair is None for one in found)


def test_a_tree_in_another_layout_than_the_configured_one_says_how_to_bring_both_together() -> None:
    (found,) = audit_providers(snapshot(layout="numa", configured="devices"))

    assert (found.kind, found.provider) == (Kind.OTHER_LAYOUT, "host")
    assert "set [compute] layout = numa" in found.seen
    assert "compute-node-agent reshape --to devices" in found.seen


@pytest.mark.parametrize(
    ("name", "trait", "is_found"),
    [
        pytest.param("host_switch", "CUSTOM_RACK", True, id="nobody's"),
        pytest.param("host_switch", "OWNER_CYBORG", False, id="a service's mark"),
        pytest.param("host_switch", "CUSTOM_OWNER_X", False, id="somebody's own mark"),
        pytest.param("host_switch", OWNER_NOVA, False, id="nova's"),
        pytest.param("host:switch", "CUSTOM_RACK", False, id="Neutron's, by its name"),
        pytest.param("blazar_host", "CUSTOM_RACK", False, id="Blazar's, by its name"),
        pytest.param("blazar_old", "CUSTOM_RACK", False, id="Blazar's, by the host's former name"),
    ],
)
def test_a_provider_without_mark_or_name_of_an_owner_is_ownerless(name: str, trait: str, is_found: bool) -> None:
    found = audit_providers(snapshot(Provider(name=name, parent="host", traits=frozenset({trait}))))

    assert [(one.kind, one.provider) for one in found] == ([(Kind.OWNERLESS, name)] if is_found else [])


def test_two_providers_whose_names_end_in_one_address_are_duplicates() -> None:
    again = Provider(
        name="host_pci_0000_81_00_0",
        parent="host",
        inventories={"VGPU": Inventory(total=1)},
        traits=frozenset({MARKER}),
    )
    here = snapshot(card(0, MARKER), again)

    assert {(one.kind, one.provider) for one in audit_providers(here)} == {
        (Kind.DUPLICATE, CARD),
        (Kind.DUPLICATE, again.name),
    }
    wanted = replace(here.providers, wanted=frozenset({CARD, again.name}))
    assert audit_providers(replace(here, providers=wanted)) == []


OFFERS = {"CUSTOM_FPGA": Inventory(total=1)}
PF, VF, VF1 = "0000:81:00.0", "0000:81:10.0", "0000:81:10.1"


@pytest.mark.parametrize(
    ("theirs", "stock", "foreign", "ours", "words"),
    [
        pytest.param(VF1, OFFERS, True, {CARD: {VF, VF1}}, ["offers 0000:81:10.1"], id="a VF we count"),
        pytest.param(VF1, OFFERS, True, {CARD: {VF}}, [], id="a VF we do not count"),
        pytest.param(VF1, OFFERS, True, {CARD: {PF}}, ["offers 0000:81:00.0"], id="a VF of a whole card"),
        pytest.param("0000:82:00.0", OFFERS, True, {CARD: {VF}}, [], id="another card"),
        pytest.param(VF, {}, True, {CARD: {VF}}, [], id="a child without inventory offers nothing"),
        pytest.param(PF, {}, True, {CARD: {PF}}, [], id="a child without inventory and with a name of a card of ours"),
        pytest.param(VF, OFFERS, False, {CARD: {VF}}, [], id="a child of this agent"),
        pytest.param(VF, OFFERS, True, {"host_gone": {VF}}, [], id="ours is not there yet"),
        pytest.param(PF, OFFERS, True, {CARD: {PF}}, 2 * ["the same device"], id="once for each of two names"),
    ],
)
def test_a_card_that_another_service_offers_too_is_found_by_its_name_or_through_its_vfs(
    theirs: str, stock: dict[str, Inventory], foreign: bool, ours: dict[str, set[str]], words: list[str]
) -> None:
    child = Provider(name=f"x_{theirs}", parent="host", inventories=stock, traits=frozenset({"OWNER_CYBORG"}))
    here = snapshot(card(0, MARKER), child)
    offered = {name: frozenset(units) for name, units in ours.items()}
    here = replace(
        here,
        holdings=replace(here.holdings, backing=Backing(offered=offered)),
        providers=replace(here.providers, foreign=frozenset({child.name} if foreign else ()), cards={VF: PF, VF1: PF}),
    )

    found = audit_providers(here)

    assert [one.kind for one in found] == [Kind.DUPLICATE] * len(words)
    assert all(each in one.seen for each, one in zip(words, found, strict=True))
    if len(words) == 1:
        assert found[0].provider == child.name
        assert "OWNER_CYBORG" in found[0].seen
        assert "a VF of 0000:81:00.0" in found[0].seen


@pytest.mark.parametrize(
    ("on_root", "found"),
    [
        pytest.param({"MEMORY_MB": 1024}, [("MEMORY_MB", 1024)], id="as nova-compute puts it there"),
        pytest.param({}, [], id="not on the root"),
        pytest.param({"MEMORY_MB": 64}, [], id="a rest that has no cell"),
    ],
)
def test_memory_of_the_cells_that_the_root_offers_too_is_found(
    on_root: dict[str, int], found: list[tuple[str, int]]
) -> None:
    cell = Provider(
        name="host_NUMA0",
        parent="host",
        inventories={"MEMORY_MB": Inventory(total=1024)},
        traits=frozenset({MARKER}),
    )
    seen = snapshot(cell)
    root = seen.tree.providers[0]
    stock = {name: Inventory(total=total) for name, total in on_root.items()}
    stands = replace(root, provider=replace(root.provider, inventories=stock))

    findings = audit_providers(replace(seen, tree=ObservedTree((stands, *seen.tree.providers[1:]))))

    twice = [one for one in findings if one.kind is Kind.TWICE_ON_OFFER]
    assert [(one.resource_class, one.actual) for one in twice] == found
    assert not any(one.repair for one in twice)
