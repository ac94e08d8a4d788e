"""
What nova-compute would meet on this host at its next start, and what it would change in placement: ``upgrade check``.

Source: nova 34, ``init_host``, ``process_instances_at_startup`` and ``update_provider_tree`` of
nova/virt/libvirt/driver.py, ``init_host`` of nova/compute/manager.py, and nova/scheduler/request_filter.py.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from agent.command.check import Check, tried
from agent.command.result import choice_of, settings_of
from agent.connect.choice import Choice, open_client, open_driver, read_host
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.state.identity import read_identity
from agent.sync.node import ComputeNode
from drivers.devices.memory import CONTEXT
from drivers.facts import Guest, HostFacts
from drivers.policy import CpuPolicy
from reportclient.allocations import Allocation
from reportclient.client import PlacementClient
from reportclient.errors import few
from reportclient.ownership import OWNER_NOVA, is_marked
from reportclient.tree import ObservedProvider

RELEASE = "34"
START, CHANGE = "nova's start", "nova's tree"  # names of checks: what stops nova-compute, and what it would change
_QEMU = 6_002_000  # the oldest that it takes, as libvirt counts; its oldest libvirt is older than ours


def foretell(options: argparse.Namespace) -> Iterator[Check]:
    """Yield what would stop nova-compute on this host, and what it would change; that nothing stops it, if so."""
    try:
        choice, settings = choice_of(options), settings_of(options)
    except ConfigError:
        return  # which is told
    yield from tried(START, _of_host(settings, choice))


def _of_host(settings: Settings, choice: Choice) -> Iterator[Check]:
    with open_driver(settings, choice) as driver:
        node, survey = read_host(driver, choice)
        tree, _ = driver.shape(survey, replace(settings.policy, layout="devices"), None)
        client, where = open_client(settings, choice)
        one = ComputeNode(name=node, driver=driver, client=client, settings=settings, where=where)
        uuid, guests = one.known_uuid(survey), [each for each in survey.facts.guests if each.tenant]
        identity = survey.compute_id if settings.recorded else read_identity(settings.folders.identity)
        root = client.observe(uuid).root if uuid else None
        stops = [
            *_of_versions(survey.facts),
            *_of_encryption(survey.facts, guests, {provider.name for provider in tree}),
            *_of_pins(guests, settings.policy.cpus),
            *(() if settings.policy.guests.tpm else _of_tpms(guests)),
            *_of_identity(node, identity, root, is_known=bool(guests or client.find(node))),
        ]
        yield from (Check(START, False, text) for text in stops)
        if not stops:
            yield Check(START, True, f"nothing that was looked for stops nova-compute {RELEASE} on {node}")
        if root:
            yield from _of_root(client, root, guests)


def _of_versions(facts: HostFacts) -> Iterator[str]:
    if (found := facts.hypervisor.versions.hypervisor) < _QEMU:
        yield f"QEMU is {_dotted(found)}, and nova {RELEASE} needs {_dotted(_QEMU)}: upgrade QEMU first"


def _of_encryption(facts: HostFacts, guests: Iterable[Guest], offered: set[str]) -> Iterator[str]:
    """Yield the guests with a kind of encryption that this host does not offer; ``offered``: names of providers."""
    by_kind: dict[str, list[str]] = {}
    for one in guests:
        if one.devices.encryption and f"{facts.hostname}_{one.devices.encryption}" not in offered:
            by_kind.setdefault(one.devices.encryption, []).append(one.uuid)
    for kind, uuids in sorted(by_kind.items()):
        beside = kind == "amd_sev_es" and facts.cpu.sev and facts.cpu.sev.sev_snp
        why = "beside SEV-SNP, with which the kernel's kvm_amd was loaded" if beside else "on this host as it is"
        yield f"guest {few(uuids)} is encrypted by {kind}, which nova {RELEASE} does not offer {why}: move it first"


def _of_pins(guests: Iterable[Guest], cpus: CpuPolicy) -> Iterator[str]:
    """Yield the guests for which no option sets CPUs aside; one whose CPUs are not understood is left out."""
    pins = {one.uuid: {len(pin) == 1 for pin in one.vcpus} for one in guests if one.vcpus}
    floating = [uuid for uuid, kinds in pins.items() if False in kinds]
    pinned = [uuid for uuid, kinds in pins.items() if True in kinds]
    shared = cpus.shared if cpus.shared_option == CpuPolicy().shared_option else None
    if floating and cpus.dedicated and not shared:
        yield f"guest {few(floating)} has CPUs that are not pinned: set [compute] cpu_shared_set too"
    if pinned and shared and not cpus.dedicated:
        yield f"guest {few(pinned)} has pinned CPUs: set [compute] cpu_dedicated_set too"


def _of_tpms(guests: Iterable[Guest]) -> Iterator[str]:
    if uuids := [one.uuid for one in guests if one.devices.tpm]:
        yield f"guest {few(uuids)} has a TPM: set [libvirt] swtpm_enabled = true"


def _of_identity(node: str, identity: str | None, root: ObservedProvider | None, *, is_known: bool) -> Iterator[str]:
    """Yield why nova-compute would take this host for another one, or for one that lost its state."""
    if identity is None and is_known:
        yield "compute_id is missing, and this is not the first start here: find it by compute-node-agent adopt"
    if root and root.provider.name != node:
        former = root.provider.name
        yield f"placement has compute_id {root.uuid} as {former}, and this host is {node}: give it its former name back"


def _of_root(client: PlacementClient, root: ObservedProvider, guests: Iterable[Guest]) -> Iterator[Check]:
    """Yield what nova-compute would change on its root."""
    if is_marked(root):
        yield Check(CHANGE, False, f"this agent reports {root.name}, and nova would report it too: run hand-over first")
    if OWNER_NOVA not in root.provider.traits:
        text = f"{root.name} gets OWNER_NOVA: once each nova-compute is {RELEASE}, the scheduler takes no other host"
        yield Check(CHANGE, True, text)
    going = [name for name in ("VGPU", CONTEXT) if name in root.provider.inventories]
    rows = client.allocations([root]) if going else ()
    with_mdevs = {one.uuid for one in guests if one.devices.mdevs}
    for name in going:
        yield from _reshape(root.name, name, [one for one in rows if one.resource_class == name], with_mdevs)


def _reshape(root: str, name: str, rows: Sequence[Allocation], with_mdevs: set[str]) -> Iterator[Check]:
    """Yield that a class goes to providers below the root, and whose allocations make that fail."""
    text = f"{name} goes from {root} to providers below it, with {len(rows)} allocations"
    yield Check(CHANGE, True, text)
    lost = sorted({one.consumer for one in rows} - with_mdevs) if name == "VGPU" else []
    if lost:
        why = "they have no mediated device here: a migration, or a guest that is gone"
        yield Check(
            START, False, f"{text}, and nova {RELEASE} fails on those of {few(lost)}, as {why}. End these first"
        )


def _dotted(version: int) -> str:
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"
