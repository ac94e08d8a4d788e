"""Which virt type and CPU models libvirt cannot do on this host of those that the options ask for. Pure."""

from collections.abc import Collection

from drivers.errors import PolicyError
from drivers.facts import DomainCapabilities
from drivers.libvirt.capabilities import Capabilities
from drivers.policy import GuestPolicy


def check_virt_type(policy: GuestPolicy, capabilities: Capabilities) -> None:
    """
    Check that libvirt runs guests of this virt type on the host's own architecture.

    Raises:
        PolicyError: it does not.
    """
    for guest in capabilities.guests:
        if guest.name == capabilities.arch and policy.virt_type not in dict(guest.emulators):
            raise PolicyError(
                f"[libvirt] virt_type is {policy.virt_type}, and libvirt offers "
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
            f"[libvirt] cpu_models: libvirt has no CPU model {', '.join(unknown)} for {arch}: see virsh cpu-models"
        )
    return tuple(known.get(model.lower(), model) for model in policy.cpu_models)


def unusable_models(arch: str, offered: Collection[DomainCapabilities]) -> frozenset[str]:
    """Return the CPU models that no machine type can have on this host (formatdomaincaps.html: usable)."""
    models = [one.cpu_models for one in offered if one.arch == arch and one.cpu_models]
    cannot = [frozenset(name for name, usable in each if usable == "no") for each in models]
    return frozenset.intersection(*cannot) if cannot else frozenset()
