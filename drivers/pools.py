"""A pool of a Ceph cluster as stock: how much of it is reported, and the provider by which many hosts share it."""

from dataclasses import replace
from uuid import UUID, uuid5

from drivers.base import Survey
from drivers.errors import MalformedFact, PolicyError
from drivers.facts import Devices, HostFacts, PoolSpace
from drivers.policy import Policy
from reportclient.allocations import Holdings
from reportclient.names import SHARES
from reportclient.ownership import MARKER, Names
from reportclient.reserve import HELD, keeps, reserved_by_operator
from reportclient.tree import Inventory, ObservedTree, Provider, ProviderTree

GIB = 1024**3
STEP = 100  # a pool's amount differs at each look: it is reported anew if it differs by more than 1/100
POOLS = "ceph_"  # begins the names of such providers
REPORTED_BY = f"{MARKER}_POOL_OF_"  # begins a pool's trait, which ends in the uuid of the reporting compute node
SHARER = f"{MARKER}_SHARES_DISK"  # on the root of a host whose guests' disks are counted on a provider that shares them


def pool_gib(disk: PoolSpace, before: Inventory | None, *, by_pool: bool) -> tuple[int, str]:
    """Return the GiB to report, and a text with the cluster's and the pool's; ``before`` is what placement has."""
    cluster_gib = disk.cluster_bytes // GIB
    both = f"the Ceph cluster has {cluster_gib} GiB, of which its pool {disk.pool} can hold {disk.pool_gib}"
    if not by_pool:
        return cluster_gib, f"{both}; the cluster counts ([agent] rbd_capacity)"
    if before and 0 < abs(before.total - disk.pool_gib) * STEP <= before.total:
        return before.total, f"{both}; the pool counts ([agent] rbd_capacity), anew at a difference of 1/{STEP}"
    return disk.pool_gib, f"{both}; the pool counts ([agent] rbd_capacity)"


def pool_uuid(disk: PoolSpace) -> str:
    """Return the uuid of the pool's provider: the same on every host, by the cluster's fsid and the pool's name."""
    return str(uuid5(UUID(disk.fsid), disk.pool))


def pool_name(disk: PoolSpace) -> str:
    """Return the name of the pool's provider."""
    return f"{POOLS}{disk.fsid}_{disk.pool}"


def aggregate_of(pool: str) -> str:
    """Return the uuid of the aggregate of all hosts that share a pool, by the uuid of its provider."""
    return str(uuid5(UUID(pool), "aggregate"))


def pool_provider(disk: PoolSpace, policy: Policy, stands: Provider | None) -> Provider:
    """
    Return the provider that all hosts of a pool share; ``stands`` is the one in placement.

    Its total is what the pool can hold, whatever a host's rbd_capacity says, and stays until that differs clearly. Its
    ratio and what is reserved of it are the operator's: hosts that are configured otherwise must not write in turns. Of
    a pool that can hold nothing, or less than the operator reserved, all is reserved, and a mark keeps the amount.
    """
    before = stands.inventories.get("DISK_GB") if stands else None
    said = reserved_by_operator(stands).get("DISK_GB", 0) if stands else 0
    total, _ = pool_gib(disk, before, by_pool=True)
    ratio = policy.ratios.disk.configured or policy.ratios.disk.initial
    least = max(total, 1)  # placement takes no inventory of nothing
    is_ours = not total or said > total  # what is reserved is not the amount that the operator reserved
    try:
        stock = Inventory(
            total=least,
            max_unit=least,
            reserved=least if is_ours else said,
            allocation_ratio=before.allocation_ratio if before else ratio,
        )
    except ValueError as error:
        raise MalformedFact(f"cannot report the Ceph pool {disk.pool}, which can hold {total} GiB: {error}") from error
    marks = {HELD} | keeps({"DISK_GB": said}) if is_ours else frozenset[str]()
    return Provider(
        name=pool_name(disk),
        inventories={"DISK_GB": stock},
        traits=frozenset({SHARES, MARKER, *marks}),
        aggregates=frozenset({aggregate_of(pool_uuid(disk))}),
    )


class PoolDriver:
    """
    Reports the provider of a Ceph pool, a root of its own, as one host saw the pool.

    ``reporter`` is the uuid of the compute node whose agent reports it: a trait on the provider says so to all others.
    """

    def __init__(self, host: HostFacts, disk: PoolSpace, reporter: str) -> None:
        facts = replace(host, hostname=pool_name(disk), cells=(), devices=Devices(), guests=())
        self._survey = Survey(facts, compute_id=pool_uuid(disk))
        self._disk = disk
        self._mark = REPORTED_BY + reporter.upper().replace("-", "_")

    @property
    def emitted(self) -> Names:
        return Names(frozenset({"DISK_GB"}), frozenset({SHARES, MARKER, self._mark}))

    def name(self) -> str:
        return self._survey.facts.hostname

    def survey(self, name: str) -> Survey:
        return self._survey

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        """
        Return the pool's provider alone.

        Raises:
            PolicyError: another agent reports the pool.
        """
        stands = observed.root.provider if observed and observed.root else None
        traits = stands.traits - {self._mark} if stands else frozenset[str]()
        if others := sorted(one for one in traits if one.startswith(REPORTED_BY)):
            trait = others[0]
            who = trait.removeprefix(REPORTED_BY).lower().replace("_", "-")
            raise PolicyError(
                f"the agent of compute node {who} reports {survey.facts.hostname} (openstack resource provider show "
                f"{who}; if that finds nothing, that host is gone): set [agent] report_pool = false on this host, or "
                f"on that one; then take the trait {trait} off the pool (openstack resource provider trait set "
                f"{pool_uuid(self._disk)}, with --trait for each of the other traits)"
            )
        pool = pool_provider(self._disk, policy, stands)
        return ProviderTree((replace(pool, traits=pool.traits | {self._mark}),)), Holdings()
