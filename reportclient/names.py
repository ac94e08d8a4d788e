"""Names of resource classes and traits: what is standard, what is custom."""

import os_traits

CUSTOM_PREFIX = "CUSTOM_"


def is_custom(name: str) -> bool:
    """Whether a resource class or trait is a cloud's own, which must be made before use."""
    return name.startswith(CUSTOM_PREFIX)


def is_standard_trait(name: str) -> bool:
    """Whether the installed os-traits knows this name."""
    return name in os_traits.get_traits()


def standard_traits(prefix: str) -> frozenset[str]:
    """Every standard trait that starts with ``prefix``."""
    return frozenset(os_traits.get_traits(prefix=prefix))
