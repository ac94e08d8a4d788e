"""The Ironic driver: reads all nodes at once, and shapes the provider of each node of this agent's share."""

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from drivers.errors import DiscoveryError, Vanished
from drivers.ironic.client import REQUEST_TRIES, IronicClient, unique
from drivers.ironic.nodes import Misfit, Node, parse_class, parse_node
from drivers.ironic.shape import NOTHING, Share, shape_share


@dataclass(frozen=True, slots=True)
class IronicDriver:
    """Lists the nodes of one Ironic and shapes their providers."""

    client: IronicClient
    # Whether a node, by uuid, is this agent's, where several agents share one listing; None: all are.
    mine: Callable[[str], bool] | None = None

    @property
    def sees_all(self) -> bool:
        """True if the share is all that Ironic has: then no other agent reports a marked provider without a node."""
        return self.mine is None and self.client.lists_all

    def survey(self) -> tuple[Node | Misfit, ...]:
        """
        Return every node that Ironic lists, including those of other agents in the ring.

        The node at which a page begins may be deleted between two pages: then the listing begins again.

        Raises:
            DiscoveryError: Ironic could not be read whole. Never a shorter listing.
        """
        return tuple(map(parse_node, self._listed()))

    def elsewhere(self) -> dict[str, str]:
        """
        Return the resource class (empty: none), by uuid, of each node of all shards and groups.

        Empty where the listing has them all. Errors as ``survey``.
        """
        if self.client.lists_all:
            return {}
        return dict(filter(None, map(parse_class, self._listed(everywhere=True))))

    def _listed(self, *, everywhere: bool = False) -> list[object]:
        for _ in range(REQUEST_TRIES):
            with suppress(Vanished):
                return list(unique(self.client.records(everywhere=everywhere)))
        raise DiscoveryError(
            f"nodes went away while they were listed, {REQUEST_TRIES} times in a row: the next pass tries again"
        )

    def shape(
        self,
        nodes: tuple[Node | Misfit, ...],
        *,
        reported: Mapping[str, str] = NOTHING,
        standing: Container[str] = (),
        elsewhere: Mapping[str, str] = NOTHING,
    ) -> Share:
        """
        Return the share of this agent, judged among all listed nodes; parameters as ``shape_share``.

        What this agent ``reported`` does not count in a ring, where each agent remembers something else.
        """
        counted = reported if self.mine is None else NOTHING
        share = shape_share(nodes, reported=counted, standing=standing, elsewhere=elsewhere)
        every = (*share.providers, *share.misfits)
        others = frozenset(uuid for uuid in every if self.mine and not self.mine(uuid))
        return replace(
            share,
            providers={uuid: one for uuid, one in share.providers.items() if uuid not in others},
            misfits={uuid: one for uuid, one in share.misfits.items() if uuid not in others},
            others=others,
        )
