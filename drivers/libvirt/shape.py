"""Shapes a libvirt host's facts and the operator's policy into the provider tree that the host should have."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from drivers.by_suffix import BySuffix
from drivers.cells import (
    cells_mib,
    cells_without_cpus,
    cpus_by_cell,
    memory_mib,
    page_mib,
    reserved_cells,
    reserved_mib,
)
from drivers.devices import device_stock, idle_devices
from drivers.devices.inventories import RULE, DeviceStock, inherit, marks, other_forms, short
from drivers.devices.match import OF_DEVICES, offered_twice
from drivers.devices.memory import hidden_stock
from drivers.devices.odd import away, odd_sentences, set_apart, undecided_slots, undecided_units, withdrawn
from drivers.devices.silence import shown, silent, silent_devices
from drivers.errors import MalformedFact, PolicyError
from drivers.facts import HostFacts
from drivers.host.parse import format_cpu_set
from drivers.libvirt.holdings import holdings
from drivers.libvirt.host_inventories import (
    MARK,
    Entry,
    cpu_stock,
    cpus_off,
    device_provider,
    disk_stock,
    kept_text,
    one_class,
    reserved_cells_text,
    shape_cells,
)
from drivers.libvirt.traits import emitted_traits, root_traits
from drivers.policy import OF_CELLS, Policy
from drivers.pools import SHARER
from drivers.reasons import Explained, Reason, Reasoned
from reportclient.allocations import Backing, Holdings, OddStock
from reportclient.names import BANDWIDTH, CELL, OF_PAGES, device_address
from reportclient.ownership import MARKER, SET, Names
from reportclient.reserve import HOLD, KEEP, LEFT, MARKS
from reportclient.tree import MAX_INT, Inventory, ObservedTree

LONGEST_NAME = 200  # characters of a provider's name, in placement's schema
ROOT_CLASSES = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})
FLAT_CLASSES = BANDWIDTH | {"VGPU", "MEM_ENCRYPTION_CONTEXT", "SRIOV_NET_VF"}  # of a flat root, by the agent or nova

BELOW = Names(traits=OF_DEVICES | {CELL}, prefixes=OF_PAGES)  # on a root they are an operator's
EMITTED = Names(
    ROOT_CLASSES | FLAT_CLASSES, emitted_traits() | MARKS | {MARKER, SHARER}, (KEEP, LEFT, HOLD, SET), BELOW
)


def shape(facts: HostFacts, policy: Policy, observed: ObservedTree | None) -> Explained:
    """
    Return the tree of one host in the policy's layout, with reasons and with what guests hold.

    ``observed`` is the tree in placement, which decides ratios that are not configured; None where not read.

    Raises:
        PolicyError: the policy contradicts itself or this host; of a host that is new, a set names a CPU that is off.
        MalformedFact: facts that no host can have, or a name that is too long for placement.
    """
    if not facts.cpu_map.online:
        raise MalformedFact(f"libvirt lists no online CPU on {facts.hostname}")
    if not facts.cells and facts.whole_memory_mib == 0:
        raise MalformedFact(f"libvirt reports neither NUMA cells nor memory of {facts.hostname}: see virsh nodeinfo")
    standing = BySuffix(observed)
    try:
        shaped = _shape(without_undecided(facts, policy, observed), policy, standing)
    except ValueError as error:
        raise MalformedFact(f"cannot compute the inventory of {facts.hostname}: {error}") from error
    if standing.root is None and (off := cpus_off(facts.cpu_map, policy.cpus)):
        raise PolicyError(off[0])
    for provider in shaped.providers:
        if len(provider.name) > LONGEST_NAME:
            raise MalformedFact(
                f"the provider name {provider.name} is longer than the {LONGEST_NAME} characters that placement allows"
            )
    return shaped


def without_undecided(facts: HostFacts, policy: Policy, observed: ObservedTree | None) -> HostFacts:
    """Return the facts in which devices are odd that the rules offer twice, or that do not show what rules ask for."""
    standing = BySuffix(observed)
    odd = *offered_twice(facts, policy.devices, standing), *silent_devices(facts, policy.devices, standing)
    return replace(facts, devices=set_apart(facts.devices, odd)) if odd else facts


def _shape(facts: HostFacts, policy: Policy, standing: BySuffix) -> Explained:
    if policy.layout in OF_CELLS:
        _refuse_cells(facts, policy)
    devices = device_stock(facts, policy.devices, standing)
    of_root = tuple(device for device in devices if device.of_root)
    if policy.layout != "flat":
        devices = inherit([device for device in devices if not device.of_root], standing)
    held = _held(facts, policy, devices, of_root, standing)
    if policy.layout in OF_CELLS:
        stock, below = shape_cells(facts, policy, standing, devices)
    else:
        stock = cpu_stock(facts, policy, standing, {})[None] | _whole_memory(facts, policy, standing)
        below = [device_provider(one, facts, facts.hostname) for one in devices if not one.of_root]
    is_flat = policy.layout == "flat"
    root = _with_totals(
        _root(facts, policy, stock | disk_stock(facts, policy, standing)),
        devices if is_flat else of_root,
        policy,
        standing,
    )
    return Explained((root,), tuple(below), held) if is_flat else Explained((root, *below), holdings=held)


def _refuse_cells(facts: HostFacts, policy: Policy) -> None:
    """
    Refuse a layout with cells on a host whose CPUs and memory cannot be divided among its cells.

    Raises:
        PolicyError: guests' memory is in files, libvirt lists no cell, or several cells list the same CPU, as after
            numa=fake or with a faulty table of the firmware: no cell has such a CPU for itself.
    """
    if policy.file_backed_mib:
        raise PolicyError(
            f"[libvirt] file_backed_memory does not fit the layout {policy.layout}: guests' memory is in files "
            f"then, and files are in no NUMA cell: use the layout devices or flat"
        )
    if not facts.cells:
        raise PolicyError(
            f"libvirt lists no NUMA cell of {facts.hostname} (see virsh capabilities), so the layout {policy.layout} "
            f"has no place for its CPUs and memory: use [compute] layout = devices or flat"
        )
    counts = Counter(cpu for cpus in cpus_by_cell(facts).values() for cpu in cpus)
    if shared := frozenset(cpu for cpu, count in counts.items() if count > 1):
        raise PolicyError(
            f"libvirt lists CPU {format_cpu_set(shared)} of {facts.hostname} in several NUMA cells (see virsh "
            f"capabilities), so the layout {policy.layout} would count it in each: use [compute] layout = devices or "
            f"flat, or correct the firmware's NUMA settings or the kernel's option numa=fake"
        )


def _held(
    facts: HostFacts,
    policy: Policy,
    devices: tuple[DeviceStock, ...],
    of_root: tuple[DeviceStock, ...],
    standing: BySuffix,
) -> Holdings:
    """Return what guests hold, and what is known of the hardware behind each provider."""
    flat = policy.layout == "flat"
    named = partial(_named, facts.hostname)
    here = {name for device in devices for name in device.inventories}
    odd_slots = undecided_slots(facts, policy.devices, standing, flat=flat)
    counts, untyped = shown(facts, policy.devices)
    backing = Backing(
        elsewhere=frozenset(map(named, other_forms(devices, in_total=flat))),
        silent=frozenset(map(named, silent(facts, policy.devices.mdevs))),
        untyped=frozenset(map(named, untyped)),
        shown={named(suffix): count for suffix, count in counts.items()},
        away=frozenset() if flat else frozenset(away(policy.devices, standing, here)),
        withdrawn=withdrawn(policy.devices, standing),
        odd=OddStock(
            sentences={named(name): text for name, text in odd_sentences(facts, policy.devices).items()},
            most={named(suffix): most for suffix, most in undecided_units(facts.devices).items()},
            slots=frozenset((named(suffix), name) for suffix, name in odd_slots),
        ),
        hardware=frozenset().union(*(device.hardware for device in devices)),
        kinds={device.suffix: frozenset(device.inventories) for device in devices} if flat else {},
        novas=frozenset(named(device.suffix) for device in devices if device.novas),
        addresses={
            named(device.suffix): device.hardware | device.members.keys() for device in devices if not device.novas
        },
        offered={named(device.suffix): _functions(device) for device in devices},
    )
    found = holdings(facts, policy, (*devices, *of_root))
    of_memory = reserved_mib(facts, page_mib(facts.cells), policy)[1] if policy.layout in OF_CELLS else ()
    gone = (device.ill for device in of_root if device.ill)
    off = (f"{text}. It is not counted meanwhile" for text in cpus_off(facts.cpu_map, policy.cpus))
    lacking = (*off, *of_memory, *gone, *hidden_stock(facts, policy.devices))
    twice = tuple(device.twice for device in devices if device.twice)
    return replace(found, backing=backing, notes=_notes(facts, policy), lacking=lacking, twice=twice)


def _named(root: str, suffix: str) -> str:
    """Return the name of a provider by its suffix; the root's is empty."""
    return f"{root}_{suffix}" if suffix else root


