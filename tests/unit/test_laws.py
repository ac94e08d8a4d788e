"""The second opinion on plans: every wrong plan is found by the laws alone, and a right one is never refused."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agent.connect.choice import Choice, open_driver, settings_for
from agent.service.metrics import Metrics
from agent.service.rounds import result_of
from agent.service.status import ServiceProcess, ServiceStatus
from agent.sync.decide.hardware import Host
from agent.sync.decide.laws import LAWS, Breach, Given, breaches, lawful, sentences
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from agent.sync.run import run_pass
from beds.golden import GoldenHost, differences, golden_hosts
from beds.histories import ModelDriver
from beds.one_host import ROOT as ONE_ROOT
from beds.one_host import OneHost
from drivers.base import Survey
from drivers.facts import CpuMap, Guest, GuestDevices, NumaCell
from drivers.libvirt.shape import EMITTED
from drivers.policy import Policy
from fakes import FACTS
from hardware import at, card, gpu, host, parent
from reportclient.allocations import Allocation, Consumer, Holdings, Move, Slots
from reportclient.errors import Unlawful
from reportclient.ownership import MARKER, Names
from reportclient.plan import (
    Create,
    Delete,
    Operation,
    Plan,
    Rename,
    Reparent,
    Reshape,
    Rewrite,
    SetInventories,
    SetTraits,
)
from reportclient.renaming import child_uuid
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

Stocks = Mapping[str, Inventory]
ROOT = str(UUID(int=1))
NIC, GPU = "0000:81:00.0", "pci_0000_84_00_0"
GUEST, OTHER, POOL = str(UUID(int=11)), str(UUID(int=12)), str(UUID(int=13))
NEUTRON, CYBORG = str(UUID(int=21)), str(UUID(int=22))


def uuid_of(suffix: str) -> str:
    return child_uuid(ROOT, "host", f"host_{suffix}") if suffix else ROOT


def stock(**totals: int) -> dict[str, Inventory]:
    return {name: Inventory(total=total) for name, total in totals.items()}


def seen(suffix: str, inventories: Stocks, *traits: str, uuid: str = "", parent: str = "host") -> ObservedProvider:
    name = f"host_{suffix}" if suffix else "host"
    marks = frozenset(traits or {MARKER})
    aggregates = frozenset() if suffix else frozenset({"an operator's"})
    one = Provider(
        name=name, parent=parent if suffix else None, inventories=inventories, traits=marks, aggregates=aggregates
    )
    return ObservedProvider(uuid=uuid or uuid_of(suffix), generation=1, provider=one)


def former(inventories: Stocks) -> ObservedProvider:
    """The network card, before it gets another name."""
    one = seen(NIC, inventories)
    return replace(one, provider=replace(one.provider, name=f"former_{NIC}"))


CELLS = tuple(NumaCell(id_, 4 << 20, frozenset(range(4 * id_, 4 * id_ + 4))) for id_ in (0, 1))
DEVICES = host(*card(NIC, 2), gpu(), parents=(parent(gpu(), a=4),)).devices
HARDWARE = replace(FACTS, cpu_map=CpuMap(8, frozenset(range(8))), cells=CELLS, devices=DEVICES)
VFS = frozenset(str(one.address) for one in HARDWARE.devices.functions if one.is_vf)
OFFERED = {f"host_{NIC}": VFS, f"host_{GPU}": frozenset({"0000:84:00.0"})}
WHOLE_ROOT = stock(VCPU=8, MEMORY_MB=8192, DISK_GB=100)
TREE = ObservedTree(
    (
        seen("", {**WHOLE_ROOT, **stock(CUSTOM_LICENSE=3)}, MARKER, "HW_CPU_X86_AVX", "CUSTOM_OF_AN_OPERATOR"),
        seen(NIC, stock(SRIOV_NET_VF=2)),
        seen(GPU, stock(VGPU=4)),
        seen("agent", stock(NET_BW_EGR_KILOBIT_PER_SEC=1000), "CUSTOM_OWNER_NEUTRON", "CUSTOM_PHYSNET_A", uuid=NEUTRON),
        seen("fpga", stock(FPGA=1), "OWNER_CYBORG", uuid=CYBORG),
    )
)
HAS = {ROOT: {"VCPU": 2, "MEMORY_MB": 512}, uuid_of(GPU): {"VGPU": 1}, NEUTRON: {"NET_BW_EGR_KILOBIT_PER_SEC": 10}}
CONSUMER = Consumer(uuid=GUEST, generation=5, project="p", user="u", kind="INSTANCE", slots=HAS)
CELL0, CELL1 = uuid_of("NUMA0"), uuid_of("NUMA1")
MOVE = Move(
    consumer=GUEST,
    from_provider="host",
    to_provider="host_NUMA0",
    moved_resources={"VCPU": 2, "MEMORY_MB": 512},
    because="",
)
GETS = {CELL0: HAS[ROOT], **{uuid: HAS[uuid] for uuid in HAS if uuid != ROOT}}
REWRITE = Rewrite(consumer=GUEST, generation=5, project="p", user="u", kind="INSTANCE", before=HAS, after=GETS)
LEFT, HALF = stock(DISK_GB=100, CUSTOM_LICENSE=3), stock(VCPU=4, MEMORY_MB=4096)


def rows(tree: ObservedTree, *consumers: Consumer) -> dict[str, tuple[Allocation, ...]]:
    return {
        one.uuid: tuple(
            Allocation(consumer.uuid, one.name, name, amount)
            for consumer in consumers
            for name, amount in consumer.slots.get(one.uuid, {}).items()
        )
        for one in tree
    }


def given(tree: ObservedTree = TREE, *, consumers: tuple[Consumer, ...] = (CONSUMER,), **changes: Any) -> Given:
    told = Given(
        observed=tree,
        emitted=EMITTED,
        rows=rows(tree, *consumers),
        consumers={one.uuid: one for one in consumers},
        host=Host(facts=HARDWARE, offered=OFFERED),
    )
    return replace(told, **changes)


def cell(number: int) -> tuple[Operation, ...]:
    name, uuid, traits = f"host_NUMA{number}", uuid_of(f"NUMA{number}"), frozenset({MARKER, "HW_NUMA_ROOT"})
    return Create(uuid, name, ROOT), SetTraits(uuid, name, traits, traits, frozenset())


def put(suffix: str, inventories: Stocks, uuid: str = "") -> SetInventories:
    return SetInventories(uuid or uuid_of(suffix), f"host_{suffix}" if suffix else "host", inventories)


def to_cells(
    *more: SetInventories, root: Stocks = LEFT, rewrite: Rewrite | None = REWRITE, each: Stocks = HALF
) -> Plan:
    """The conversion of the tree to cells: right, as it is."""
    stocks = (put("", root), put("NUMA0", each), put("NUMA1", each), *more)
    reshape = Reshape(stocks, (rewrite,) if rewrite else ())
    return Plan((*cell(0), *cell(1), reshape), (MOVE,))


def write(*steps: Operation) -> Plan:
    return Plan(steps)


def gets(after: Slots, before: Slots = HAS, each: Stocks = HALF) -> Plan:
    return to_cells(rewrite=replace(REWRITE, before=before, after=after), each=each)


def pinned(*cpus: int) -> Host:
    """The host, with CPUs for pinned guests, to some of which a running one is pinned."""
    guest = Guest(uuid=OTHER, state="running", vcpus=tuple(frozenset({cpu}) for cpu in cpus))
    return Host(facts=replace(HARDWARE, guests=(guest,)), dedicated=frozenset({2, 3, 6, 7}), offered=OFFERED)


def exchanged(*cpus: int) -> Host:
    """The host, where other CPUs than at the last pass are for pinned guests, and as many."""
    return replace(pinned(*cpus), formerly=frozenset({0, 1, 4, 5}))


def has_pci(address: str, state: str = "running") -> Host:
    guest = Guest(uuid=OTHER, state=state, devices=GuestDevices(pci=frozenset({at(address)})))
    whole = {f"host_{NIC}": frozenset({NIC})}
    return Host(facts=replace(HARDWARE, guests=(guest,)), offered=OFFERED | whole)


def traits_of(suffix: str, *, plus: frozenset[str] = frozenset(), less: frozenset[str] = frozenset()) -> SetTraits:
    one = TREE.by_uuid[{"agent": NEUTRON, "fpga": CYBORG}.get(suffix) or uuid_of(suffix)]
    return SetTraits(one.uuid, one.name, (one.provider.traits | plus) - less, plus, less)


def as_device(*inventories: tuple[str, Stocks], offered: Mapping[str, frozenset[str]]) -> tuple[Plan, Given]:
    """A plan that writes the stock of devices at once, of which each provider offers these functions."""
    reshape = Reshape(tuple(put(suffix, each) for suffix, each in inventories))
    names = [suffix for suffix, _ in inventories if uuid_of(suffix) not in TREE.by_uuid]
    made = tuple(Create(uuid_of(suffix), f"host_{suffix}", ROOT) for suffix in names)
    told = {f"host_{suffix}": each for suffix, each in offered.items()}
    return Plan((*made, reshape)), given(consumers=(), host=Host(facts=HARDWARE, offered=told))


FREE = given(consumers=())
DELETE_GPU = Delete(uuid_of(GPU), f"host_{GPU}")
LINK = "NET_BW_EGR_KILOBIT_PER_SEC"
HAS_PCPU, GETS_PCPU = {ROOT: {"PCPU": 2, "MEMORY_MB": 512}}, {CELL0: {"PCPU": 2, "MEMORY_MB": 512}}
HAS_DISK = {**HAS, ROOT: {**HAS[ROOT], "DISK_GB": 5}}
OTHERS = replace(CONSUMER, uuid=OTHER, slots={ROOT: {"VCPU": 1}})
RENAMED = Plan(
    (
        *cell(0),
        *cell(1),
        Reshape(
            (
                put("", stock(CUSTOM_LICENSE=3)),
                *(put(f"NUMA{number}", stock(VCPU=2, PCPU=2, MEMORY_MB=4096)) for number in (0, 1)),
                put(GPU, stock(CUSTOM_V=4)),
            ),
            (
                replace(REWRITE, before=HAS_DISK, after={
                    **GETS_PCPU, uuid_of(GPU): {"CUSTOM_V": 1}, NEUTRON: HAS[NEUTRON], POOL: {"DISK_GB": 5},
                }),
                replace(REWRITE, consumer=OTHER, before=OTHERS.slots, after={CELL1: {"VCPU": 1}}),
            ),
        ),
    ),
    (
        replace(MOVE, to_resources=GETS_PCPU[CELL0]),
        replace(MOVE, from_provider=f"host_{GPU}", moved_resources={"VGPU": 1}, to_resources={"CUSTOM_V": 1}),
        replace(MOVE, to_provider="pool", moved_resources={"DISK_GB": 5}),
        replace(MOVE, consumer=OTHER, moved_resources={"VCPU": 1}),
    ),
)  # fmt: skip
SPLIT = stock(VCPU=4, PCPU=4, DISK_GB=100, MEMORY_MB=8192, CUSTOM_LICENSE=3)
RIGHT: dict[str, tuple[Plan, Given]] = {
    "nothing to do": (Plan(), given()),
    "a conversion": (to_cells(), given()),
    "guests that exceed what there is from before": (
        write(traits_of("", plus=frozenset({"HW_CPU_X86_AVX2"}))),
        given(consumers=(replace(CONSUMER, slots={ROOT: {"VCPU": 99}}),))),
    "a smaller root that a person forces": (
        write(put("", {**LEFT, **stock(VCPU=1, MEMORY_MB=8192)})), given(forced=True)),
    "PCPU for CPUs that nobody has": (write(put("", SPLIT)), given(host=pinned())),
    "as many other dedicated CPUs, of which a guest has some with allocations": (
        write(traits_of(NIC, plus=frozenset({"HW_CPU_X86_AVX2"}))),
        given(
            ObservedTree((seen("", {**LEFT, **SPLIT}), *TREE.providers[1:])),
            consumers=(replace(CONSUMER, slots={ROOT: {"PCPU": 2}}),),
            host=exchanged(2, 3),
            emitted=Names(),
        )),
    "PCPU whose CPUs guests have, with allocations": (
        write(put("", SPLIT)),
        given(
            TREE,
            consumers=(replace(CONSUMER, slots={ROOT: {"PCPU": 2}}),),
            host=pinned(2, 3),
            observed=ObservedTree((seen("", {**LEFT, **stock(VCPU=8, PCPU=2, MEMORY_MB=8192)}), *TREE.providers[1:])),
        )),
    "PCPU of CPUs to which a guest that is off is pinned": (
        write(put("", SPLIT)), given(host=replace(pinned(2, 3), facts=HARDWARE))),
    "PCPU of a host that is named as a cell": (
        write(put("NUMA0", {**LEFT, **SPLIT}, ROOT)),
        given(ObservedTree((replace(seen("NUMA0", WHOLE_ROOT), uuid=ROOT, provider=replace(
            seen("NUMA0", {**WHOLE_ROOT, **LEFT}).provider, parent=None)),)), consumers=(), host=pinned())),
    "PCPU of a cell, where those of another cell that guests have were not read": (
        write(put("NUMA1", stock(PCPU=2))),
        given(
            ObservedTree((seen("", LEFT), seen("NUMA0", stock(PCPU=2)), seen("NUMA1", stock(VCPU=4)))),
            rows={CELL1: ()},
            host=pinned(2, 3),
        )),
    "a host that is new": (
        write(
            Create(ROOT, "host", None),
            SetTraits(ROOT, "host", frozenset({MARKER}), frozenset({MARKER}), frozenset()),
            put("", stock(VCPU=4, PCPU=4)),
        ), given(ObservedTree(), consumers=(), host=pinned(2, 3))),
    "a host whose cells libvirt does not list": (
        write(put("", {**WHOLE_ROOT, **stock(CUSTOM_LICENSE=3, MEMORY_MB=8193)})),
        given(host=Host(facts=replace(HARDWARE, cells=(), whole_memory_mib=8193)))),
    "guests' memory in files": (
        write(put("", {**WHOLE_ROOT, **stock(CUSTOM_LICENSE=3, MEMORY_MB=99999)})),
        given(host=Host(facts=HARDWARE, file_backed_mib=99999))),
    "a root that was doubled by nova": (
        write(put("", LEFT)),
        given(ObservedTree((*TREE.providers, seen("NUMA0", stock(VCPU=8, MEMORY_MB=8192)))), consumers=())),
    "other VFs of a card whose first is divided": as_device(
        (NIC, stock(SRIOV_NET_VF=1)),
        ("pci_0000_81_10_0", stock(VGPU=1)),
        offered={NIC: frozenset({"0000:81:10.1"}), "pci_0000_81_10_0": frozenset({"0000:81:10.0"})},
    ),
    "a card that is offered in another form, all at once": (
        write(Create(uuid_of("pci_0000_81_00_0"), "host_pci_0000_81_00_0", ROOT),
              Reshape((put(NIC, {}), put("pci_0000_81_00_0", stock(VGPU=2)))),
              Delete(uuid_of(NIC), f"host_{NIC}")), FREE),
    "what an operator's file puts on another service's provider": (
        write(traits_of("fpga", plus=frozenset({"CUSTOM_FAST"})), put("fpga", stock(FPGA=1, CUSTOM_X=4), CYBORG)),
        given(files={"host_fpga": Names(frozenset({"CUSTOM_X"}), frozenset({"CUSTOM_FAST"}))})),
    "units that get other names, and disk that goes to shared storage, beside a guest that only moves": (
        RENAMED, given(consumers=(replace(CONSUMER, slots=HAS_DISK), OTHERS), pools=frozenset({POOL}), host=pinned())),
    "fewer PCPU on offer than idle CPUs, as the others are reserved": (
        write(put("", {**SPLIT, "PCPU": Inventory(total=4, reserved=2)})),
        given(ObservedTree((seen("", {**SPLIT, **stock(PCPU=2)}),)), consumers=(), host=pinned(2, 3))),
    "PCPU all in use, where no CPU is idle": (
        gets(GETS_PCPU, before=HAS_PCPU, each=stock(VCPU=2, PCPU=2, MEMORY_MB=4096)),
        given(ObservedTree((seen("", {**SPLIT, **stock(PCPU=2)}), *TREE.providers[1:])),
              consumers=(replace(CONSUMER, slots=HAS_PCPU),), host=pinned(2, 3))),
    "PCPU of a tree that gets cells, as many too many as before": (
        replace(to_cells(each=stock(VCPU=2, PCPU=2, MEMORY_MB=4096), rewrite=None), moves=()),
        given(ObservedTree((seen("", SPLIT), *TREE.providers[1:])), consumers=(), host=pinned(2, 3))),
    "PCPU of a host that had no CPUs on offer": (
        write(put("", SPLIT)), given(ObservedTree((seen("", LEFT),)), consumers=(), host=pinned(2, 3))),
    "a device in use that is reserved": (write(put(GPU, {"VGPU": Inventory(total=4, reserved=4)})), given()),
    "less of a class whose use placement itself guards": (write(put(NIC, stock(SRIOV_NET_VF=1))), given(rows=None)),
    "a CPU without a cell on the root, and a card with bandwidth and with what a file adds": (
        replace(to_cells(put("NUMA1", stock(VCPU=3)), put(NIC, stock(SRIOV_NET_VF=2, CUSTOM_F=9, **{LINK: 1000})),
                         root={**LEFT, **stock(VCPU=1)}, rewrite=None), moves=()),
        given(files={f"host_{NIC}": Names(frozenset({"CUSTOM_F"}))}, consumers=())),
    "a card that is reserved whole, and in another form on offer": as_device(
        (NIC, {"SRIOV_NET_VF": Inventory(total=2, reserved=2)}),
        ("pci_0000_81_00_0", stock(CUSTOM_PF=1)),
        offered={NIC: frozenset({NIC}), "pci_0000_81_00_0": frozenset({NIC})},
    ),
    "devices that go from a card to a total on the root, of a class that Cyborg has, too": (
        write(Reshape((put("", {**WHOLE_ROOT, **stock(VGPU=4, FPGA=1, CUSTOM_LICENSE=3)}), put(GPU, {}))), DELETE_GPU),
        given(consumers=(), reported={"host": Names(frozenset({"FPGA"}))})),
    "a provider of vGPUs of an older nova, which put nothing on it, goes": (
        write(Reshape((SetInventories(OTHER, f"host_{GPU}", {}),)), Delete(OTHER, f"host_{GPU}")),
        given(ObservedTree((seen("", WHOLE_ROOT), ObservedProvider(uuid=OTHER, generation=1, provider=Provider(
            name=f"host_{GPU}", parent="host", inventories=stock(VGPU=4))))), consumers=())),
    "more of a class that stood twice before, on a provider that has the name of a total's class": (
        write(put("x", stock(CUSTOM_B=5, CUSTOM_C=1))),
        given(
            ObservedTree((seen("", stock(CUSTOM_B=2)), seen("x", stock(CUSTOM_B=2)), seen(GPU, stock(VGPU=4)))),
            consumers=(),
            host=Host(facts=HARDWARE, offered=OFFERED, in_total={GPU: frozenset({"CUSTOM_C"})}),
        )),
    "a provider of any uuid that the plan itself makes, fills, moves and deletes": (
        write(Create(CYBORG, "host_x", ROOT), put("x", stock(FPGA=4), CYBORG), put("x", stock(FPGA=2), CYBORG),
              Create(OTHER, "host_y", ROOT), Reparent(CYBORG, "host_x", OTHER, "host_y", "host"),
              Delete(CYBORG, "host_x")), given(ObservedTree(TREE.providers[:1]), consumers=())),
    "a renamed host, and a provider without marks that gets the name of its uuid": (
        write(Rename(ROOT, "node", "host"), Rename(uuid_of("b"), "node_b", "host_a")),
        given(ObservedTree((seen("", {}), seen("a", stock(CUSTOM_X=1), "CUSTOM_T", uuid=uuid_of("b")))))),
    "a card that has its new name before the other card gives it functions": (
        write(Rename(uuid_of(NIC), f"host_{NIC}", f"former_{NIC}"), Reshape((put(GPU, {}),))),
        given(
            ObservedTree((seen("", {}), former(stock(SRIOV_NET_VF=2)), TREE.by_uuid[uuid_of(GPU)])),
            consumers=(),
            host=Host(facts=HARDWARE, offered={f"host_{NIC}": VFS | {"0000:84:00.0"}}),
        )),
    "a host that ends": (
        write(Reshape(tuple(SetInventories(one.uuid, one.name, {}) for one in TREE.providers[:3])),
              *(Delete(one.uuid, one.name) for one in reversed(TREE.providers[:3]))),
        given(ObservedTree(TREE.providers[:3]), consumers=(), ends=True,
              reported={"host": Names(frozenset({"CUSTOM_LICENSE"}))})),
}  # fmt: skip


VF_IN_USE = replace(
    HARDWARE, guests=(Guest(uuid=GUEST, state="running", devices=GuestDevices(pci=frozenset({at("0000:81:10.0")}))),)
)
TO_BE_WHOLE = Host(facts=VF_IN_USE, offered={**OFFERED, f"host_{NIC}": frozenset({NIC})})
EGRESS = "NET_BW_EGR_KILOBIT_PER_SEC"


def of_card(vfs: int | None = None, whole: int | None = None, bandwidth: int | None = None) -> Stocks:
    """The card's stock, by how much of each class is reserved; None: it has no such class."""
    totals = {"SRIOV_NET_VF": (2, vfs), "CUSTOM_WHOLE": (1, whole), EGRESS: (1000, bandwidth)}
    return {
        name: Inventory(total=total, reserved=reserved)
        for name, (total, reserved) in totals.items()
        if reserved is not None
    }


