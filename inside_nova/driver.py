"""
The class that nova loads: nova's own libvirt driver, with our provider tree.

Only this module imports nova. It runs in nova's Python, where ``make nova-driver`` puts it.
"""

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import nova.conf
from nova import exception
from nova.compute import provider_config
from nova.virt.libvirt import driver as novas

from agent.errors import ConfigError
from drivers.errors import DiscoveryError, PolicyError
from inside_nova.decide import AllocationsNeeded
from inside_nova.host import Host, open_host
from inside_nova.trees import Allocations, NovaTree
from reportclient.errors import PlacementError

CONF = nova.conf.CONF


class LibvirtDriver(novas.LibvirtDriver):  # type: ignore[misc]
    """nova's libvirt driver; ``update_provider_tree`` alone is ours."""

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:
        super().__init__(virtapi, read_only)
        added = classes_of(provider_config.get_provider_configs(CONF.compute.provider_config_location))
        with novas_errors():
            self._shaped: Host = open_host(
                CONF.config_file or (), CONF.config_dir or (), self._host.get_connection, added
            )

    def update_provider_tree(self, provider_tree: Any, nodename: str, allocations: Allocations | None = None) -> None:
        """
        Change nova's ``ProviderTree`` in place to what this host should have; see nova's driver of this name.

        nova's own version is not called: ours reports vGPUs, dedicated CPUs and encrypted memory. Of its parts, the one
        for persistent memory tells nova which namespaces a claim may take.

        Raises:
            nova.exception.ReshapeNeeded: allocations must move, and nova gave none.
            nova.exception.ReshapeFailed: a guest's allocation has no certain place, or nova cannot write the plan.
            nova.exception.InvalidConfiguration: the configuration contradicts this host.
            nova.exception.NovaException: the host cannot be read.
        """
        with novas_errors():
            self._shaped.update(provider_tree, nodename, allocations)
        resources: defaultdict[str, set[Any]] = defaultdict(set)
        self._update_provider_tree_for_vpmems(provider_tree, nodename, {}, resources)
        provider_tree.update_resources(nodename, resources)
        self.provider_tree = copy.deepcopy(provider_tree)  # nova's spawn finds a guest's devices there

    def _update_provider_tree_for_pcpu(
        self, provider_tree: NovaTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        """Do nothing: it would look for PCPU on the root alone, and ask for a reshape where cells have it."""


def classes_of(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return the resource classes that nova's provider configurations add, by what they call the provider."""
    return {
        provider: frozenset(name for one in record.get("inventories", {}).get("additional", ()) for name in one)
        for provider, record in configs.items()
    }


@contextmanager
def novas_errors() -> Iterator[None]:
    """Raise our errors in the block as nova's, by what nova does with them."""
    try:
        yield
    except AllocationsNeeded as error:
        raise exception.ReshapeNeeded() from error
    except PlacementError as error:
        raise exception.ReshapeFailed(error=str(error)) from error
    except (ConfigError, PolicyError) as error:
        raise exception.InvalidConfiguration(str(error)) from error
    except DiscoveryError as error:
        raise exception.NovaException(str(error)) from error
