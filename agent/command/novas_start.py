"""
What nova-compute would meet on this host at its next start, and what it would change in placement: ``upgrade check``.

Source: nova 34, ``init_host``, ``process_instances_at_startup`` and ``update_provider_tree`` of
nova/virt/libvirt/driver.py, ``init_host`` of nova/compute/manager.py, and nova/scheduler/request_filter.py.
"""

import argparse
import os
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace

from agent.command.check import Check, tried
from agent.command.result import choice_of, settings_of
from agent.command.verb_options import NOVA
from agent.connect.choice import Choice, lists_nodes, open_client, open_driver, read_host
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.state.identity import FILE, parse_identity, read_identity
from agent.sync.decide.additions import entries_on
from agent.sync.node import ComputeNode
from agent.sync.provider_yaml import read_additions
from drivers import INSIDE
from drivers.base import Survey
from drivers.devices.match import has_live_vfio
from drivers.devices.memory import CONTEXT, ENCRYPTED, TDX, supported
from drivers.facts import Guest, HostFacts, dotted
from drivers.host.commands import PATIENCE_S, CommandFailed, output_of
from drivers.policy import CpuPolicy, DevicePolicy, DeviceRule
from reportclient.allocations import Allocation, Consumer
from reportclient.errors import few
from reportclient.ownership import MANAGED, OWNER_NOVA, is_marked, is_novas
from reportclient.tree import Inventory, ObservedProvider, ObservedTree

# names of checks: what stops nova-compute, what it would change, and why either is not known
START, CHANGE, FORECAST = "nova's start", "nova's tree", "the forecast"
_RELEASE = re.compile(r"^((\d{1,3})\.\S{1,30})$", re.MULTILINE)
_QEMU = 6_002_000  # the oldest that it takes, as libvirt counts; its oldest libvirt is older than ours


def foretell(options: argparse.Namespace) -> Iterator[Check]:
    """Yield what would stop nova-compute on this host, and what it would change; that nothing stops it, if so."""
    try:
        choice, settings = choice_of(options), settings_of(options)
    except ConfigError:  # the checks of the configuration say so
        return
    if lists_nodes(settings):
        yield Check(FORECAST, True, f"{FORECAST} is of hypervisors, and this agent reports bare-metal nodes")
        return
    if settings.hypervisor.driver == INSIDE:
        yield Check(FORECAST, True, f"nova-compute runs this agent's driver, and {FORECAST} is of nova's own")
        return
    found = [*tried(FORECAST, _of_host(settings, choice))]
    if all(one.ok or one.check == CHANGE for one in found):
        yield Check(START, True, f"nothing that was looked for stops nova-compute {NOVA} here")
    yield from found


def _of_release() -> Check:
    """Return of which start the forecast is, by the nova-compute that is installed here."""
    try:
        found = _RELEASE.search(output_of(("nova-compute", "--version"), PATIENCE_S))
        why = "nova-compute --version prints none"
    except CommandFailed as error:  # it may be in a container
        found, why = None, str(error)
    if not found:
        return Check(FORECAST, True, f"it is of nova {NOVA}; which one is installed here is not known: {why}")
    installed, major = found[1], int(found[2])
    if major > int(NOVA):
        return Check(FORECAST, False, f"nova-compute {installed} is installed here, and {FORECAST} is of {NOVA}")
    start = "its next start" if major == int(NOVA) else f"its first start after an upgrade to {NOVA}"
    return Check(FORECAST, True, f"nova-compute {installed} is installed here: {FORECAST} is of {start}")


