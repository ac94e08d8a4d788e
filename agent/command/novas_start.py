"""
What nova-compute would meet on this host at its next start, and what it would change in placement: ``upgrade check``.

Source: nova 34, ``init_host``, ``process_instances_at_startup`` and ``update_provider_tree`` of
nova/virt/libvirt/driver.py, ``init_host`` of nova/compute/manager.py, and nova/scheduler/request_filter.py.
"""

import argparse
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from agent.command.check import Check, tried
from agent.command.result import choice_of, settings_of
from agent.connect.choice import Choice, open_client, open_driver, read_host
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.state.identity import parse_identity, read_identity
from agent.sync.node import ComputeNode
from drivers.base import Survey
from drivers.devices.memory import CONTEXT
from drivers.facts import Guest, HostFacts, dotted
from drivers.policy import CpuPolicy, Policy
from reportclient.allocations import Allocation
from reportclient.client import PlacementClient
from reportclient.errors import few
from reportclient.ownership import MANAGED, OWNER_NOVA, is_marked
from reportclient.tree import ObservedProvider, ObservedTree

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
    policy = settings.policy
    with open_driver(settings, choice) as driver:
        node, survey = read_host(driver, choice)
        facts, guests = survey.facts, [one for one in survey.facts.guests if one.tenant]
        tree, _ = driver.shape(survey, replace(policy, layout="devices"), None)
        client, where = open_client(settings, choice)
        uuid = ComputeNode(name=node, driver=driver, client=client, settings=settings, where=where).known_uuid(survey)
        identity = _read_identity(settings, survey)
        observed, named = client.observe(uuid) if uuid else ObservedTree(()), client.find(node)
        kinds = {one.name.removeprefix(f"{facts.hostname}_") for one in tree}
        kinds |= {"intel_tdx"} if _has_tdx(facts, policy) else set()
        stops = [
            *_of_versions(facts),
            *_of_encryption(facts, guests, kinds),
            *_of_pins(facts, guests, policy.cpus),
            *(() if policy.guests.tpm else _of_tpms(guests)),
            *_of_identity(node, identity, named, observed.root, is_known=bool(guests or named)),
            *(() if policy.devices.report else _of_pci(observed)),
        ]
        changes = [*_of_root(observed.root)] if observed.root else []
        for name, rows in _going(client, observed.root, policy).items():
            text = f"{name} goes from {node} to providers below it, with {len(rows)} allocations"
            why = _why_stuck(name, rows, guests, kinds)
            stops += [f"{text}, and nova {RELEASE} fails on that: {why}"] if why else []
            changes += [] if why else [Check(CHANGE, True, text)]
    yield from (Check(START, False, text) for text in stops)
    if not stops:
        yield Check(START, True, f"nothing that was looked for stops nova-compute {RELEASE} on {node}")
    yield from changes


def _read_identity(settings: Settings, survey: Survey) -> str | None:
    """Return the compute_id that nova finds, which does not look into this agent's own folder; None: there is none."""
    if not settings.recorded:
        return read_identity(folder for folder in settings.folders.identity if folder != settings.folders.state)
    return survey.compute_id and parse_identity(survey.compute_id, "compute_id of the host archive")


def _of_versions(facts: HostFacts) -> Iterator[str]:
    if (found := facts.hypervisor.versions.hypervisor) < _QEMU:
        yield f"QEMU is {dotted(found)}, and nova {RELEASE} needs {dotted(_QEMU)}: upgrade QEMU first"


def _has_tdx(facts: HostFacts, policy: Policy) -> bool:
    """Return whether nova takes Intel TDX for supported, however many guests can have it."""
    return policy.devices.tdx and any(one.encryption.tdx for one in facts.hypervisor.domain_capabilities)


def _of_encryption(facts: HostFacts, guests: Iterable[Guest], kinds: Container[str]) -> Iterator[str]:
    """Yield the guests with a kind of encryption that this host does not offer; it offers these ``kinds``."""
    lost: dict[str, list[str]] = {}
    for one in guests:
        if one.devices.encryption and one.devices.encryption not in kinds:
            lost.setdefault(one.devices.encryption, []).append(one.uuid)
    for kind, uuids in sorted(lost.items()):
        beside = kind == "amd_sev_es" and facts.cpu.sev and facts.cpu.sev.sev_snp
        why = "beside SEV-SNP, with which the kernel's kvm_amd was loaded" if beside else "on this host as it is"
        yield f"guest {few(uuids)} is encrypted by {kind}, which nova {RELEASE} does not offer {why}: move it first"


