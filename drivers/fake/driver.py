"""Report many recorded or generated hosts with one agent; only the archives differ from a real host."""

from collections.abc import Iterable

from drivers.base import Driver, Survey
from drivers.policy import Policy
from drivers.reasons import Explained
from reportclient.allocations import Holdings
from reportclient.ownership import Names
from reportclient.tree import ObservedTree, ProviderTree


class FakeDriver:
    """Pass each call to the driver that reads the node's archive; there is at least one."""

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

    def explain(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> Explained:
        return self._hosts[survey.facts.hostname].explain(survey, policy, observed)

    def present(self, survey: Survey) -> frozenset[str]:
        return self._hosts[survey.facts.hostname].present(survey)

    def idle(self, survey: Survey, policy: Policy) -> tuple[str, ...]:
        return self._hosts[survey.facts.hostname].idle(survey, policy)
