"""Many recorded or generated hosts reported by one agent; from its library's edge on the same path as a real one."""

from collections.abc import Iterable

from drivers.base import Driver, Survey
from drivers.policy import Policy
from drivers.reasons import Shaped
from reportclient.allocations import Holdings
from reportclient.ownership import Names
from reportclient.tree import ObservedTree, ProviderTree


class FakeDriver:
    """Gives each node to the driver that reads its archive; there is at least one."""

    def __init__(self, hosts: Iterable[Driver]) -> None:
        self._hosts = {node: host for host in hosts for node in host.nodes()}

    @property
    def emitted(self) -> Names:
        return next(iter(self._hosts.values())).emitted

    def nodes(self) -> tuple[str, ...]:
        return tuple(self._hosts)

    def survey(self, node: str) -> Survey:
        return self._hosts[node].survey(node)

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        return self._hosts[survey.facts.hostname].shape(survey, policy, observed)

    def explain(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> Shaped:
        return self._hosts[survey.facts.hostname].explain(survey, policy, observed)

    def present(self, survey: Survey) -> frozenset[str]:
        return self._hosts[survey.facts.hostname].present(survey)

    def idle(self, survey: Survey, policy: Policy) -> tuple[str, ...]:
        return self._hosts[survey.facts.hostname].idle(survey, policy)
