"""
What libvirt cannot do on this host of what the options ask for: virt types, machine types, CPU modes, models. Pure.

nova-compute does not start with a CPU model that libvirt does not know or that this host cannot run; a machine type
or a CPU mode that libvirt refuses ends the start of a guest. Here each is told with the values that there are.
"""

from collections.abc import Collection, Iterable

from drivers.errors import PolicyError
from drivers.facts import DomainCapabilities, GuestArch
from drivers.libvirt.capabilities import Capabilities
from drivers.policy import GuestPolicy

_SHOWN = 12  # values that a sentence lists


def check_virt_type(policy: GuestPolicy, capabilities: Capabilities) -> None:
    """
    Check that libvirt runs guests of this virt type on the host's own architecture.

    Raises:
        PolicyError: it does not.
    """
    for guest in capabilities.guests:
        if guest.name == capabilities.arch and policy.virt_type not in dict(guest.emulators):
            raise PolicyError(
                f"{policy.place('virt_type')}[libvirt] virt_type is {policy.virt_type}, and libvirt offers "
                f"{', '.join(sorted(dict(guest.emulators)))} for {capabilities.arch} on this host: "
                f"make /dev/kvm usable (see virt-host-validate), or set [libvirt] virt_type = qemu"
            )


def known_models(
    policy: GuestPolicy, arch: str, names: Collection[str], offered: Collection[DomainCapabilities]
) -> tuple[str, ...]:
    """
    Return the configured CPU models in libvirt's spelling.

    ``names`` are the models that libvirt can expand; of a recorded host only those that were recorded.

    Raises:
        PolicyError: libvirt does not know a model.
    """
    listed = {name for one in offered if one.arch == arch for name, _ in one.cpu_models}
    known = {name.lower(): name for name in (*listed, *names)}
    unknown = [model for model in policy.cpu_models if model.lower() not in known]
    if unknown and listed:
        raise PolicyError(
            f"{policy.place('cpu_models')}[libvirt] cpu_models: libvirt has no CPU model {', '.join(unknown)} for "
            f"{arch}: there are {_list(known.values())} (virsh cpu-models {arch})"
        )
    return tuple(known.get(model.lower(), model) for model in policy.cpu_models)


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
            f"guests of {arch} on this host, so no guest can start: there are {_list(modes - {'maximum'})}"
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
            f"{policy.place('cpu_models')}[libvirt] cpu_models: {what}: there are {_list(usable)} (virsh "
            f"domcapabilities)"
        )
    return tuple(sentences)


def _machines(guest: GuestArch) -> str:
    """Return the machine types of an architecture: the names of the current ones, and how many others there are."""
    current = frozenset(guest.machine_aliases)
    others = len(guest.machines - current)
    return f"{_list(current)} and {others} more" if current and others else _list(guest.machines)


def unusable_models(arch: str, offered: Collection[DomainCapabilities]) -> frozenset[str]:
    """Return the CPU models that no machine type can have on this host (formatdomaincaps.html: usable)."""
    models = [one.cpu_models for one in offered if one.arch == arch and one.cpu_models]
    cannot = [frozenset(name for name, usable in each if usable == "no") for each in models]
    return frozenset.intersection(*cannot) if cannot else frozenset()


def _list(names: Iterable[str]) -> str:
    every = sorted(names, key=str.lower)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return f"{', '.join(every[:_SHOWN])}{more}" if every else "none"
