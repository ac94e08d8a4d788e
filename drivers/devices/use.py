"""Find the PCI functions that no guest should get now: unhealthy, or in use in another form or by other means."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from drivers.devices.match import Match
from drivers.facts import Guest, HostFacts, PciFunction
from drivers.pci import PciAddress

DOWN = frozenset({"down", "lowerlayerdown", "notpresent", "testing"})
"""
States in which an interface can transmit nothing (operstate, the kernel's networking/operstates.rst).

``testing`` ends by itself, after the driver's self-test or a test of the cable. ``dormant`` is no such state: L1 is up.
An interface that is off by administration is down too. Whether the VFs of such a PF have a link depends on its driver,
and on the link state that ip-link(8) sets for a VF; nothing in sysfs tells it, so they are not offered.
"""
FOR_GUESTS = "vfio-pci"  # driver of a device that is bound for guests (the kernel's driver-api/vfio.rst)
UIO = frozenset({"igb_uio", "uio_pci_generic"})  # drivers that give a device to a program of the host, as of DPDK


@dataclass(frozen=True, slots=True)
class Use:
    """What guests, running or not, have of the host's functions."""

    held: frozenset[PciAddress]  # by <hostdev> and <interface type='hostdev'>: their drivers are away from the host
    given: frozenset[PciAddress]  # those, and the functions of interfaces that guests have whole
    shared: frozenset[PciAddress]  # functions of interfaces that guests have by macvtap, but not whole
    divided: frozenset[PciAddress | None]  # mediated devices exist on them, offered or not
    unbooked: frozenset[PciAddress]  # guests of nova have them through ports, for which nova allocates nothing
    running: frozenset[PciAddress]  # those of ``held`` that guests have which run
    unseen: frozenset[PciAddress]  # those of ``running`` that the host does not list, odd or not


def use_of(facts: HostFacts, matched: Iterable[Match]) -> Use:
    """Return what guests have; ``matched`` are all functions that are offered."""
    held = frozenset[PciAddress]().union(*(guest.devices.pci for guest in facts.guests))
    functions = functions_by_interface(facts)
    listed = {*(one.address for one in facts.devices.functions), *(one.address for one in facts.devices.odd)}
    running = frozenset[PciAddress]().union(*(one.devices.pci for one in facts.guests if one.active))
    parents = {mdev.parent for mdev in facts.devices.mdevs}
    return Use(
        held=held,
        given=held.union(*(passed_through(guest, functions) for guest in facts.guests)),
        shared=frozenset(functions[name] for one in facts.guests for name in one.devices.shared & functions.keys()),
        divided=frozenset(one.address for one in facts.devices.mdev_parents if one.name in parents),
        unbooked=_unbooked(facts, matched),
        running=running,
        unseen=running - listed,
    )


def unfit(matched: Collection[Match], pf: PciFunction | None, use: Use) -> dict[PciAddress, str]:
    """
    Return why no guest can get these functions of one provider, by address; without those that guests can get.

    ``pf`` is their physical function (None: it is not listed, or they are offered whole).
    """
    found = ((match.function.address, next(_faults(match, matched, pf, use), "")) for match in matched)
    return {address: why for address, why in found if why}


def _faults(match: Match, matched: Iterable[Match], pf: PciFunction | None, use: Use) -> Iterator[str]:
    """
    Yield why no guest can get a function; ``matched`` is all that its provider offers.

    A rule offers a function also where guests share it, or the host may use it. The host does not show an interface
    that is in another network namespace (the kernel's networking/sysfs-tagging.rst); its driver stays bound. A driver
    may also make no interface (vDPA, RDMA, drivers for guests): then it makes none for other VFs of the card either.
    """
    function, driver, at = match.function, match.function.driver, match.function.address
    if made := sorted({at, *function.vfs} & use.divided):
        yield f"mediated devices exist on {made[0]}"
    # The kernel shows a VF no more while it is taken away, which a guest can hold up (pci_iov_remove_virtfn).
    if taken := sorted(use.given & frozenset(function.vfs) | {*filter(function.has_vf_at, use.running)}):
        yield f"a guest has its VF {taken[0]}"
    after = [one for one in use.unseen if (one.domain, one.bus) == (at.domain, at.bus) and one > at]
    if function.sriov and not function.sriov.step and not function.vfs and after:
        yield f"a guest has {min(after)}, which this host does not show and which may be its VF"
    if function.pf in use.held:
        yield f"a guest has its PF {function.pf}"
    if match.by_itself and at not in use.given:
        if at in use.shared:
            yield "a guest has its interface by macvtap"
        if driver in UIO:
            yield f"its driver {driver} is for programs of the host"
        is_bare = driver and not function.net_devices and not function.vdpa
        if is_bare and any(one.function.driver == driver and one.function.net_devices for one in matched):
            yield f"its driver {driver} shows no interface of it: it may be in another network namespace"
    yield from ills(function, pf, unruled=match.by_itself)


def ills(function: PciFunction, pf: PciFunction | None, *, unruled: bool = False) -> Iterator[str]:
    """
    Yield what is wrong with a function; nothing when no fault is known.

    ``pf`` is a VF's physical function (None: it is not listed). ``unruled`` means that no rule of the operator matches
    the function: then a function that carries the host's own traffic counts as unhealthy too.
    """
    if function.power_state == "error":
        yield "the kernel reports its power state as error"
    if unruled and any(net.carries_host_traffic for net in function.net_devices):
        yield "it carries the host's own traffic"
    if unruled and any(net.carries_host_traffic is None for net in function.net_devices):
        yield "it may carry the host's own traffic, as the host's routes or addresses cannot be read"
    if not function.is_vf:
        return
    if pf is None:
        yield "its PF is gone"
    elif pf.power_state == "error":
        yield f"the kernel reports the power state of its PF {pf.address} as error"
    elif pf.driver is None:  # it controls the VFs (the kernel's PCI/pci-iov-howto.rst)
        yield f"its PF {pf.address} has no driver"
    elif pf.driver == FOR_GUESTS:  # such VFs open only with the PF's token (vfio_pci_core.c), which libvirt cannot give
        yield f"its PF {pf.address} is bound to {FOR_GUESTS}, and guests cannot have the VFs of such a PF"
    elif pf.links and all(net.state in DOWN for net in pf.links):
        yield f"the link of its PF is down ({', '.join(net.name for net in pf.links)})"


def functions_by_interface(facts: HostFacts) -> dict[str, PciAddress]:
    """Return the function of each interface of this host, by the interface's name, or the path of its vDPA device."""
    return {
        name: one.address
        for one in facts.devices.functions
        for name in (*(net.name for net in one.net_devices), *one.vdpa)
    }


def passed_through(guest: Guest, functions: Mapping[str, PciAddress]) -> frozenset[PciAddress]:
    """
    Return the functions that a guest has by their interfaces or vDPA devices.

    ``functions`` are as ``functions_by_interface`` returns them.
    """
    return frozenset(functions[name] for name in guest.devices.netdevs | guest.devices.vdpa if name in functions)


def _unbooked(facts: HostFacts, matched: Iterable[Match]) -> frozenset[PciAddress]:
    """
    Return the functions that guests of nova have through ports, beyond the amounts that their flavors name.

    ``matched`` are all functions that are offered. Nova allocates nothing for a port's function, but what the flavor
    names of a class. Nothing tells for which device: the guest's other devices of the class count first, and each of
    several cards may be without the allocation. An amount that cannot be read is none, as in nova. Guests of other
    programs are left out: nothing tells whether these allocate their ports.
    """
    functions = functions_by_interface(facts)
    matches = sorted(matched, key=lambda match: match.function.address)
    found: set[PciAddress] = set()
    for guest, tenant in ((one, one.tenant) for one in facts.guests if one.tenant):
        ports = guest.devices.ports | passed_through(guest, functions)
        has = [match for match in matches if match.function.address in guest.devices.pci | ports]
        left = Counter(match.resource_class for match in has)
        left.subtract({name: amount or 0 for name, amount in (tenant.overridden or {}).items()})
        counts = Counter[tuple[PciAddress, str]]()  # by card and class
        for match in has:
            slot = match.function.counted_on, match.resource_class
            # A port with the vnic_type direct-physical is no interface of the guest.
            of_port = match.function.address in ports or match.network
            if of_port and counts[slot] < left[match.resource_class]:
                counts[slot] += 1
                found.add(match.function.address)
    return frozenset(found)
