"""The Ironic driver: reads all nodes of this agent's share at once."""

from contextlib import suppress
from dataclasses import dataclass

from drivers.errors import DiscoveryError, Vanished
from drivers.ironic.client import REQUEST_TRIES, IronicClient, unique
from drivers.ironic.nodes import Misfit, Node, parse_class, parse_node


@dataclass(frozen=True, slots=True)
class IronicDriver:
    """Lists the nodes of one Ironic."""

    client: IronicClient

    def survey(self) -> tuple[Node | Misfit, ...]:
        """
        Return every node that Ironic lists for this agent's shard and group.

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
