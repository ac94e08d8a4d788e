"""What a virt driver is."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from drivers.events import Wake
from drivers.facts import HostFacts
from drivers.policy import Policy
from drivers.reasons import Shaped
from reportclient.allocations import Holdings
from reportclient.ownership import Names
from reportclient.tree import ObservedTree, ProviderTree


@dataclass(frozen=True, slots=True)
class Survey:
    """All that one look at a node told; complete, or there is none."""

    facts: HostFacts
    compute_id: str | None = None  # an archive's own identity; None on a live host, where the agent keeps it
    files: Mapping[str, str] = field(
        default_factory=dict, compare=False, repr=False
    )  # what was read, as a host archive


class Driver(Protocol):
    """A driver author writes ``survey`` (I/O, hardware words) and ``shape`` (pure, placement's words)."""

    @property
    def emitted(self) -> Names:
        """The classes and traits that ``shape`` can ever put on a root, and in ``below`` what only its children get."""
        ...

    def nodes(self) -> tuple[str, ...]:
        """The nodes that this agent reports, by the name of their root provider."""
        ...

    def survey(self, node: str) -> Survey:
        """
        Read one node whole.

        Raises:
            DiscoveryError: something could not be read. Never a shorter survey.
        """
        ...

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        """
        The tree that a node should have, and which unit of it each guest really holds.

        ``observed`` is what placement holds already (it decides ratios that nobody configured); None where there is
        no placement to ask.

        Raises:
            PolicyError: the policy names something that this node does not have.
        """
        ...

    def explain(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> Shaped:
        """The same tree with the fact and the rule behind each class and trait; errors as ``shape``."""
        ...

    def present(self, survey: Survey) -> frozenset[str]:
        """
        The names of the providers whose hardware the survey found, whether they are wanted or not.

        What goes from a provider named here was taken away by a person or told by the hardware; what goes with a
        provider that is not may be a card that died.
        """
        ...

    def idle(self, survey: Survey, policy: Policy) -> tuple[str, ...]:
        """What the policy says and nothing on this node answers to: one sentence each."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A driver whose node tells when it changes."""

    def watching(self, wake: Wake) -> AbstractContextManager[None]:
        """
        Inside, ``wake`` is called with each event that asks for another look.

        Raises:
            DiscoveryError: the events cannot be heard.
        """
        ...
