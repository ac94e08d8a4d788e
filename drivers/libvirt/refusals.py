"""
What libvirt cannot do on this host of what the options ask for: machine types, CPU modes, models. Pure.

nova-compute does not start with a CPU model that libvirt does not know or that this host cannot run; a machine type
or a CPU mode that libvirt refuses ends the start of a guest. Here each is told with the values that there are.
"""

from collections.abc import Collection

from drivers.facts import DomainCapabilities, GuestArch
from drivers.libvirt.capabilities import Capabilities, offered_names, unusable_models
from drivers.policy import GuestPolicy


def refusals(
    policy: GuestPolicy, capabilities: Capabilities, offered: Collection[DomainCapabilities]
) -> tuple[str, ...]:
    """Return a sentence on each value that libvirt lists as one that guests here cannot have; empty: none."""
    arch = capabilities.arch
    sentences = []
    for guest in sorted(capabilities.guests, key=lambda one: one.name):
        machine = policy.machine_types.get(guest.name)
        if machine and guest.machines and machine not in guest.machines:
            sentences.append(
                f"{policy.place('hw_machine_type')}[libvirt] hw_machine_type: QEMU here has no machine type {machine} "
                f"for {guest.name}, so guests whose image names none cannot start: there are {_machines(guest)}"
            )
    modes = frozenset[str]().union(*(one.cpu_modes for one in offered if one.arch == arch))
    if modes and policy.cpu_mode not in (None, "none", *modes):
        sentences.append(
            f"{policy.place('cpu_mode')}[libvirt] cpu_mode: libvirt offers no {policy.cpu_mode} for {policy.virt_type} "
            f"guests of {arch} on this host, so no guest can start: there are {offered_names(modes - {'maximum'})}"
        )
    unusable = {name.lower() for name in unusable_models(arch, offered)}
    if cannot := [model for model in policy.cpu_models if model.lower() in unusable]:
        usable = {name for one in offered if one.arch == arch for name, usable in one.cpu_models if usable == "yes"}
        what = (
            f"this host cannot run {', '.join(cannot)}, so no guest can start with it, it gives no traits, and "
            f"nova-compute does not start"
            if policy.virt_type == "kvm"
            else f"QEMU emulates only a part of {', '.join(cannot)}, so the other part gives no traits"
        )
        sentences.append(
            f"{policy.place('cpu_models')}[libvirt] cpu_models: {what}: there are {offered_names(usable)} (virsh "
            f"domcapabilities)"
        )
    return tuple(sentences)


def _machines(guest: GuestArch) -> str:
    """Return the machine types of an architecture: the names of the current ones, and how many others there are."""
    current = frozenset(guest.machine_aliases)
    others = len(guest.machines - current)
    return f"{offered_names(current)} and {others} more" if current and others else offered_names(guest.machines)