def _of_host(settings: Settings, choice: Choice) -> Iterator[Check]:
    with open_driver(settings, choice) as driver:
        node, survey = read_host(driver, choice)
        facts, policy = survey.facts, settings.policy
        guests = [one for one in facts.guests if one.tenant]
        if unread := [one.uuid for one in guests if one.unread]:
            yield Check(FORECAST, False, f"guest {few(unread)} is not understood (see guests), so not all is known")
        for stop in (
            *_of_versions(facts, policy.devices.rules),
            *_of_encryption(facts, guests, supported(facts, policy.devices)),
            *_of_pins(facts, guests, policy.cpus),
            *(() if policy.guests.tpm else _of_tpms(guests)),
            *_of_pmem(facts, policy.devices),
        ):
            yield Check(START, False, stop)
        client, where = open_client(settings, choice)
        one = ComputeNode(name=node, driver=driver, client=client, settings=settings, where=where)
        yield from tried(FORECAST, _of_tree(one, survey, guests))
        if not settings.recorded:
            yield _of_release()


def _of_versions(facts: HostFacts, rules: Iterable[DeviceRule]) -> Iterator[str]:
    versions = facts.hypervisor.versions
    if (found := versions.hypervisor) < _QEMU:
        yield f"QEMU is {dotted(found)}, and nova {NOVA} needs {dotted(_QEMU)}: upgrade QEMU first"
    if any(rule.live_migratable for rule in rules) and not has_live_vfio(versions):
        yield "[pci] device_spec has live_migratable, which needs libvirt 10.0.0 and QEMU 8.2.2: remove it here"


def _of_encryption(facts: HostFacts, guests: Iterable[Guest], kinds: Container[str]) -> Iterator[str]:
    """Yield the guests with a kind of encryption that this host does not support; it supports these ``kinds``."""
    lost: dict[str, list[str]] = {}
    for one in guests:
        if one.devices.encryption and one.devices.encryption not in kinds:
            lost.setdefault(one.devices.encryption, []).append(one.uuid)
    for kind, uuids in sorted(lost.items()):
        beside = kind == "amd_sev_es" and facts.cpu.sev and facts.cpu.sev.sev_snp
        why = "beside SEV-SNP, with which the kernel's kvm_amd was loaded" if beside else "on this host as it is"
        yield f"guest {few(uuids)} is encrypted by {kind}, which nova {NOVA} does not support {why}: move it first"


def _of_pins(facts: HostFacts, guests: Iterable[Guest], cpus: CpuPolicy) -> Iterator[str]:
    """
    Yield the guests for which no option sets CPUs aside, as their domains show; one that is not understood is left out.

    A guest that may run on all shared CPUs, or on all of a cell, is not pinned, even if that is one. A domain does not
    tell whether a single CPU is a pin, or all that was shared when the guest was started.
    """
    all_shared = cpus.shared or facts.cpu_map.online
    floats = {all_shared, *(all_shared & cell.cpus for cell in facts.cells)}
    kinds = {one.uuid: {len(pin) == 1 and pin not in floats for pin in one.vcpus} for one in guests if one.vcpus}
    mixed, floating = ([uuid for uuid, each in kinds.items() if each >= wanted] for wanted in ({True, False}, {False}))
    pinned = [uuid for uuid, each in kinds.items() if True in each]
    shared = cpus.shared if cpus.shared_option == CpuPolicy().shared_option else None
    if not shared and (lacking := floating if cpus.dedicated else mixed):
        yield f"guest {few(lacking)} seems to have CPUs that are not pinned: set [compute] cpu_shared_set too"
    if not cpus.dedicated and (lacking := pinned if shared else mixed):
        yield f"guest {few(lacking)} seems to have pinned CPUs: set [compute] cpu_dedicated_set too"


def _of_tpms(guests: Iterable[Guest]) -> Iterator[str]:
    if uuids := [one.uuid for one in guests if one.devices.tpm]:
        yield f"guest {few(uuids)} has a TPM: set [libvirt] swtpm_enabled = true"


def _of_pmem(facts: HostFacts, policy: DevicePolicy) -> Iterator[str]:
    there = {one.name for one in facts.devices.namespaces if one.path}
    if lacking := sorted(policy.pmem.keys() - there):
        yield f"[libvirt] pmem_namespaces names {few(lacking)}, which this host does not have: correct the option"


