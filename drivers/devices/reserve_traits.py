"""Traits that record in placement who reserved devices, each with its reason."""

from collections.abc import Mapping

from drivers.reasons import Reason
from reportclient.reserve import HELD, UNHEALTHY, keeps

RULE = "unhealthy devices are reserved until they are healthy again"
SHORT = "the reservation of a device that is away applies again once the device is back"


def marks(why: str, reserved_before: Mapping[str, int]) -> dict[str, Reason]:
    """Return the traits of a provider with unhealthy devices; ``reserved_before`` is what others reserved, by class."""
    return dict.fromkeys([UNHEALTHY, *sorted(keeps(reserved_before))], Reason(why, RULE))


def short(reserved_before: Mapping[str, int], totals: Mapping[str, int]) -> dict[str, Reason]:
    """Return the traits of a provider that has less of a class than others reserved; none where it has enough."""
    missing = {name: amount for name, amount in reserved_before.items() if amount > totals.get(name, amount)}
    if not missing:
        return {}
    why = ", ".join(f"{amount} {name} are reserved, but only {totals[name]} exist" for name, amount in missing.items())
    return dict.fromkeys([HELD, *sorted(keeps(reserved_before))], Reason(why, SHORT))