def idle(facts: HostFacts, policy: Policy) -> tuple[str, ...]:
    """Return one sentence for each part of the policy that matches nothing on this host, or not all that it should."""
    found = (*facts.hypervisor.refusals, *idle_devices(facts, policy.devices), *unknown_cells(facts, policy))
    if policy.reserved_cell_mib and policy.layout not in OF_CELLS:
        found += (f"[agent] reserved_cell_memory has no effect in the layout {policy.layout}, which has no cells",)
    return found


def unknown_cells(facts: HostFacts, policy: Policy) -> tuple[str, ...]:
    """Return a sentence on cells that the operator reserves and that are not on this host."""
    named, cells = policy.reserved_cells, {cell.id for cell in facts.cells}
    lacked = frozenset() if named is None or isinstance(named, str) else named - cells
    kept = cells_without_cpus(facts)
    meanwhile = f", and all cells without CPUs ({format_cpu_set(kept)}) are reserved meanwhile" if kept else ""
    sentence = (
        f"[agent] reserved_cells names cells that are not on this host: {format_cpu_set(lacked)}{meanwhile}: name some "
        f"of {format_cpu_set(frozenset(cells))}, or set it to without_cpus or none"
    )
    return (sentence,) if lacked and cells else ()


def _notes(facts: HostFacts, policy: Policy) -> tuple[str, ...]:
    """Return a sentence on memory that is not known, or of which nobody said whether guests may have it."""
    if not facts.cells and facts.whole_memory_mib is None:
        return (
            "MEMORY_MB is not reported: libvirt listed no NUMA cell, and this host archive does not tell the memory: "
            "record the host again",
        )
    cells = cells_without_cpus(facts)
    if not cells or policy.reserved_cells is not None or policy.file_backed_mib:
        return ()
    mib = cells_mib(facts, cells)
    effect, values = (
        ("is reserved", "none if guests may have it, else without_cpus")
        if policy.layout in OF_CELLS
        else ("counts as MEMORY_MB, as nova counts it", "without_cpus to reserve it, or none if guests may have it")
    )
    return (
        f"{mib} MiB of memory are in NUMA cells without CPUs ({format_cpu_set(cells)}). They may belong to a GPU, or "
        f"to a socket whose CPUs are all off: this memory {effect}. Set [agent] reserved_cells = {values}",
    )