def _of_tree(one: ComputeNode, survey: Survey, guests: Collection[Guest]) -> Iterator[Check]:
    """Yield what placement's tree of this host would stop, and what would change in it."""
    uuid = one.known_uuid(survey)
    observed, named = one.client.observe(uuid) if uuid else ObservedTree(()), one.client.find(one.name)
    identity, root = _read_identity(one.settings, survey), observed.root
    is_ours = root is not None and is_marked(root)  # nova may never have been here
    stops = [*_of_identity(one, identity, named, root, is_known=bool(guests or (named and not is_ours)))]
    stops += [] if one.settings.policy.devices.report else _of_pci(observed)
    yield from (Check(START, False, text) for text in stops)
    if root is None:
        return
    if is_marked(root):
        yield Check(CHANGE, False, f"this agent reports {root.name}, and nova would report it too: run hand-over first")
    if OWNER_NOVA not in root.provider.traits:
        text = f"{root.name} gets OWNER_NOVA: once each nova-compute is {NOVA}, the scheduler takes only hosts with it"
        yield Check(CHANGE, True, text)
    yield from _of_stock(one, survey, observed, root)


def _of_stock(one: ComputeNode, survey: Survey, observed: ObservedTree, root: ObservedProvider) -> Iterator[Check]:
    """Yield what becomes of the classes that nova does not report where they are."""
    shaped, _ = one.driver.shape(survey, replace(one.settings.policy, layout="devices"), None)
    below = {each.name.removeprefix(f"{shaped.root.name}_"): each.inventories for each in shaped if each.parent}
    rows = one.client.allocations(observed)
    stands = observed.by_name.get(f"{root.name}_{TDX}")
    if stands and survey.facts.cpu.tdx_hidden:
        below[TDX] = stands.provider.inventories
        text = f"nothing shows here how many guests can have Intel TDX, and so what nova makes of {stands.name}"
        yield Check(FORECAST, False, f"{text}: give this agent the host's /sys/fs/cgroup")
    limited = {rule.type for rule in one.settings.policy.devices.mdevs if rule.max_instances is not None}
    full = (card.name for card in survey.facts.devices.mdev_parents if limited & {each.id for each in card.types})
    yield from _of_children(observed, root, below, rows, ENCRYPTED.union(full))
    cards = sorted({card.name for card in survey.facts.devices.mdev_parents} & below.keys())
    moving = {CONTEXT: ["amd_sev"] if "amd_sev" in below else []} | ({"VGPU": cards} if cards else {})
    with_mdevs = {guest.uuid for guest in survey.facts.guests if guest.devices.mdevs}
    for name in sorted(root.provider.inventories.keys() - _kept(one, observed, root)):
        its = [row for row in rows if row.resource_class == name]
        if name not in moving or not its:
            yield _taken(name, root, its)
            continue
        holders = one.client.consumers(row.consumer for row in its)
        text = f"{name} goes from {root.name} to providers below it, with {len(its)} allocations"
        if why := _why_stuck(name, root, holders, with_mdevs, [below[each] for each in moving[name]]):
            yield Check(START, False, f"{text}, and nova {NOVA} fails on that: {why}")
        else:
            yield Check(CHANGE, True, text)


def _read_identity(settings: Settings, survey: Survey) -> str | None:
    """Return the compute_id that nova finds; None: there is none."""
    if not settings.recorded:
        return read_identity(settings.folders.of_nova)
    return survey.compute_id and parse_identity(survey.compute_id, "compute_id of the host archive")


def _of_identity(
    one: ComputeNode, identity: str | None, named: str | None, root: ObservedProvider | None, *, is_known: bool
) -> Iterator[str]:
    """Yield why nova-compute would take this host for another one; ``named`` is the provider of the host's name."""
    own = one.settings.folders.state / FILE
    if identity is None and is_known:
        where = f"copy {own} there" if os.path.exists(own) else "find it by compute-node-agent adopt"
        yield f"nova finds no compute_id in its state_path, and this is not the first start here: {where}"
    if identity and named and identity != named:
        text = f"placement has {one.name} as {named}, and compute_id is {identity}, so that nova cannot report it"
        yield f"{text}: write the first into compute_id, or remove the provider {named} if it is of another host"
    if root and root.provider.name != one.name:
        text = f"placement has compute_id {root.uuid} as {root.provider.name}, and this host is {one.name}"
        yield f"{text}: give it its former name back"


