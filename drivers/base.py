"""The interface of a virt driver: what the agent calls, what one look at a node returns, and what asks for a look."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from drivers.devices import present
from drivers.facts import HostFacts
from drivers.policy import Policy
from reportclient.allocations import Holdings
from reportclient.ownership import Names
from reportclient.tree import ObservedTree, ProviderTree


@dataclass(frozen=True, slots=True)
class Event:
    """A change on the host; ``what`` describes it for people, for instance ``add pci 0000:81:10.0``."""

    source: Literal["udev", "libvirt"]
    what: str
    gone: str = ""  # the hardware that went away: a PCI address, cpu3, memory40; empty: none, or unknown


OnOperation = Callable[[], None]  # called after each call of libvirt and each request, so that progress is seen
Wake = Callable[[Event], None]  # may be called from any thread; returns at once


def untold() -> None:
    """Do nothing: the default callback."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that one look read of a node; always complete, as a partial read raises ``DiscoveryError``."""

    facts: HostFacts
    compute_id: str | None = None  # from a host archive; None: it has none, or a live host, where the agent keeps it
    # What was read, as the files of a host archive: path -> text.
    files: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def names(self) -> dict[str, str]:
        """Names of the guests for people, by uuid; a guest without a name is left out."""
        return {guest.uuid: guest.name for guest in self.facts.guests if guest.name}

    @property
    def present(self) -> frozenset[str]:
        """
        Names of the providers whose hardware the survey found, whether they are wanted or not.

        Stock that goes from a provider in this set was withdrawn by a person, or the hardware reported the change.
        Stock that goes with a provider outside this set may belong to a card that failed.
        """
        return frozenset(f"{self.facts.hostname}_{suffix}" for suffix in present(self.facts))


class Driver(Protocol):
    """Methods of a driver: ``nodes`` and ``survey`` do I/O in hardware terms; the others are pure."""

    @property
    def emitted(self) -> Names:
        """Classes and traits that ``shape`` can ever put on a root; ``below`` has those that only its children get."""

    def name(self) -> str:
        """Return the name of the root provider that this driver reports."""

    def survey(self, name: str) -> Survey:
        """
        Read the host whole, as the root provider of this name.

        Raises:
            DiscoveryError: something could not be read. Never a shorter survey.
        """

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        """
        Return the tree that a node should have, and the units of it that each guest really holds.

        ``observed`` is the tree in placement, which decides the ratios that are not configured; None where there is no
        placement to ask.

        Raises:
            PolicyError: the policy names something that this node does not have.
        """


class Watchable(Driver, Protocol):
    """A driver that reports changes of its nodes as events."""

    def watching(self, wake: Wake) -> AbstractContextManager[None]:
        """
        Call ``wake`` with each event that asks for another look, as long as the context is open.

        Raises:
            DiscoveryError: the events cannot be received, as of a recorded host.
        """
