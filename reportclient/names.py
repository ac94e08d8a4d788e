"""Names of resource classes and traits: what is standard, what is custom."""

import re
from functools import cache

import os_resource_classes
import os_traits

CUSTOM_PREFIX = "CUSTOM_"
CPUS = frozenset({"VCPU", "PCPU"})  # classes of one thing, between which pinning decides
NO_DEVICES = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})  # classes of the host's own, and of no device
BANDWIDTH = frozenset({"NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"})  # of a link, beside its devices
ONE_TIME = "HW_PCI_ONE_TIME_USE"  # trait of devices that the first guest uses up
LONGEST = 255  # characters of a name
FORM = re.compile(f"(?!CUSTOM_*$)[A-Z0-9_]{{1,{LONGEST}}}")  # of names in placement's schema


def is_custom(name: str) -> bool:
    """Whether a resource class or trait is a cloud's own, which must be made before use."""
    return name.startswith(CUSTOM_PREFIX)


def is_standard_trait(name: str) -> bool:
    """Whether the installed os-traits knows this name."""
    return name in _all_traits()


@cache
def _all_traits() -> frozenset[str]:
    """os-traits makes its list anew at each question, in 0.2 ms."""
    return frozenset(os_traits.get_traits())


def standard_traits(prefix: str) -> frozenset[str]:
    """Every standard trait that starts with ``prefix``."""
    return frozenset(os_traits.get_traits(prefix=prefix))


def normalise_class(text: str) -> str:
    """A resource class as nova makes it of an operator's text: a standard name, or CUSTOM_ and what is left of it."""
    name = text.strip().upper()
    if name in os_resource_classes.STANDARDS or is_custom(name):
        return _checked(name, text)
    return _checked(str(os_resource_classes.normalize_name(name)), text)


def normalise_trait(text: str) -> str:
    """A trait as nova makes it of an operator's text: a standard name, or CUSTOM_ and what is left of it."""
    if is_standard_trait(text.strip()):
        return text.strip()
    name = text.strip().upper()
    return _checked(name if is_custom(name) else str(os_traits.normalize_name(name)), text)


def is_name(text: str) -> bool:
    """Whether placement takes this as a name of a class or trait."""
    return FORM.fullmatch(text) is not None


def _checked(name: str, text: str) -> str:
    """
    A name that placement takes.

    Raises:
        ValueError: nothing is left of the text, or too much.
    """
    if not is_name(name):
        raise ValueError(f"names {text[:80]!r}, of which no name can be made that placement takes")
    return name