@pytest.mark.parametrize(
    ("stands", "after", "lawful"),
    [
        pytest.param(of_card(vfs=0), of_card(vfs=2), True, id="reserves all"),
        pytest.param(of_card(vfs=0), of_card(vfs=1), True, id="reserves a part"),
        pytest.param(of_card(vfs=0, bandwidth=0), of_card(vfs=0, bandwidth=1000), True, id="reserves bandwidth alone"),
        pytest.param(of_card(vfs=1), of_card(vfs=0), False, id="gives back"),
        pytest.param(of_card(vfs=0), of_card(whole=0), False, id="the whole for its parts"),
        pytest.param(of_card(vfs=0), of_card(vfs=1, whole=0), False, id="the whole beside its parts"),
        pytest.param(of_card(vfs=1, whole=1), of_card(vfs=2, whole=0), False, id="gives back the whole for its parts"),
    ],
)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "with another card"])
def test_what_only_reserves_may_leave_what_is_too_much_and_put_nothing_more_on_offer(
    stands: Stocks, after: Stocks, *, lawful: bool, together: bool
) -> None:
    tree = ObservedTree((seen("", WHOLE_ROOT), seen(NIC, stands), seen(GPU, stock(VGPU=4))))
    gpu_reserved = put(GPU, {"VGPU": Inventory(total=4, reserved=4)})
    write = Reshape((put(NIC, after), gpu_reserved)) if together else put(NIC, after)

    found = breaches(Plan((write,)), given(tree, consumers=(), host=TO_BE_WHOLE, reserves=True))

    assert {one.law for one in found} <= {"twice"}
    assert (not found) == lawful, found


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_a_right_plan_breaks_no_law(case: tuple[Plan, Given]) -> None:
    assert breaches(*case) == ()
    assert lawful(*case) is case[0]


