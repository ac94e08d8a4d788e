"""Random hosts with devices of every kind and with faults, what placement has of them, and what operators want."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from random import Random
from typing import Any

from drivers.by_suffix import BySuffix
from drivers.devices import device_stock, idle_devices, present
from drivers.devices.inventories import DeviceStock, inherit, other_forms
from drivers.devices.odd import away, odd_sentences, set_apart, undecided_slots, undecided_units, withdrawn
from drivers.devices.silence import shown, silent, silent_devices
from drivers.errors import PolicyError
from drivers.facts import (
    Devices,
    DomainCapabilities,
    Guest,
    HostFacts,
    Mdev,
    MdevParent,
    Namespace,
    NetDevice,
    OddDevice,
    OfferedEncryption,
    PciFunction,
    PciIds,
    SevKernel,
    Tenant,
    Versions,
)
from drivers.policy import DevicePolicy, MdevRule
from drivers.rules import parse_rule
from fakes import PC, offering
from hardware import BRIDGE, DISPLAY, NETWORK, NVIDIA, UP, card, gpu, guest_with, host, parent, plain
from reportclient.names import BANDWIDTH
from reportclient.ownership import MANAGED, MARKER
from reportclient.reserve import HELD, KEEP, UNHEALTHY
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

FILE, PMEM = "nvidia/current_vgpu_type", "CUSTOM_PMEM_NAMESPACE_SMALL"
OF_VFS = ("SRIOV_NET_VF", "CUSTOM_NIC", "CUSTOM_PCI_8086_1515")
CLASSES = (*OF_VFS, "CUSTOM_NVIDIA_7", "VGPU", "MEM_ENCRYPTION_CONTEXT", PMEM, "VCPU", *sorted(BANDWIDTH))
NAMES = ["0000:81:00.0", "0000:82:00.0", "0000:05:00.0", "0000:84:00.0", "mtty", "amd_sev", "pci_0000_81_10_0"]
NAMES += ["intel_tdx", "pci_0000_84_00_0", "pci_0000_85_00_0", "pci_0000_85_00_1"]
VF, OF_NVIDIA = {"product_id": "1515"}, {"vendor_id": "10de", "resource_class_attribute": FILE}
ONE_VF, REMOTE = {"address": "0000:81:10.1"}, {"remote_managed": "true"}
RECORDS: tuple[dict[str, Any], ...] = (
    VF,
    VF | {"vendor_id": "8086", "physical_network": "net", "bandwidth": "link"},
    VF | REMOTE,
    VF | REMOTE | {"resource_class": "smart"},
    VF | REMOTE | {"physical_network": "net"},
    VF | {"live_migratable": "true"},
    VF | {"one_time_use": "false"},
    OF_NVIDIA,
    OF_NVIDIA | {"traits": "OWNER_ELSE"},
    ONE_VF | {"resource_class": "one"},
    ONE_VF | {"traits": "fast"},
    {"address": "0000:81:10.0", "resource_class": "two"},
    {"address": "*:81:10.*", "resource_class": "nic"},
    {"address": "0000:81:00.0", "bandwidth": {"egress": 7, "ingress": "link"}},
    {"address": "0000:81:00.0"} | REMOTE,
    {"address": "0000:05:00.0", "physical_network": "net"} | REMOTE,
    {"address": "0000:84:00.0", "physical_network": "-"},
    {"product_id": "1528", "one_time_use": "true"},
    {"product_id": "1533"},
)


class World:
    """A random host with faults, what placement has of it, and what its operator wants."""

    def __init__(self, number: int) -> None:
        random = Random(number)
        self.one, self.any = random.choice, random.randint
        records = random.sample(RECORDS, self.any(0, 3))
        self.policy = DevicePolicy(
            report=self.maybe(0.8),
            rules=tuple(parse_rule(record, number) for number, record in enumerate(records, 1)),
            discover_all=self.maybe(0.4),
            link_bandwidth=self.maybe(0.3),
            mdevs=tuple(map(self.mdev_rule, self.some("ab", 0.4))),
            pmem=dict.fromkeys(self.some(("namespace",), 0.2), PMEM),
            tdx=self.maybe(0.5),
            tdx_guests=self.one((None, 1, 8)),
        )
        self.facts = self.host()
        self.standing = BySuffix(self.tree() if self.maybe(0.8) else None)

    def maybe(self, chance: float) -> bool:
        return self.one(range(100)) < 100 * chance

    def some(self, of: Iterable[Any], chance: float = 0.5) -> list[Any]:
        return [one for one in of if self.maybe(chance)]

    def mdev_rule(self, kind: str) -> MdevRule:
        cards = frozenset(self.some(("0000:84:00.0", "pci_0000_85_00_0", "mtty"), 0.3))
        name, most, _ = self.one(("VGPU", "CUSTOM_A")), self.one((None, 2, 5)), self.one((None, 6))
        return MdevRule(type=kind, addresses=cards, max_instances=most, resource_class=name)

    def host(self) -> HostFacts:
        nics = [one for address in self.some(NAMES[:2]) for one in self.nic(address)]
        bridge, far = plain("0000:07:00.0", ids=PciIds("8086", "1533", BRIDGE)), card("10000:01:00.0", 1)
        nics += self.some((plain(), plain("0000:06:00.0"), bridge, *far), 0.3)
        gpus = self.some((gpu(), gpu("0000:85:00.0", cell=1), gpu("0000:85:00.1", driver=None)), 0.4)
        makers = [self.maker(one) for one in gpus if one.driver] + [self.maker(one) for one in self.some(nics, 0.1)]
        makers += self.some((MdevParent("mtty", None, parent(gpu(), a=2).types),), 0.1)
        mdevs = tuple(Mdev(n + one.name, self.one("ab"), one.name) for one in makers for n in self.some("12", 0.3))
        facts = host(*nics, *gpus, parents=tuple(makers), mdevs=mdevs)
        guests = tuple(self.guest(facts.devices, name) for name in self.some("xyz"))
        ill = self.some((*nics, *gpus), 0.1)
        odd = [OddDevice(str(one.address), self.one("qr"), address=one.address) for one in ill]
        odd += [OddDevice(one.name, "q", card=one.name) for one in self.some(makers, 0.1)]
        sound = tuple(one for one in facts.devices.functions if one not in ill)
        devices = set_apart(set_apart(replace(facts.devices, functions=sound), odd[:1]), odd[1:])
        devices = replace(devices, namespaces=(Namespace("namespace", "/dev/dax0.0"),))
        kernel = SevKernel(*(self.maybe(0.7) for _ in "123")) if self.maybe(0.7) else None
        cpu = replace(facts.cpu, sev=kernel, tdx_guests=self.one((None, 4)))
        versions = Versions(10_000_000 - self.any(0, 1), 8_002_002 - self.one((0, 0, 1, 2002, 2003)))
        kinds = self.some((self.kind("x86_64"), self.kind("x86_64"), self.kind("aarch64")), 0.7)
        return replace(facts, devices=devices, guests=guests, cpu=cpu, hypervisor=offering(*kinds, versions=versions))

    def nic(self, address: str) -> Iterator[PciFunction]:
        down, driver = NetDevice("ens2", "down"), self.one(("ixgbe", "ixgbe", "vfio-pci", None))
        nets = self.one(((UP,), (), (UP, down), (down,), (replace(UP, speed_mbps=40), UP)))
        made: dict[str, Any] = {"driver": driver, "net_devices": nets, "serial_number": self.one((None, "MT1"))}
        pf, *vfs = card(address, self.any(0, 3), self.one(("8086", "10de")), **made)
        kinds = (PciIds("8086", "1515", NETWORK), NVIDIA, NVIDIA, PciIds("10de", "1515", DISPLAY), pf.ids)
        yield from self.some((replace(pf, power_state=self.one(("D0", "D0", "error"))),), 0.9)
        ids = self.one(kinds)
        for vf in self.some(vfs, 0.95):
            net = NetDevice(f"v{vf.address}", "up", carries_host_traffic=self.one((False, False, False, True, None)))
            nets, attributes = tuple(self.some((net,))), tuple(self.some(((FILE, self.one("078")),), 0.6))
            serial, state = self.one((None,) * 9 + ("VF",)), self.one(("D0",) * 9 + ("error",))
            vf = replace(vf, ids=ids, power_state=state, serial_number=serial, attributes=attributes)
            vf = replace(vf, net_devices=nets, vdpa=(f"/dev/{vf.address}",))
            yield replace(vf, pf=None) if self.maybe(0.03) else vf

    def maker(self, one: PciFunction) -> MdevParent:
        return parent(one, **dict.fromkeys(self.some("ab"), self.any(0, 3)))

    def kind(self, arch: str) -> DomainCapabilities:
        sev, es, kinds = self.one((0, 9, 10)), self.one((0, 3, 4)), frozenset(self.some(("sev-snp", "tdx")))
        found = OfferedEncryption(sev_guests=sev, sev_es_guests=es, tdx=self.maybe(0.2), launch_security=kinds)
        return replace(PC, arch=arch, encryption=found)

    def guest(self, devices: Devices, name: str) -> Guest:
        """A guest whose devices another one may have too: nothing here looks at a device's guests alone."""
        has = self.some(devices.functions, 0.25)
        flavor = dict.fromkeys(self.some(OF_VFS), self.one((1, 2, None)))
        return guest_with(
            name,
            self.one((None, Tenant("p", "u", None, None), *[Tenant("p", "u", None, flavor)] * 4)),
            pci=frozenset(one.address for one in has),
            ports=frozenset(one.address for one in self.some(has)),
            netdevs=frozenset(net.name for one in self.some(devices.functions, 0.1) for net in one.net_devices),
            vdpa=frozenset(path for one in self.some(devices.functions, 0.05) for path in one.vdpa),
            mdevs=frozenset(one.uuid for one in self.some(devices.mdevs, 0.3)),
        )

    def tree(self) -> ObservedTree:
        """Stock of devices that are there or not, some of which operators or this agent reserved."""
        children = (self.seen(f"host_{name}", "host") for name in self.some(NAMES, 0.6))
        return ObservedTree((self.seen("host", None), *children))

    def seen(self, name: str, above: str | None) -> ObservedProvider:
        totals = {one: self.any(1, 9) for one in self.some(CLASSES, 0.3)}
        stock = {one: Inventory(total=n, reserved=self.one((0, 0, n, self.any(0, n)))) for one, n in totals.items()}
        marks = self.some((UNHEALTHY, HELD, f"{KEEP}2_{self.one(CLASSES)}"), 0.2)
        traits = frozenset((*marks, *self.some((MANAGED, "OWNER_ELSE"), 0.05), *self.some((MARKER,), 0.9)))
        provider = Provider(name=name, parent=above, inventories=stock, traits=traits)
        return ObservedProvider(uuid=name, generation=1, provider=provider)

    def former(self, devices: Iterable[DeviceStock]) -> BySuffix:
        """A root that had the totals of these devices, and about what they do not show now."""
        totals: Counter[str] = Counter()
        for device in devices:
            totals.update({name: stock.total for name, (stock, _) in device.inventories.items()})
            totals.update(dict.fromkeys(device.untold, self.any(0, 5)))
        stock = {
            one: Inventory(total=n, reserved=self.one((0, n, self.any(0, n)))) for one, n in sorted(totals.items()) if n
        }
        root = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=stock))
        return BySuffix(ObservedTree((root,)))

    def told(self) -> list[str]:
        """Return all that the planner takes from it."""
        policy, standing = self.policy, self.standing
        try:
            mute = silent_devices(self.facts, policy, standing)
            facts = replace(self.facts, devices=set_apart(self.facts.devices, mute)) if mute else self.facts
            idle, devices = idle_devices(facts, policy), device_stock(facts, policy, standing)
        except PolicyError as error:
            return [str(error)]
        here = {name for device in devices for name in device.inventories}
        waiting = {name: (asdict(stock), why.fact) for name, (stock, why) in away(policy, standing, here).items()}
        slots = [sorted(undecided_slots(facts, policy, standing, flat=flat)) for flat in (True, False)]
        forms = [other_forms(devices, in_total=each) for each in (True, False)]
        quiet = silent(facts, policy.mdevs), *reversed(shown(facts, policy))
        odd = undecided_units(facts.devices), odd_sentences(facts, policy), present(facts), str(facts.devices)
        parts = (waiting, withdrawn(policy, standing), slots, forms, quiet, odd)
        below = inherit(devices, standing), inherit(devices, self.former(devices))
        stocks = (asdict(one) for each in (devices, *below) for one in each)
        return [*idle, *(json.dumps(one, default=sorted, sort_keys=True) for one in (*stocks, parts))]
