"""Names of resource classes, traits and providers: which are standard, custom, accepted by placement, or nova's."""

import re
from functools import cache

import os_resource_classes
import os_traits

CUSTOM_PREFIX = "CUSTOM_"
CPUS = frozenset({"VCPU", "PCPU"})  # two classes of CPUs; pinning decides between them
NO_DEVICES = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})  # the host's own classes, not those of devices
BANDWIDTH = frozenset({"NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"})  # of a link, beside its devices
SHARES = "MISC_SHARES_VIA_AGGREGATE"  # trait of a provider whose stock all in its aggregates may use
ONE_TIME = "HW_PCI_ONE_TIME_USE"  # trait of devices that the first guest uses up
CELL = "HW_NUMA_ROOT"  # trait of the provider of a cell
PAGES = "CUSTOM_MEMORY_PAGE_SIZE_"  # begins the traits of a provider of pages
SMALL = f"{PAGES}SMALL"  # trait of providers of small pages alone
HUGE = f"{PAGES}LARGE"  # trait of providers that cannot be overcommitted
OF_PAGES = (*(f"{PAGES}{digit}" for digit in "123456789"), SMALL, HUGE)  # other names are an operator's
LONGEST = 255  # largest number of characters in a name
FORM = re.compile(f"(?!CUSTOM_*$)[A-Z0-9_]{{1,{LONGEST}}}")  # names that placement's schema accepts

_ADDRESS = re.compile(r"(?:^|_)[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", re.IGNORECASE)  # ends a provider's name

_DEVICE = re.compile(r"(?:^|_)([0-9a-f]{4,})[:_]([0-9a-f]{2})[:_]([0-9a-f]{2})[._]([0-7])$")


def spelled(name: str) -> str:
    """
    Return a provider's name with a PCI address at its end in capitals, as nova writes it.

    Source: ``_get_rp_name_for_address`` in nova/compute/pci_placement_translator.py. Version 0.1.0 wrote small letters.
    """
    found = _ADDRESS.search(name)
    return name[: found.start()] + found[0].upper() if found else name


def is_by_address(name: str) -> bool:
    """Return whether a provider's name ends in a PCI address as the kernel and nova write it, with colons."""
    return _ADDRESS.search(name) is not None


def device_address(name: str) -> str | None:
    """Return the PCI address at the end of a provider's name, as nova or libvirt writes it, in the kernel's form."""
    found = _DEVICE.search(name.lower())
    return "{}:{}:{}.{}".format(*found.groups()) if found else None


def small_letters(part: str) -> str:
    """Return a child's own part of its name, in small letters if it is a PCI address."""
    return part.lower() if _ADDRESS.fullmatch(part) else part


def is_custom(name: str) -> bool:
    """Return whether a resource class or trait is a cloud's own, which must be made before use."""
    return name.startswith(CUSTOM_PREFIX)


def unknown_standard(wanted: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """Return the wanted standard names that placement does not know and is too old for; custom ones can be made."""
    return frozenset(name for name in wanted - known if not is_custom(name))


def is_standard_trait(name: str) -> bool:
    """Return whether the installed os-traits knows this name."""
    return name in standard_traits("")


@cache
def standard_traits(prefix: str) -> frozenset[str]:
    """Return all standard traits that start with ``prefix``; cached, because os-traits needs 0.2 ms for each list."""
    return frozenset(os_traits.get_traits(prefix=prefix))


def normalise_class(text: str) -> str:
    """
    Return the resource class that nova makes of an operator's text: a standard name, or CUSTOM_ and the cleaned text.

    A space becomes a _ as anywhere, so that nova's aliases find the same name.

    Raises:
        ValueError: placement does not accept the result.
    """
    name = text.upper()
    if name in os_resource_classes.STANDARDS or is_custom(name):
        return _checked(name, text)
    return _checked(str(os_resource_classes.normalize_name(name)), text)


def normalise_trait(text: str) -> str:
    """
    Return the trait that nova makes of an operator's text, as ``normalise_class`` a class.

    Raises:
        ValueError: placement does not accept the result.
    """
    if is_standard_trait(text):
        return text
    name = text.upper()
    return _checked(name if is_custom(name) else str(os_traits.normalize_name(name)), text)


def is_name(text: str) -> bool:
    """Return whether placement accepts this as the name of a class or trait."""
    return FORM.fullmatch(text) is not None


def _checked(name: str, text: str) -> str:
    """
    Return the name that was made of ``text``, if placement accepts it.

    Raises:
        ValueError: the name is empty after CUSTOM_, or too long.
    """
    if not is_name(name):
        raise ValueError(
            f"names {text[:80]!r}, from which no valid name for placement can be made (A-Z, 0-9 and _, at most "
            f"{LONGEST} characters)"
        )
    return name
