"""What a virt driver is, and the seed's ``update_provider_tree`` as the composition of its parts."""

from dataclasses import dataclass
from typing import Protocol

from drivers.facts import HostFacts
from drivers.policy import Policy
from reportclient.allocations import Holding, Move
from reportclient.ownership import Names
from reportclient.tree import ObservedTree, ProviderTree

Holdings = tuple[Holding, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """All that one look at a node told; complete, or there is none."""

    facts: HostFacts
    compute_id: str | None = None  # an archive's own identity; None on a live host, where the agent keeps it


class Driver(Protocol):
    """A driver author writes ``survey`` (I/O, hardware words) and ``shape`` (pure, placement's words)."""

    @property
    def emitted(self) -> Names:
        """The classes and traits that ``shape`` can ever put on a root."""
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


def update_provider_tree(
    driver: Driver, policy: Policy, observed: ObservedTree, node: str
) -> tuple[ProviderTree, tuple[Move, ...]]:
    """The tree a node should have, and the moves that lead there; no moves as long as its shape stays."""
    desired, _ = driver.shape(driver.survey(node), policy, observed)
    return desired, ()
