"""The Ceph pool that this agent reports: a root of its own, with a plan and a memory of its own."""

from dataclasses import replace

from agent.errors import USER_ERRORS
from agent.settings.read import OperatorFiles
from agent.sync.decide.features import OF_POOLS
from agent.sync.node import ComputeNode
from drivers.facts import PoolSpace
from drivers.policy import Policy, Ratio, Ratios
from drivers.pools import PoolDriver


def pool_nodes(host: ComputeNode) -> tuple[ComputeNode, ...]:
    """
    Return the pool as a node of the agent on this host; empty where it reports none.

    Also while host or cluster do not answer, and before this host has its identity: a later pass reports the pool then.
    """
    settings = host.settings
    if not settings.policy.disk.reports_pool:
        return ()
    try:
        survey = host.survey()
        disk, reporter = survey.facts.disk, host.known_uuid(survey)
    except USER_ERRORS:  # the host's own pass says so
        return ()
    if not isinstance(disk, PoolSpace) or not disk.fsid or reporter is None:
        return ()
    driver, ratio = PoolDriver(survey.facts, disk, reporter), settings.policy.ratios.disk
    alone = replace(
        settings,
        policy=Policy(ratios=Ratios(disk=Ratio(ratio.configured or ratio.initial))),
        operator_files=OperatorFiles(folder=settings.folders.state / "none", named=False),  # these are about the host
        role=None,
        recorded=True,  # its identity is that of the pool, and no process on this host is its
    )
    return (replace(host, name=driver.name(), driver=driver, settings=alone, nova=lambda: None, features=OF_POOLS),)