def _functions(device: DeviceStock) -> frozenset[str]:
    """Return the PCI addresses that a provider offers: those of its members, or its own."""
    found = frozenset(filter(None, map(device_address, device.members)))
    own = device_address(device.suffix)
    return found or frozenset({own} if own else ())


def _root(facts: HostFacts, policy: Policy, stock: Mapping[str, Entry]) -> Reasoned:
    listed = Reason("configured by the operator", "[agent] root_traits")
    traits = {**root_traits(facts, policy.guests), **dict.fromkeys(policy.root_traits, listed), **MARK}
    return Reasoned(name=facts.hostname, inventories=stock, traits=traits)


def _whole_memory(facts: HostFacts, policy: Policy, standing: BySuffix) -> dict[str, Entry]:
    """Return all memory of the host, or the files that stand for it, less what is kept for the host."""
    kept_mib, rule = policy.reserved_memory_mib, kept_text(policy.reserved_memory_mib, "memory_mb")
    if policy.file_backed_mib:
        total_mib, fact = policy.file_backed_mib, "[libvirt] file_backed_memory"
    else:
        total_mib, fact = facts.whole_memory_mib or memory_mib(facts.cells), _memory_text(facts)
        if whole_mib := cells_mib(facts, reserved_cells(facts, policy)):
            kept_mib, rule = kept_mib + whole_mib, f"{rule}; {whole_mib} MiB more, as {reserved_cells_text(policy)}"
    return one_class("MEMORY_MB", total_mib, kept_mib, policy.ratios.ram, standing, "", reason=Reason(fact, rule))