UNREAD = {uuid: found for uuid, found in given().rows.items() if uuid != ROOT}  # type: ignore[union-attr]
SMALLER = stock(VCPU=2, MEMORY_MB=4096)
FULL = Consumer(uuid=GUEST, generation=5, project="p", user="u", kind=None, slots={ROOT: {"VCPU": 5}})
ACROSS = replace(MOVE, to_resources={"VCPU": 2, "VGPU": 512})
TO_LINK = replace(MOVE, from_provider=f"host_{GPU}", moved_resources={"VGPU": 1}, to_resources={LINK: 1})
WRONG: dict[str, tuple[str, Plan, Given]] = {
    # 1. Rows of consumers that are lost, invented or renamed
    "a row elsewhere is forgotten": ("consumers", gets({uuid: had for uuid, had in GETS.items() if uuid != NEUTRON}),
        given()),
    "an amount grows": ("consumers", gets({**GETS, CELL0: {"VCPU": 3, "MEMORY_MB": 512}}), given()),
    "a class gets another name that no move says": ("consumers", gets({**GETS, CELL0: {"PCPU": 2, "MEMORY_MB": 512}}),
        given(host=None)),
    "memory becomes vGPUs": ("consumers",
        replace(gets({**GETS, CELL0: {"VCPU": 2}, uuid_of(GPU): {"VGPU": 513}}), moves=(ACROSS,)), given()),
    "a class comes that no move says": ("consumers", gets({**GETS, CELL1: {"DISK_GB": 1}}), given()),
    "a move says another name than is written": ("consumers",
        replace(to_cells(), moves=(replace(MOVE, to_resources=HAS_PCPU[ROOT]),)), given()),
    "a consumer is written twice": ("consumers",
        Plan((*cell(0), Reshape((put("", LEFT), put("NUMA0", HALF)), (REWRITE, REWRITE))), (MOVE,)), given()),
    "vGPUs become bandwidth": ("consumers",
        replace(gets({CELL0: HAS[ROOT], NEUTRON: {LINK: 11}}), moves=(MOVE, TO_LINK)), given()),
    "a consumer that is to move is not written": ("consumers", to_cells(rewrite=None), FREE),
    # 2. Consumers that are written otherwise than they were read
    "a consumer has an older generation": ("consumers", to_cells(rewrite=replace(REWRITE, generation=4)), given()),
    "a consumer gets another project": ("consumers", to_cells(rewrite=replace(REWRITE, project="q")), given()),
    "a consumer was not read": ("consumers", to_cells(), replace(given(), consumers={})),
    "a row that was read is not known any more": ("consumers",
        to_cells(rewrite=replace(REWRITE, before={ROOT: HAS[ROOT]}, after={CELL0: HAS[ROOT]})), given()),
    # 3. Use beyond what there is
    "a class that is used is removed": ("capacity", write(put(GPU, {})), given()),
    "a class that is used is removed, by force": ("capacity", write(put(GPU, {})), given(forced=True)),
    "a class shrinks below its use": ("capacity", write(put("", {**LEFT, **SMALLER})), given(consumers=(FULL,))),
    "a class of which too much is used shrinks further": ("capacity", write(put("", {**LEFT, **stock(VCPU=2)})),
        given(ObservedTree((seen("", {**LEFT, **stock(VCPU=4)}),)), consumers=(FULL,))),
    "CPUs are reserved that are in use": ("capacity", write(put("", {**LEFT, "VCPU": Inventory(total=8, reserved=4)})),
        given(consumers=(FULL,))),
    "guests move to where they do not fit": ("capacity", to_cells(each=stock(VCPU=1, MEMORY_MB=4096)), given()),
    "stock shrinks whose use was not read": ("capacity", write(put("", {**LEFT, **SMALLER})), given(rows=UNREAD)),
    "a provider with guests is deleted": ("capacity", write(Delete(uuid_of(GPU), f"host_{GPU}")), given()),
    # 4. What is another's: the rest is in test_whose_writes.py
    "nova's root is written beside nova": ("foreign",
        write(put("", {**WHOLE_ROOT, **stock(CUSTOM_LICENSE=3, CUSTOM_MORE=1)})), given(foreign=frozenset({ROOT}))),
    "the root is deleted": ("foreign", write(Delete(ROOT, "host")),
        given(ObservedTree(TREE.providers[:1]), consumers=())),
    "a root that lost our mark is deleted": ("foreign",
        write(traits_of("", less=frozenset({MARKER})), Delete(ROOT, "host")),
        given(ObservedTree(TREE.providers[:1]), consumers=(), ends=True)),
    # 5. Allocations that are not ours to write
    "Neutron's row moves to our provider": ("foreign",
        replace(gets({CELL0: {**HAS[ROOT], "NET_BW_EGR_KILOBIT_PER_SEC": 10}, uuid_of(GPU): {"VGPU": 1}})), given()),
    "a row of another host goes": ("foreign", gets({**GETS, str(UUID(int=99)): {"VCPU": 1}}), given()),
    # 6. CPUs and memory on offer twice
    "nova's root stays beside the cells": ("twice", to_cells(root={**WHOLE_ROOT, **LEFT}, rewrite=None), FREE),
    "CPUs count in each cell that lists them": ("twice", to_cells(each=stock(VCPU=8, MEMORY_MB=4096)), given()),
    "PCPU come beside all VCPU": ("twice", write(put("", {**WHOLE_ROOT, **stock(PCPU=4, CUSTOM_LICENSE=3)})),
        given(host=pinned())),
    "memory counts twice": ("twice", to_cells(each=stock(VCPU=4, MEMORY_MB=8192)), given()),
    # 7. CPUs and memory of another cell, or of another kind
    "floating guests get CPUs that are dedicated": ("twice", write(put("", {**WHOLE_ROOT, **stock(CUSTOM_LICENSE=3)})),
        given(ObservedTree((seen("", {**LEFT, **stock(VCPU=4)}), *TREE.providers[1:])), host=pinned())),
    "a cell has CPUs of another one": ("twice", to_cells(put("NUMA1", stock(VCPU=3)), each=stock(VCPU=5), rewrite=None),
        FREE),
    "a cell has memory of another one": ("twice", to_cells(each=stock(VCPU=4, MEMORY_MB=4098), rewrite=None), FREE),
    # 8. Devices on offer twice, also for a moment
    "VGPU are on the root and on their card": ("twice", write(put("", {**WHOLE_ROOT, **LEFT, **stock(VGPU=4)})),
        given()),
    "a PF is offered whole, and its VFs too": (
        "twice",
        *as_device((NIC, stock(CUSTOM_PF=1, SRIOV_NET_VF=1)), offered={NIC: frozenset({NIC, "0000:81:10.0"})})),
    "a card is offered whole and divided": (
        "twice",
        *as_device(
            ("0000:84:00.0", stock(CUSTOM_GPU=1)),
            offered={"0000:84:00.0": frozenset({"0000:84:00.0"}), GPU: frozenset({"0000:84:00.0"})},
        )),
    "a total counts cards that have their own providers, by another name": ("twice",
        write(put("", {**WHOLE_ROOT, **LEFT, **stock(CUSTOM_B=4)})),
        given(host=Host(facts=HARDWARE, offered=OFFERED, in_total={GPU: frozenset({"CUSTOM_B"})}),
              reported={"host": Names(frozenset({"CUSTOM_B"}))})),
    "VGPU of a new host are on the root and on their card": ("twice",
        write(Create(ROOT, "host", None), put("", stock(VGPU=4)), Create(uuid_of(GPU), f"host_{GPU}", ROOT),
              put(GPU, stock(VGPU=4))), given(ObservedTree(), consumers=(), host=None)),
    "a card that offered too much offers as much of fewer units": ("twice",
        write(Rename(uuid_of(NIC), f"host_{NIC}", f"former_{NIC}"), put(NIC, stock(SRIOV_NET_VF=3))),
        given(
            ObservedTree((seen("", {}), former(stock(SRIOV_NET_VF=3)))),
            consumers=(),
            host=Host(facts=HARDWARE, offered={f"host_{NIC}": frozenset({"0000:81:10.0"})}),
        )),
    "a card has more vGPUs than it can make": ("twice", write(put(GPU, stock(VGPU=5))), given()),
    "a PF is free while a guest has its VF": ("twice", write(put(NIC, stock(CUSTOM_PF=1))),
        given(host=has_pci("0000:81:10.0"))),
    "a card is free in its new form before its old one goes": ("twice",
        write(Create(uuid_of("0000:84:00.0"), "host_0000:84:00.0", ROOT),
              Reshape((put("0000:84:00.0", stock(CUSTOM_GPU=1)),)), put(GPU, {}), DELETE_GPU), FREE),
    "cells are stocked before the root gives": ("twice",
        write(*cell(0), put("NUMA0", stock(VCPU=4)), put("", {**LEFT, **stock(VCPU=4, MEMORY_MB=8192)})), given()),
    # 9. Steps before their time
    "a child is made before its parent": ("order", write(Create(uuid_of("x"), "host_x", CELL0), *cell(0)), given()),
    "stock is written before its provider is made": ("order", write(put("NUMA0", stock(VCPU=4)), *cell(0)), given()),
    "a provider goes before what is below it": ("order",
        write(Delete(uuid_of(GPU), f"host_{GPU}"), Delete(uuid_of("y"), "host_y")),
        given(ObservedTree((*TREE.providers, seen("y", {}, parent=f"host_{GPU}"))), consumers=())),
    "a provider comes below itself": ("order",
        write(Reparent(uuid_of(GPU), f"host_{GPU}", uuid_of("y"), "host_y", "host")),
        given(ObservedTree((*TREE.providers, seen("y", {}, parent=f"host_{GPU}"))), consumers=())),
    "a provider comes below one that does not stand": ("order",
        write(Reparent(uuid_of(GPU), f"host_{GPU}", CELL0, "host_NUMA0", "host")), given()),
    "a provider is made with the name of another": ("order", write(Create(CELL0, f"host_{GPU}", ROOT)), given()),
    "a provider is made with the uuid of another": ("order", write(Create(NEUTRON, "host_x", ROOT)), given()),
    "a second root is made": ("order", write(Create(str(UUID(int=2)), "other", None)), given()),
    "a provider is made twice": ("order", write(*cell(0), *cell(0)), given()),
    # 10. Dedicated CPUs that guests have
    "PCPU come on offer whose CPUs a guest without allocations has": ("pinned", write(put("", SPLIT)),
        given(host=pinned(2, 3))),
    "dedicated CPUs are given out twice by a ratio": ("pinned",
        write(put("", {**SPLIT, "PCPU": Inventory(total=4, allocation_ratio=2.0)})),
        given(ObservedTree((seen("", SPLIT), *TREE.providers[1:])), host=pinned())),
    "PCPU come on offer in a cell whose CPUs a guest has": ("pinned",
        to_cells(each=stock(VCPU=2, PCPU=2, MEMORY_MB=4096)), given(host=pinned(6))),
    "as many other dedicated CPUs come, which a guest without allocations has": ("pinned",
        write(traits_of(NIC, plus=frozenset({"HW_CPU_X86_AVX2"}))),
        given(ObservedTree((seen("", {**LEFT, **SPLIT}), *TREE.providers[1:])), consumers=(), host=exchanged(2, 3))),
    "more dedicated CPUs come than guests have allocations for": ("pinned", write(put("", SPLIT)),
        given(
            ObservedTree((seen("", {**LEFT, **stock(VCPU=6, PCPU=2, MEMORY_MB=8192)}), *TREE.providers[1:])),
            consumers=(replace(CONSUMER, slots={ROOT: {"PCPU": 2}}),),
            host=pinned(2, 3, 6, 7),
        )),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_wrong_plan_is_found_by_the_laws_alone(case: tuple[str, Plan, Given]) -> None:
    law, plan, told = case

    assert law in {one.law for one in breaches(plan, told)}
    with pytest.raises(Unlawful, match=f"breaks the law of .*{law}") as raised:
        lawful(plan, told)
    assert law in raised.value.laws


def test_the_laws_say_what_is_wrong_with_each_wrong_plan(request: pytest.FixtureRequest) -> None:
    found = []
    for name, (_, plan, told) in WRONG.items():
        found += [f"{name}:", *(f"  {one.law}: {one.text}" for one in breaches(plan, told))]

    expected = Path(__file__).parents[1] / "laws" / "plans.txt"
    assert not differences("\n".join([*found, ""]), expected, update=request.config.getoption("--update-golden"))


def test_at_least_thirty_wrong_plans_break_each_of_the_laws() -> None:
    assert len(WRONG) >= 30
    assert {law for law, _, _ in WRONG.values()} == LAWS.keys()


def claim_units(one: OneHost, guest: str) -> None:
    """Give a guest what it really has, as far as that has a place of its own."""
    survey = one.node.driver.survey(one.facts.hostname)
    _, holdings = one.node.driver.shape(survey, one.policy, one.tree())
    slots: dict[str, dict[str, int]] = {}
    for unit in holdings.units:
        if unit.consumer == guest:
            slots.setdefault(unit.provider.removeprefix(one.facts.hostname).removeprefix("_"), {})[
                unit.resource_class
            ] = unit.amount
    if slots:
        one.claim(slots, guest)


class Doubling(ModelDriver):
    """A driver with a fault: it counts each CPU twice."""

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        tree, holdings = super().shape(survey, policy, observed)
        cpus = tree.root.inventories["VCPU"]
        twice = replace(cpus, total=2 * cpus.total, max_unit=2 * cpus.total)
        root = replace(tree.root, inventories={**tree.root.inventories, "VCPU": twice})
        return ProviderTree((root, *tree.providers[1:])), holdings


def test_a_pass_whose_plan_breaks_a_law_writes_nothing_and_is_counted(tmp_path: Path) -> None:
    one = OneHost(tmp_path, HARDWARE, Policy())
    faulty = replace(one.node, driver=Doubling(HARDWARE, ONE_ROOT))

    done = run_pass(faulty, Wishes(force=True, reshape=True))

    assert (done.status, done.broken, one.sender.writes) == (Status.UNSAFE, ("twice",), 0)
    assert done.notes[0] == (
        "the plan breaks the law of twice: 16 CPUs are on offer on all providers together, and this host has 8"
    )
    assert "report it with the case" in done.notes[1]
    metrics = Metrics(lambda: ServiceStatus(process=ServiceProcess("1", 1, 0.0)))
    metrics.passed(result_of([(done, None)], {}), 1.0)
    name = "compute_node_agent_broken_laws_total"
    assert metrics.registry.get_sample_value(name, {"law": "twice"}) == 1
    assert metrics.registry.get_sample_value(name, {"law": "order"}) == 0


def test_a_refusal_names_a_few_breaches_and_counts_the_others() -> None:
    told = [sentences([Breach("order", f"step {number}") for number in range(count)]) for count in (4, 5)]

    assert told[1][3:5] == ("the plan breaks the law of order: step 3", "it breaks laws at 1 more places")
    assert told[0] == (*told[1][:4], told[1][5])
    assert sentences(()) == ()


@pytest.mark.parametrize("golden", tuple(golden_hosts()), ids=lambda golden: golden.folder.name)
def test_no_law_refuses_a_recorded_host_in_any_layout_or_conversion(golden: GoldenHost, tmp_path: Path) -> None:
    choice = Choice(config_files=(golden.config,), host=golden.archive)
    settings = settings_for(choice)
    with open_driver(settings, choice) as driver:
        one = OneHost(tmp_path, driver.survey(driver.name()).facts, settings.policy)

    for layout in (*golden.layouts, *reversed(golden.layouts)):
        done = one.reshape(layout)
        assert not done.broken, done.notes
        assert done.status in (Status.CHANGED, Status.UNCHANGED), done.notes
        for guest in one.facts.guests:
            if layout == golden.layouts[0] and not one.held(guest.uuid):
                claim_units(one, guest.uuid)
