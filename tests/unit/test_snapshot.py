"""What an audit may say of a guest: nothing of a class of which the hypervisor does not tell now what it has."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from agent.audit.decide.findings import Finding, Kind
from agent.audit.decide.guests import find_all
from agent.audit.decide.snapshot import Providers, Snapshot, suspects
from drivers.facts import GuestDevices, GuestMemory, HostFacts, Mdev, NetDevice, Tenant
from drivers.libvirt.shape import EMITTED, shape
from drivers.pci import PciAddress
from drivers.policy import CpuPolicy, DevicePolicy, Layout, MdevRule, Policy
from drivers.rules import parse_rule
from fakes import FACTS, PC, offering
from hardware import at, card, gpu, guest_with, host, parent
from reportclient.allocations import Allocation, Consumer
from reportclient.diff import diff
from reportclient.forecast import forecast
from reportclient.ownership import Names, Ownership
from reportclient.tree import ObservedTree
from strategies import ROOT_UUID

GPUS = (gpu("0000:84:00.0"), gpu("0000:85:00.0"))
PARENTS = tuple(parent(one, a=2, b=2) for one in GPUS)
GUEST = replace(guest_with(mdevs=frozenset({"m"})), vcpus=(frozenset(),), memory=(GuestMemory(64),))
MDEV, NEIGHBOUR = Mdev("m", "a", PARENTS[0].name), Mdev("n", "a", PARENTS[1].name)
ON_A, ON_B = f"host_{PARENTS[0].name}", f"host_{PARENTS[1].name}"
VGPUS = Policy(devices=DevicePolicy(mdevs=(MdevRule(type="a"),)))
SEV = replace(PC, encryption=replace(PC.encryption, sev_guests=5))


def placed(facts: HostFacts, policy: Policy = VGPUS) -> ObservedTree:
    """The tree that a host with this policy has in placement."""
    tree = shape(facts, policy, None).tree
    return forecast(diff(ObservedTree(), tree, Ownership(emitted=EMITTED), root_uuid=ROOT_UUID), ObservedTree())


def findings(
    facts: HostFacts, tree: ObservedTree, rows: Iterable[Allocation], policy: Policy = VGPUS
) -> tuple[Finding, ...]:
    """What an audit of the host as it is now finds of these rows of its guest."""
    shaped = shape(facts, policy, tree)
    everything = Names(frozenset(name for seen in tree for name in seen.provider.inventories))
    ours = Ownership(emitted=EMITTED, configured={seen.name: everything for seen in tree})
    slots: dict[str, dict[str, int]] = {}
    for one in rows:
        slots.setdefault(tree.by_name[one.provider].uuid, {})[one.resource_class] = one.amount
    consumer = Consumer(uuid="guest", generation=1, project="p", user="u", kind="INSTANCE", slots=slots)
    snapshot = Snapshot(
        tree=tree,
        allocations=tuple(rows),
        holdings=shaped.holdings,
        providers=Providers(
            classes={seen.name: ours.classes(seen) for seen in tree}, present=frozenset(seen.name for seen in tree)
        ),
        consumers={"guest": consumer},
    )
    assert "guest" not in suspects(snapshot) or find_all(snapshot)
    return find_all(snapshot)


def rows(**vgpus: int) -> tuple[Allocation, ...]:
    own = (Allocation("guest", "host", "MEMORY_MB", 64), Allocation("guest", "host", "VCPU", 1))
    return (*own, *(Allocation("guest", f"host_{name}", "VGPU", amount) for name, amount in vgpus.items()))


BOTH = replace(host(*GPUS, parents=PARENTS, mdevs=(MDEV, NEIGHBOUR)), guests=(GUEST,))
ONE = {PARENTS[0].name: 1}


def test_a_flavors_amount_of_cpus_in_another_cell_is_in_the_wrong_place_whatever_else_the_guest_has() -> None:
    named = Tenant("p", "u", None, {"VCPU": 2})
    one = replace(GUEST, devices=GuestDevices(), vcpus=(frozenset({0}),), tenant=named)
    facts = replace(FACTS, guests=(replace(one, memory=(GuestMemory(64, frozenset({0})),)),))
    policy = Policy(layout="cells", reserved_memory_mib=0)
    rows = (Allocation("guest", "host_NUMA1", "VCPU", 2), Allocation("guest", "host_NUMA0", "MEMORY_MB", 64))

    found = findings(facts, placed(facts, policy), rows, policy)

    assert [(one.provider, one.resource_class, one.expected, one.actual) for one in found] == [
        ("host_NUMA0", "VCPU", 2, 0),
        ("host_NUMA1", "VCPU", 0, 2),
    ]


def renamed(**changes: str) -> Policy:
    """The first card offers another type, or its own type as another class."""
    first = MdevRule(**{"type": "a", **changes}, addresses=frozenset({PARENTS[0].name}))  # type: ignore[arg-type]
    return Policy(devices=DevicePolicy(mdevs=(first, MdevRule(type="a"))))


@pytest.mark.parametrize(
    ("facts", "policy"),
    [
        pytest.param(
            replace(host(GPUS[1], parents=PARENTS[1:], mdevs=(NEIGHBOUR,)), guests=(GUEST,)),
            VGPUS,
            id="its card is out of sight",
        ),
        pytest.param(
            replace(host(gpu(driver=None), GPUS[1], parents=PARENTS[1:], mdevs=(NEIGHBOUR,)), guests=(GUEST,)),
            VGPUS,
            id="the driver of its card is gone",
        ),
        pytest.param(BOTH, renamed(type="b", resource_class="CUSTOM_B"), id="its card makes another type now"),
        pytest.param(BOTH, renamed(resource_class="CUSTOM_A"), id="its card's class has a new name"),
    ],
)
def test_a_vgpu_that_is_not_offered_now_is_no_difference_though_another_card_offers_the_class(
    facts: HostFacts, policy: Policy
) -> None:
    found = findings(facts, placed(BOTH), rows(**ONE), policy)

    assert [one for one in found if one.kind is not Kind.ODD_DEVICE] == []


def test_a_vgpu_of_another_card_is_one_as_long_as_all_of_the_guest_is_told() -> None:
    found = findings(BOTH, placed(BOTH), rows(**{PARENTS[1].name: 1}))

    assert [(one.kind.value, one.provider, one.expected, one.actual) for one in found] == [
        ("wrong-provider", ON_A, 1, 0),
        ("wrong-provider", ON_B, 0, 1),
    ]
    assert found[0].repair
    (written,) = found[0].repair.rewrites
    names = {seen.uuid: seen.name for seen in placed(BOTH)}
    assert {names[uuid]: amounts for uuid, amounts in written.after.items() if "VGPU" in amounts} == {ON_A: {"VGPU": 1}}


def test_a_vf_whose_rule_was_withdrawn_is_no_difference() -> None:
    guest = replace(GUEST, devices=GuestDevices(pci=frozenset({at("0000:81:10.0")})))
    facts = replace(host(*card(), *card("0000:83:00.0")), guests=(guest,))
    vfs = {"product_id": "1515", "resource_class": "CUSTOM_VF"}
    first, second = (parse_rule({**vfs, "address": f"0000:{bus}:10.*"}, 1) for bus in ("81", "83"))
    before = Policy(devices=DevicePolicy(report=True, rules=(first, second)))
    after = Policy(devices=DevicePolicy(report=True, rules=(second,)))
    row = Allocation("guest", "host_0000:81:00.0", "CUSTOM_VF", 1)

    assert findings(facts, placed(facts, before), (*rows(), row), before) == ()
    assert findings(facts, placed(facts, before), (*rows(), row), after) == ()


NOVAS = Tenant("p", "u", 20)
FIRST_VF, SECOND_VF, OTHER_VF = at("0000:81:10.0"), at("0000:81:10.1"), at("0000:83:10.0")


def vfs(network: str | None = None) -> Policy:
    """VFs of two cards, by a rule with a physical network or without."""
    spec = {"product_id": "1515", "resource_class": "CUSTOM_VF"} | ({"physical_network": network} if network else {})
    return Policy(devices=DevicePolicy(report=True, rules=(parse_rule(spec, 1),)))


@pytest.mark.parametrize("layout", ["flat", "devices"])
@pytest.mark.parametrize(
    ("tenant", "ports", "network", "allocated", "said"),
    [
        pytest.param(NOVAS, {FIRST_VF}, None, 1, (), id="nova allocated the alias's VF and none for the port"),
        pytest.param(NOVAS, {FIRST_VF}, None, 2, (), id="the port's VF was allocated too"),
        pytest.param(NOVAS, {FIRST_VF}, None, 0, (1, 0), id="the alias's VF is not allocated"),
        pytest.param(NOVAS, {FIRST_VF}, None, 3, (2, 3), id="more than the guest has"),
        pytest.param(NOVAS, set(), "phys", 0, (), id="the rule has a physical network"),
        pytest.param(NOVAS, set(), None, 1, (2, 1), id="no port"),
        pytest.param(replace(NOVAS, overridden={"CUSTOM_VF": 1}), {FIRST_VF}, None, 0, (), id="by its flavor"),
        pytest.param(None, {FIRST_VF}, None, 0, (), id="nobody tells who allocates"),
        pytest.param(None, {FIRST_VF}, None, 3, (), id="nobody tells who allocated"),
        pytest.param(None, set(), None, 1, (2, 1), id="no port, of nobody's"),
    ],
)
def test_vfs_of_networks_ports_are_allocated_or_not(
    layout: Layout,
    tenant: Tenant | None,
    ports: set[PciAddress],
    network: str | None,
    allocated: int,
    said: tuple[int, int],
) -> None:
    pci = frozenset({FIRST_VF, SECOND_VF})
    tenant = tenant and replace(tenant, disk_gb=0)
    guest = replace(GUEST, devices=GuestDevices(pci=pci, ports=frozenset(ports)), tenant=tenant)
    facts = replace(host(*card(vfs=4), *card("0000:83:00.0")), guests=(guest,))
    policy = replace(vfs(network), layout=layout)
    row = Allocation("guest", "host" if layout == "flat" else "host_0000:81:00.0", "CUSTOM_VF", allocated)

    found = findings(facts, placed(facts, policy), (*rows(), *([row] if allocated else [])), policy)

    assert [(one.kind.value, one.expected, one.actual) for one in found] == ([("wrong-amount", *said)] if said else [])


@pytest.mark.parametrize(
    ("named", "allocated", "said"),
    [
        pytest.param({"CUSTOM_VF": 1}, 1, (), id="as the flavor says"),
        pytest.param({"CUSTOM_VF": 1}, 2, (0, 2), id="more than the flavor says"),
        pytest.param({"CUSTOM_VF": None}, 2, (), id="the flavor's amount cannot be read"),
        pytest.param({}, 1, (0, 1), id="not by its flavor"),
    ],
)
def test_what_a_flavor_names_may_be_allocated_to_a_guest_without_a_device(
    named: dict[str, int | None], allocated: int, said: tuple[int, int]
) -> None:
    guest = replace(GUEST, devices=GuestDevices(), tenant=replace(NOVAS, overridden=named))
    facts = replace(host(*card(vfs=4)), guests=(guest,))
    row = Allocation("guest", "host_0000:81:00.0", "CUSTOM_VF", allocated)

    found = findings(facts, placed(facts, vfs()), (*rows(), row), vfs())

    assert [(one.expected, one.actual) for one in found] == ([said] if said else [])


def test_a_guest_of_novas_with_a_port_and_no_allocations_is_given_none_for_its_port() -> None:
    guest = replace(GUEST, devices=GuestDevices(pci=frozenset({FIRST_VF, OTHER_VF}), ports=frozenset({FIRST_VF})))
    facts = replace(host(*card(), *card("0000:83:00.0")), guests=(replace(guest, tenant=NOVAS),))

    found = findings(facts, placed(facts, vfs()), (), vfs())

    told = {(one.provider, one.expected) for one in found if one.resource_class == "CUSTOM_VF"}
    assert told == {("host_0000:83:00.0", 1)}


@pytest.mark.parametrize(
    "has",
    [
        pytest.param({"netdevs": frozenset({"ens1v0"})}, id="macvtap, whole"),
        pytest.param({"netdevs": frozenset({"gone0"})}, id="macvtap on an interface that nobody knows"),
        pytest.param({"vdpa": frozenset({"/dev/vhost-vdpa-0"})}, id="vDPA"),
    ],
)
def test_a_vf_that_a_guest_has_by_another_way_is_not_taken_from_it(has: dict[str, frozenset[str]]) -> None:
    pf, first, *others = card(vfs=2)
    named = replace(first, net_devices=(NetDevice("ens1v0", "up"),))
    guest = replace(GUEST, devices=GuestDevices(**has), tenant=NOVAS)  # type: ignore[arg-type]
    facts = replace(host(pf, named, *others), guests=(guest,))
    row = Allocation("guest", "host_0000:81:00.0", "CUSTOM_VF", 1)

    assert findings(facts, placed(facts, vfs()), (*rows(), row), vfs()) == ()


@pytest.mark.parametrize(("allocated", "said"), [(0, [(1, 0)]), (1, []), (3, []), (4, [(3, 4)])])
def test_a_passthrough_interface_is_a_network_port_for_which_nova_need_not_allocate(
    allocated: int, said: list[tuple[int, int]]
) -> None:
    """Beside it the guest has a VF by its flavor's alias, and one in a port."""
    pf, first, second, third, fourth = card(vfs=4)
    named = replace(first, net_devices=(NetDevice("ens1v0", "up"),))
    pci, ports = frozenset({second.address, third.address}), frozenset({third.address})
    guest = replace(GUEST, devices=GuestDevices(pci=pci, ports=ports, netdevs=frozenset({"ens1v0"})), tenant=NOVAS)
    facts = replace(host(pf, named, second, third, fourth), guests=(guest,))
    row = [Allocation("guest", "host_0000:81:00.0", "CUSTOM_VF", allocated)] if allocated else []

    found = findings(facts, placed(facts, vfs()), (*rows(), *row), vfs())

    assert [(one.expected, one.actual) for one in found if one.resource_class == "CUSTOM_VF"] == said