def _with_totals(root: Reasoned, devices: Iterable[DeviceStock], policy: Policy, standing: BySuffix) -> Reasoned:
    """
    Return the root with the totals of the devices that count on it: in the layout flat these are all.

    What operators reserved of them stays reserved, in the layout flat also of classes whose devices are away or not
    readable now.
    """
    shown = _totals(devices)
    there = _with_rest_of_root(shown, devices, standing)
    missing = away(policy.devices, standing, there) if policy.layout == "flat" else {}
    said = {name: one for name, one in standing.reserved("").items() if name not in ROOT_CLASSES}
    totals = {
        name: (replace(stock, reserved=min(stock.total, stock.reserved + said.get(name, 0))), reason)
        for name, (stock, reason) in {**there, **missing}.items()
    }
    before = Counter(said)
    for device in devices:  # a card that was away while the layout changed still has its own provider
        own = standing.reserved(device.suffix)
        before.update({name: amount for name, amount in own.items() if name in totals})
    silent = [
        f"a device does not show its amount of {name} now" for name in sorted(there) if there[name] != shown.get(name)
    ]
    amounts = {name: stock.total for name, (stock, _) in there.items()} | dict.fromkeys(missing, 0)
    ill = "; ".join((*(device.ill for device in devices if device.ill), *silent))
    traits = {**root.traits, **(marks(ill, before) if ill else short(before, amounts))}
    return replace(root, inventories={**root.inventories, **totals}, traits=traits)


def _with_rest_of_root(
    totals: Mapping[str, Entry], devices: Iterable[DeviceStock], standing: BySuffix
) -> dict[str, Entry]:
    """
    Return the totals, filled up to the root's total in placement for classes of which a device shows no amount.

    The amount that is added is reserved.
    """
    found = dict(totals)
    root = standing.stock("")
    for device in devices:
        for name in sorted(device.untold & root.keys()):
            now, before = found.get(name), root[name]
            missing = before.total - (now[0].total if now else 0)
            if missing > 0:
                kept = missing + (now[0].reserved if now else 0)
                reason = Reason(f"{device.suffix} does not show its {name} now, so the amount in placement stays", RULE)
                found[name] = replace(before, reserved=kept), _also(now[1], reason) if now else reason
    return found


def _totals(devices: Iterable[DeviceStock]) -> dict[str, Entry]:
    """
    Return the stock of all devices as totals on the root.

    Raises:
        PolicyError: a device can be used once only, and a total cannot say which device was used; or a total is above
            what placement takes.
    """
    found: dict[str, Entry] = {}
    for device in devices:
        if device.once:
            raise PolicyError(
                f"[pci] device_spec has one_time_use for {device.suffix}, which needs a provider of its own: "
                f"use [compute] layout = devices, cells or numa"
            )
        for name, (stock, reason) in device.inventories.items():
            before = found.get(name)
            total = stock.total + (before[0].total if before else 0)
            if total > MAX_INT:
                raise PolicyError(
                    f"the devices of this host have {total} {name} together ({reason.rule}), and placement takes "
                    f"{MAX_INT} at most on one provider: use [compute] layout = devices, cells or numa, or do without "
                    f"{reason.rule}"
                )
            found[name] = (_sum(before[0], stock), _also(before[1], reason)) if before else (stock, reason)
    return found


def _sum(one: Inventory, other: Inventory) -> Inventory:
    total = one.total + other.total
    alone = one.max_unit < one.total or other.max_unit < other.total  # a device limits what one guest can take
    largest = max(one.max_unit, other.max_unit) if alone else total
    return replace(one, total=total, reserved=one.reserved + other.reserved, max_unit=largest)


def _also(one: Reason, other: Reason) -> Reason:
    return Reason(f"{one.fact}; {other.fact}", one.rule if one.rule == other.rule else f"{one.rule}; {other.rule}")


def _memory_text(facts: HostFacts) -> str:
    """Return where the amount of the host's memory comes from, for people."""
    if not facts.cells:
        return f"libvirt's virNodeGetInfo, as libvirt lists no NUMA cell: {facts.whole_memory_mib} MiB"
    cells = ", ".join(f"cell {cell.id} has {cell.memory_kib} KiB" for cell in facts.cells)
    return f"libvirt's capabilities: {cells}"
