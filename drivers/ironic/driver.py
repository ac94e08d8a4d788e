"""The Ironic driver: reads all nodes at once, and shapes the provider of each node of this agent's share."""

from collections.abc import Container, Mapping
from contextlib import suppress

from drivers.errors import DiscoveryError, Vanished
from drivers.ironic.client import REQUEST_TRIES, IronicClient, unique
from drivers.ironic.nodes import Misfit, Node, parse_class, parse_node
from drivers.ironic.shape import NOTHING, Share, shape_share


class IronicDriver:
    """Lists the nodes of one Ironic, or of one shard of it, and shapes their providers."""

    def __init__(self, client: IronicClient) -> None:
        self._client = client

    @property
    def where(self) -> str:
        """The Ironic's name, and the part of its nodes that is listed."""
        return self._client.name

    @property
    def ironic(self) -> str:
        """The Ironic's name alone."""
        return self._client.where

    @property
    def lists_all(self) -> bool:
        """True if the listing has all nodes of Ironic: then no other agent reports a marked provider without a node."""
        return self._client.lists_all

    def survey(self) -> tuple[Node | Misfit, ...]:
        """
        Return every node that Ironic lists.

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
        if self.lists_all:
            return {}
        return dict(filter(None, map(parse_class, self._listed(everywhere=True))))

    def _listed(self, *, everywhere: bool = False) -> list[object]:
        for _ in range(REQUEST_TRIES):
            with suppress(Vanished):
                return list(unique(self._client.records(everywhere=everywhere)))
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
        """Return the providers of all listed nodes; parameters as ``shape_share``."""
        return shape_share(nodes, reported=reported, standing=standing, elsewhere=elsewhere)

    def is_there(self, uuid: str) -> bool:
        """Return whether Ironic has this node, in any share; errors as ``survey``."""
        return self._client.is_there(uuid)