def test_an_encryption_context_of_a_kind_that_is_off_is_no_difference() -> None:
    guest = replace(GUEST, devices=GuestDevices(encryption="amd_sev_es"))
    facts = replace(FACTS, guests=(guest,), hypervisor=offering(SEV))
    plain = replace(facts, guests=(replace(guest, devices=GuestDevices()),))
    row = Allocation("guest", "host_amd_sev", "MEM_ENCRYPTION_CONTEXT", 1)

    assert findings(facts, placed(facts), (*rows(), row)) == ()
    assert [one.kind.value for one in findings(plain, placed(facts), (*rows(), row))] == ["wrong-amount"]


def test_vcpus_that_are_to_become_dedicated_are_no_difference_before_they_are() -> None:
    guest = replace(GUEST, devices=GuestDevices(), vcpus=(frozenset({2}), frozenset({3})))
    facts = replace(FACTS, guests=(guest,))
    own = (Allocation("guest", "host", "MEMORY_MB", 64), Allocation("guest", "host", "VCPU", 2))
    dedicated = Policy(cpus=CpuPolicy(shared=frozenset({0, 1}), dedicated=frozenset({2, 3})))

    assert findings(facts, placed(facts, Policy()), own, dedicated) == ()


@pytest.mark.parametrize("policy", [VGPUS, Policy()])
def test_a_guest_without_allocations_is_not_given_a_part_of_what_it_has(policy: Policy) -> None:
    lost = replace(BOTH, guests=(replace(GUEST, tenant=NOVAS),), devices=host().devices)

    (missing, *_) = findings(lost, placed(BOTH), (), policy)

    assert (missing.kind.value, missing.repair, missing.safe) == ("missing", None, False)


