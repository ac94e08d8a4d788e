"""The Ironic driver: all nodes of a share at one look, and the provider of each."""

from collections.abc import Callable

from drivers.errors import DiscoveryError, Vanished
from drivers.ironic.client import TRIES, IronicClient, unique
from drivers.ironic.nodes import Misfit, Node, parse_node
from drivers.ironic.shape import Share, shape_share


class IronicDriver:
    """``mine`` says of each node (by uuid) whether it is this agent's, where several share what Ironic lists."""

    def __init__(self, client: IronicClient, mine: Callable[[str], bool] | None = None) -> None:
        self._client = client
        self._mine = mine or (lambda uuid: True)
        self._whole = mine is None and client.lists_all

    @property
    def sees_all(self) -> bool:
        """Whether the share is all that Ironic has: then a provider of ours without a node of it is nobody's."""
        return self._whole

    def survey(self) -> tuple[Node | Misfit, ...]:
        """
        Every node of our share; complete, or there is none.

        A node that a page begins at may be deleted between two pages: then the listing begins again.

        Raises:
            DiscoveryError: Ironic could not be read whole.
        """
        for _ in range(TRIES):
            try:
                nodes = [parse_node(record) for record in unique(self._client.records())]
            except Vanished:
                continue
            return tuple(node for node in nodes if not node.uuid or self._mine(node.uuid))
        raise DiscoveryError(f"nodes went away while they were listed, {TRIES} times: the next pass tries again")

    def shape(self, nodes: tuple[Node | Misfit, ...]) -> Share:
        """The providers that these nodes should have; pure."""
        return shape_share(nodes)

    def is_there(self, uuid: str) -> bool:
        """Whether Ironic has this node, whosever share it is of; errors as ``survey``."""
        return self._client.is_there(uuid)
