"""Reads how much a Ceph cluster has, and how much of it a pool can hold: by the command ``ceph``, as nova does."""

import json
from typing import Any
from uuid import UUID

from drivers.errors import DiscoveryError
from drivers.facts import PoolSpace
from drivers.host.archive import fields, whole
from drivers.host.commands import CommandFailed, CommandMissing, output_of
from drivers.policy import CephPool

GIB = 1024**3
OPTION = "[libvirt] images_rbd_pool"


class ClusterSilent(DiscoveryError):
    """The cluster did not answer, refused to, or does not know yet."""


def probe_pool(place: CephPool) -> PoolSpace:
    """
    Return the raw size of the cluster, as nova reports it, and what the pool can hold.

    The pool can hold what is stored in it and what Ceph calls its max_avail: both count each byte once, however often
    the pool keeps it. Its quota counts them alike, and Ceph's max_avail does not know it: at its quota a pool takes no
    more writes (docs.ceph.com, "Setting Pool Quotas"). A quota of 0 is none.

    Raises:
        ClusterSilent: the cluster did not answer in time, or refused, or does not know yet.
        DiscoveryError: it has no such pool, or answers in an unknown form.
    """
    source = f"ceph df for the pool {place.name} ({OPTION})"
    with fields(source):
        answer: dict[str, Any] = json.loads(_ask(place, "df", "detail", "--format=json"))  # quotas are details
        pools = {pool["name"]: pool["stats"] for pool in answer["pools"]}
        if place.name not in pools:
            raise DiscoveryError(
                f"the Ceph cluster has no pool {place.name} ({OPTION}): it has {', '.join(pools) or 'none'}"
            )
        pool = pools[place.name]
        in_all, holds = whole(answer["stats"]["total_bytes"]), whole(pool["stored"]) + whole(pool["max_avail"])
        if not (in_all and holds):  # its manager has just begun
            raise ClusterSilent(f"the Ceph cluster has not counted yet what its pool {place.name} can hold")
        holds = min(holds, whole(pool.get("quota_bytes", 0)) or holds)
        fsid = _ask(place, "fsid").strip()
        return PoolSpace(pool=place.name, cluster_bytes=in_all, pool_gib=holds // GIB, fsid=str(UUID(fsid)))


def _ask(place: CephPool, *asked: str) -> str:
    command = ["ceph", *asked, "--connect-timeout", str(place.timeout_s)]
    command += [*(["--id", place.user] if place.user else []), *(["--conf", place.config] if place.config else [])]
    try:
        return output_of(command, 2 * place.timeout_s)  # the command itself needs a moment to start
    except CommandMissing as error:
        raise DiscoveryError(f"the Ceph cluster cannot be asked ({OPTION}): {error}: install ceph-common") from error
    except CommandFailed as error:
        raise ClusterSilent(f"the Ceph cluster did not answer: {error}") from error