ALL_RENAMED = Policy(devices=DevicePolicy(mdevs=(MdevRule(type="a", resource_class="CUSTOM_A"),)))


@pytest.mark.parametrize("policy", [VGPUS, ALL_RENAMED])
def test_a_guest_without_allocations_is_not_given_a_part_while_the_class_of_its_card_has_a_new_name(
    policy: Policy,
) -> None:
    facts = replace(BOTH, guests=(replace(GUEST, tenant=NOVAS),))

    (missing, *_) = findings(facts, placed(BOTH), (), policy)

    assert (missing.kind.value, missing.repair is not None) == ("missing", policy is VGPUS)


def test_a_wrong_amount_of_memory_is_one_also_while_the_class_of_a_card_has_a_new_name() -> None:
    own = (Allocation("guest", "host", "MEMORY_MB", 65), *rows(**ONE)[1:])

    found = findings(BOTH, placed(BOTH), own, ALL_RENAMED)

    assert [(one.resource_class, one.expected, one.actual) for one in found] == [("MEMORY_MB", 64, 65)]


def test_a_guest_is_not_given_its_vcpus_alone_while_the_tree_does_not_have_its_pages() -> None:
    guest = replace(GUEST, devices=GuestDevices(), memory=(GuestMemory(64, frozenset({0})),), tenant=NOVAS)
    numa = Policy(layout="numa")
    whole = placed(FACTS, numa)
    tree = ObservedTree(tuple(seen for seen in whole if seen.name != "host_NUMA0_PAGES_4"))

    (missing, *_) = findings(replace(FACTS, guests=(guest,)), tree, (), numa)

    assert (missing.kind.value, missing.repair) == ("missing", None)
