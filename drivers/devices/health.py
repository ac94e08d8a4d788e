"""Find PCI functions that are unhealthy, so that no guest should get them now."""

from collections.abc import Iterable

from drivers.facts import PciFunction

DOWN = frozenset({"down", "lowerlayerdown", "notpresent", "testing"})
"""
States in which an interface can transmit nothing (operstate, the kernel's networking/operstates.rst).

``testing`` ends by itself, after the driver's self-test or a test of the cable. ``dormant`` is no such state: L1 is up.
An interface that is off by administration is down too. Whether the VFs of such a PF have a link depends on its driver,
and on the link state that ip-link(8) sets for a VF; nothing in sysfs tells it, so they are not offered.
"""
FOR_GUESTS = "vfio-pci"  # driver of a device that is bound for guests (the kernel's driver-api/vfio.rst)
UIO = frozenset({"igb_uio", "uio_pci_generic"})  # drivers that give a device to a program of the host, as of DPDK


def unseen_use(function: PciFunction, siblings: Iterable[PciFunction]) -> str | None:
    """
    Return where a VF may be in use that shows no interface; None where nothing points to it.

    ``siblings`` are the VFs of its card. The host does not show an interface that is in another network namespace (the
    kernel's networking/sysfs-tagging.rst); its driver stays bound. A driver may also make no interface (vDPA, RDMA,
    drivers for guests): then it makes none for the siblings either.
    """
    if function.driver in UIO:
        return f"its driver {function.driver} is for programs of the host"
    if function.net_devices or function.vdpa or function.driver is None:
        return None
    if any(one.driver == function.driver and one.net_devices for one in siblings):
        return f"its driver {function.driver} shows no interface of it: it may be in another network namespace"
    return None


def ills(function: PciFunction, pf: PciFunction | None, *, unruled: bool = False) -> str | None:
    """
    Return what is wrong with a function; None when no fault is known.

    ``pf`` is a VF's physical function (None: it is not listed). ``unruled`` means that no rule of the operator matches
    the function: then a function that carries the host's own traffic counts as unhealthy too.
    """
    if function.power_state == "error":
        return "the kernel reports its power state as error"
    if unruled and any(net.carries_host_traffic for net in function.net_devices):
        return "it carries the host's own traffic"
    if unruled and any(net.carries_host_traffic is None for net in function.net_devices):
        return "it may carry the host's own traffic, as the host's routes or addresses cannot be read"
    return _ills_of_pf(pf) if function.is_vf else None


def _ills_of_pf(pf: PciFunction | None) -> str | None:
    if pf is None:
        return "its PF is gone"
    if pf.power_state == "error":
        return f"the kernel reports the power state of its PF {pf.address} as error"
    if pf.driver is None:  # it controls the VFs (the kernel's PCI/pci-iov-howto.rst)
        return f"its PF {pf.address} has no driver"
    if pf.driver == FOR_GUESTS:  # such VFs open only with the PF's token (vfio_pci_core.c), which libvirt cannot give
        return f"its PF {pf.address} is bound to {FOR_GUESTS}, and guests cannot have the VFs of such a PF"
    if pf.links and all(net.state in DOWN for net in pf.links):
        return f"the link of its PF is down ({', '.join(net.name for net in pf.links)})"
    return None