def _of_pci(observed: ObservedTree) -> Iterator[str]:
    if names := [seen.name for seen in observed if MANAGED in seen.provider.traits]:
        text = f"{few(names)} has nova's trait of PCI devices, and [pci] report_in_placement is not set"
        yield f"{text}: set it, as nova cannot go back"


def _of_children(
    observed: ObservedTree,
    root: ObservedProvider,
    below: Mapping[str, Mapping[str, Inventory]],
    rows: Collection[Allocation],
    judged: Container[str],
) -> Iterator[Check]:
    """
    Yield what nova takes from its providers of cards and encryption while somebody has some of it.

    ``judged`` are the suffixes of providers that it lists although they have nothing: others it leaves as they are.
    """
    for seen in observed:
        if seen is root or MANAGED in seen.provider.traits or is_marked(seen) or not is_novas(seen):
            continue
        suffix = seen.name.removeprefix(f"{root.name}_")
        wanted = below.get(suffix, {})
        lost = {row.resource_class: row.consumer for row in rows if row.provider == seen.name}.keys() - wanted.keys()
        if not lost:
            continue
        if not wanted and suffix not in judged:
            text = f"nova {NOVA} leaves {seen.name} as it is, and on offer, as no enabled type belongs to this card"
            yield Check(CHANGE, True, text)
            continue
        how = "does not start" if wanted else "starts, and each of its writes to placement fails from then on"
        text = f"nova {NOVA} takes {few(sorted(lost))} from {seen.name}, of which somebody has some: it {how}"
        yield Check(START, False, text)


def _kept(one: ComputeNode, observed: ObservedTree, root: ObservedProvider) -> frozenset[str]:
    """Return the classes that nova writes on its root."""
    files, policy = one.settings.operator_files, one.settings.policy
    entry = entries_on(observed, read_additions(files.folder, required=files.named)).get(root.name)
    cpus = {"PCPU"} if policy.cpus.dedicated else {"VCPU"}
    becomes_pcpu = "PCPU" not in root.provider.inventories  # which is not judged: nova asks its database who is pinned
    cpus |= {"VCPU"} if policy.cpus.shared or becomes_pcpu else set()
    added = entry.inventories if entry else ()
    return frozenset({"MEMORY_MB", "DISK_GB"}).union(cpus, policy.devices.pmem.values(), added)


def _taken(name: str, root: ObservedProvider, rows: Iterable[Allocation]) -> Check:
    """Return what becomes of a class that nova takes off its root."""
    text = f"nova {NOVA} takes {name} from {root.name}"
    if consumers := sorted({row.consumer for row in rows if row.provider == root.name}):
        return Check(START, False, f"{text}, which placement refuses: {few(consumers)} has some of it")
    return Check(CHANGE, True, text)


def _why_stuck(
    name: str,
    root: ObservedProvider,
    holders: Collection[Consumer],
    with_mdevs: Container[str],
    places: Collection[Mapping[str, Inventory]],
) -> str:
    """Return why the allocations of a class cannot move from the root to the ``places`` below it; empty: they can."""
    if beside := [
        one.uuid for one in holders if any(name in held for at, held in one.slots.items() if at != root.uuid)
    ]:
        return f"{few(beside)} has some of another provider too, here or on another host"
    if any(name not in place for place in places):
        return f"the cards have another class by [mdev_TYPE] mdev_class, and nova moves {name} as it is"
    if len(holders) > (room := sum(place[name].total for place in places)):
        return f"there is room for {room} below it, and {few([one.uuid for one in holders])} has some"
    lost = [one.uuid for one in holders if one.uuid not in with_mdevs] if name == "VGPU" else []
    why = f"{few(lost)} has no mediated device here, as a migration, or a guest that is gone. End it first"
    return why if lost else ""
