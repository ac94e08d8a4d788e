"""The Ironic driver: all nodes of a share at one look, and the provider of each."""

from collections.abc import Callable, Container, Mapping
from contextlib import suppress

from drivers.errors import DiscoveryError, Vanished
from drivers.ironic.client import REQUEST_TRIES, IronicClient, unique
from drivers.ironic.nodes import Misfit, Node, parse_node
from drivers.ironic.shape import NOTHING, Share, shape_share


class IronicDriver:
    """``mine`` says of each node (by uuid) whether it is this agent's, where several share what Ironic lists."""

    def __init__(self, client: IronicClient, mine: Callable[[str], bool] | None = None) -> None:
        self._client = client
        self._mine = mine

    @property
    def where(self) -> str:
        """The Ironic's name, and what of it is this agent's."""
        return self._client.name

    @property
    def ironic(self) -> str:
        """The Ironic's name, whatever of it is this agent's."""
        return self._client.where

    @property
    def sees_all(self) -> bool:
        """Whether the share is all that Ironic has: then a provider of ours without a node of it is nobody's."""
        return self._mine is None and self._client.lists_all

    def survey(self) -> tuple[Node | Misfit, ...]:
        """
        Every node that Ironic lists for us, other agents' of a ring among them; complete, or there is none.

        A node that a page begins at may be deleted between two pages: then the listing begins again.

        Raises:
            DiscoveryError: Ironic could not be read whole.
        """
        for _ in range(REQUEST_TRIES):
            with suppress(Vanished):
                return tuple(parse_node(record) for record in unique(self._client.records()))
        raise DiscoveryError(
            f"nodes went away while they were listed, {REQUEST_TRIES} times in a row: the next pass tries again"
        )

    def shape(
        self,
        nodes: tuple[Node | Misfit, ...],
        *,
        reported: Mapping[str, str] = NOTHING,
        standing: Container[str] = (),
    ) -> Share:
        """The providers that our nodes should have, judged among all that are listed; pure. As ``shape_share``."""
        share = shape_share(nodes, reported=reported, standing=standing)
        if self._mine is None:
            return share
        others = {uuid for uuid in (*share.providers, *share.misfits) if uuid and not self._mine(uuid)}
        return Share(
            providers={uuid: one for uuid, one in share.providers.items() if uuid not in others},
            misfits={uuid: one for uuid, one in share.misfits.items() if uuid not in others},
            others=frozenset(others),
            reserved=share.reserved,
            spellings=share.spellings,
        )

    def is_there(self, uuid: str) -> bool:
        """Whether Ironic has this node, whosever share it is of; errors as ``survey``."""
        return self._client.is_there(uuid)