def _of_pins(facts: HostFacts, guests: Iterable[Guest], cpus: CpuPolicy) -> Iterator[str]:
    """
    Yield the guests for which no option sets CPUs aside; one whose CPUs are not understood is left out.

    A guest that may run on all shared CPUs, or on all of a cell, is not pinned, even if that is one.
    """
    all_shared = cpus.shared or frozenset()
    floats = {all_shared, *(all_shared & cell.cpus for cell in facts.cells)}
    kinds = {one.uuid: {len(pin) == 1 and pin not in floats for pin in one.vcpus} for one in guests if one.vcpus}
    mixed, floating = ([uuid for uuid, each in kinds.items() if each >= wanted] for wanted in ({True, False}, {False}))
    pinned = [uuid for uuid, each in kinds.items() if True in each]
    shared = cpus.shared if cpus.shared_option == CpuPolicy().shared_option else None
    if not shared and (lacking := floating if cpus.dedicated else mixed):
        yield f"guest {few(lacking)} has CPUs that are not pinned: set [compute] cpu_shared_set too"
    if not cpus.dedicated and (lacking := pinned if shared else mixed):
        yield f"guest {few(lacking)} has pinned CPUs: set [compute] cpu_dedicated_set too"


def _of_tpms(guests: Iterable[Guest]) -> Iterator[str]:
    if uuids := [one.uuid for one in guests if one.devices.tpm]:
        yield f"guest {few(uuids)} has a TPM: set [libvirt] swtpm_enabled = true"


def _of_identity(
    node: str, identity: str | None, named: str | None, root: ObservedProvider | None, *, is_known: bool
) -> Iterator[str]:
    """Yield why nova-compute would take this host for another one; ``named`` is the provider of the host's name."""
    if identity is None and is_known:
        yield "nova finds no compute_id, and this is not the first start here: find it by compute-node-agent adopt"
    if identity and named and identity != named:
        yield f"placement has {node} as {named}, and compute_id is {identity}: run compute-node-agent adopt {named}"
    if root and root.provider.name != node:
        former = root.provider.name
        yield f"placement has compute_id {root.uuid} as {former}, and this host is {node}: give it its former name back"


def _of_pci(observed: ObservedTree) -> Iterator[str]:
    if names := [seen.name for seen in observed if MANAGED in seen.provider.traits and not is_marked(seen)]:
        yield f"nova reports {few(names)}, and [pci] report_in_placement is not set: set it, as nova cannot go back"


def _of_root(root: ObservedProvider) -> Iterator[Check]:
    """Yield what nova-compute would change on its root."""
    if is_marked(root):
        yield Check(CHANGE, False, f"this agent reports {root.name}, and nova would report it too: run hand-over first")
    if OWNER_NOVA not in root.provider.traits:
        text = f"{root.name} gets OWNER_NOVA: once each nova-compute is {RELEASE}, the scheduler takes no other host"
        yield Check(CHANGE, True, text)


def _going(client: PlacementClient, root: ObservedProvider | None, policy: Policy) -> dict[str, tuple[Allocation, ...]]:
    """Return the allocations of the classes that nova takes off its root, by class."""
    names = [name for name in ("VGPU", CONTEXT) if root and name in root.provider.inventories]
    going = [name for name in names if name == CONTEXT or policy.devices.mdevs]  # else nova does not look at VGPU
    rows = client.allocations([root]) if root and going else ()
    return {name: tuple(one for one in rows if one.resource_class == name) for name in going}


def _why_stuck(name: str, rows: Iterable[Allocation], guests: Iterable[Guest], kinds: Container[str]) -> str:
    """Return why allocations on the root have no place below it; empty: they have one."""
    consumers = {one.consumer for one in rows}
    if name == CONTEXT:
        here = "amd_sev" in kinds or not consumers
        return "" if here else f"this host offers no amd_sev, and {few(sorted(consumers))} has a context"
    lost = sorted(consumers - {one.uuid for one in guests if one.devices.mdevs})
    why = f"{few(lost)} has no mediated device here, as a migration, or a guest that is gone. End it first"
    return why if lost else ""
