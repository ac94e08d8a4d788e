"""A libvirt host's facts and the operator's policy, shaped into the provider tree that it should have."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from drivers.cells import apportion, memory_mib, page_mib, place_cpus, reserved_mib, small_page_kib
from drivers.devices import device_stock
from drivers.devices.pci import OF_DEVICES, PHYSNET
from drivers.devices.reserve import KEEP, UNHEALTHY, marks, said
from drivers.devices.stock import DeviceStock
from drivers.errors import MalformedFact, PolicyError
from drivers.facts import CpuMap, HostFacts
from drivers.host.parse import format_cpu_set
from drivers.libvirt.traits import emitted_traits, root_traits
from drivers.policy import CpuPolicy, Policy, Ratio
from drivers.reasons import Reason, Reasoned, Shaped
from drivers.standing import Standing
from reportclient.ownership import MARKER, Names
from reportclient.tree import Inventory, ObservedTree

GIB = 1024**3
LONGEST_NAME = 200  # in placement's schema
FIXED = Ratio(1.0, 1.0)  # of what cannot be overcommitted
MARK = {MARKER: Reason("this agent wrote the provider", "every provider that we write carries our mark")}
ROOT_CLASSES = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})
FLAT_CLASSES = frozenset({"VGPU", "MEM_ENCRYPTION_CONTEXT", "SRIOV_NET_VF"})  # of a flat root, ours or nova's
PAGES = "CUSTOM_MEMORY_PAGE_SIZE_"

EMITTED = Names(ROOT_CLASSES | FLAT_CLASSES, emitted_traits() | {MARKER, UNHEALTHY} | OF_DEVICES, (KEEP, PHYSNET))

Entry = tuple[Inventory, Reason]


@dataclass(frozen=True, slots=True)
class _GuestCpus:
    """The CPUs of floating and of pinned guests, and why these."""

    shared: frozenset[int]
    dedicated: frozenset[int]
    because: Mapping[str, Reason]  # by resource class


def shape(facts: HostFacts, policy: Policy, observed: ObservedTree | None) -> Shaped:
    """
    The tree of one host, in the layout of the policy.

    Raises:
        PolicyError: the policy contradicts itself or this host.
        MalformedFact: facts that no host can have.
    """
    if not facts.cpu_map.online:
        raise MalformedFact(f"libvirt tells of no online CPU on {facts.hostname}")
    standing = Standing(observed)
    try:
        shaped = _shape(facts, policy, standing)
    except ValueError as error:
        raise MalformedFact(f"{facts.hostname} cannot be counted: {error}") from error
    for provider in shaped.providers:
        if len(provider.name) > LONGEST_NAME:
            raise MalformedFact(f"{provider.name} is longer than placement's names, {LONGEST_NAME} characters")
    return shaped


def _shape(facts: HostFacts, policy: Policy, standing: Standing) -> Shaped:
    devices = device_stock(facts, policy.devices, standing)
    if policy.layout == "numa":
        return _shape_numa(facts, policy, standing, devices)
    root = _root(facts, policy, _whole_host(facts, policy, standing))
    if policy.layout == "flat":
        whole = _with_totals(root, devices, standing)
        return Shaped((whole,), tuple(_device(one, facts.hostname, facts.hostname) for one in devices))
    return Shaped((root, *(_device(one, facts.hostname, facts.hostname) for one in devices)))


def guest_cpus(cpu_map: CpuMap, policy: CpuPolicy) -> _GuestCpus:
    """
    Which CPUs there are for floating (VCPU) and for pinned guests (PCPU).

    Without any set all online CPUs are shared; with a dedicated set alone none is.

    Raises:
        PolicyError: a set names a CPU that is not online.
    """
    shared, rule = policy.shared, policy.shared_option
    if shared is None:
        shared = cpu_map.online if policy.dedicated is None else frozenset()
        rule = "no CPU set is configured, so all online CPUs are shared"
    _check_online(shared, cpu_map.online, policy.shared_option)
    exists = frozenset(range(cpu_map.total)) if policy.power_management else cpu_map.online
    dedicated = policy.dedicated or frozenset()
    _check_online(dedicated, exists, "[compute] cpu_dedicated_set")
    online = f"libvirt's CPU map: {format_cpu_set(cpu_map.online)} online"
    because = {"VCPU": Reason(online, rule), "PCPU": Reason(online, "[compute] cpu_dedicated_set")}
    return _GuestCpus(shared, dedicated, because)


def _check_online(named: frozenset[int], online: frozenset[int], option: str) -> None:
    if missing := named - online:
        raise PolicyError(
            f"{option} names CPU {format_cpu_set(missing)}, and online here are "
            f"{format_cpu_set(online)}: bring it online or take it out of the set"
        )


def _root(facts: HostFacts, policy: Policy, stock: Mapping[str, Entry]) -> Reasoned:
    listed = Reason("the operator's word", "[agent] root_traits")
    traits = {**root_traits(facts, policy.guests), **dict.fromkeys(policy.root_traits, listed), **MARK}
    return Reasoned(name=facts.hostname, inventories=stock, traits=traits)


def _whole_host(facts: HostFacts, policy: Policy, standing: Standing) -> dict[str, Entry]:
    """Stock of a root that has no cells below it."""
    cpus = guest_cpus(facts.cpu_map, policy.cpus)
    memory = Reason(f"libvirt's capabilities: {_cells_text(facts)}", _kept(policy.reserved_memory_mib, "memory_mb"))
    return _present(
        {
            "VCPU": (
                _stock("VCPU", len(cpus.shared), policy.cpus.reserved, policy.cpu_ratio, standing, ""),
                _with_cpus(cpus.because["VCPU"], cpus.shared),
            ),
            "PCPU": (
                _stock("PCPU", len(cpus.dedicated), 0, FIXED, standing, ""),
                _with_cpus(cpus.because["PCPU"], cpus.dedicated),
            ),
            "MEMORY_MB": (
                _stock(
                    "MEMORY_MB", memory_mib(facts.cells), policy.reserved_memory_mib, policy.ram_ratio, standing, ""
                ),
                memory,
            ),
            **_disk(facts, policy, standing),
        }
    )


def _disk(facts: HostFacts, policy: Policy, standing: Standing) -> dict[str, tuple[Inventory | None, Reason]]:
    reserved_gib = -(-policy.reserved_disk_mib // 1024)
    total = facts.disk.total_bytes
    reason = Reason(f"the file system of the instances has {total} bytes", _kept(policy.reserved_disk_mib, "disk_mb"))
    return {"DISK_GB": (_stock("DISK_GB", total // GIB, reserved_gib, policy.disk_ratio, standing, ""), reason)}


def _with_totals(root: Reasoned, devices: tuple[DeviceStock, ...], standing: Standing) -> Reasoned:
    """A root that has the stock of all devices, of which others may have reserved some."""
    totals = _totals(devices)
    before = {name: said(standing.root, name) for name in totals}
    for name, (stock, reason) in totals.items():
        kept = min(stock.total, max(stock.reserved, before[name]))
        totals[name] = replace(stock, reserved=kept), reason
    ill = "; ".join(device.ill for device in devices if device.ill)
    traits = {**root.traits, **(marks(ill, before) if ill else {})}
    return replace(root, inventories={**root.inventories, **totals}, traits=traits)


def _totals(devices: Iterable[DeviceStock]) -> dict[str, Entry]:
    """
    The stock of all devices as totals on the root.

    Raises:
        PolicyError: a device can be used once only, and a total cannot say which of them was.
    """
    found: dict[str, Entry] = {}
    for device in devices:
        if device.once:
            raise PolicyError(
                f"[pci] device_spec has one_time_use for {device.suffix}, which needs a provider of its own: "
                f"use [compute] layout devices or numa"
            )
        for name, (stock, reason) in device.inventories.items():
            before = found.get(name)
            found[name] = (_sum(before[0], stock), _also(before[1], reason)) if before else (stock, reason)
    return found


def _sum(one: Inventory, other: Inventory) -> Inventory:
    total = one.total + other.total
    alone = one.max_unit < one.total or other.max_unit < other.total  # a guest takes so much and no more
    largest = max(one.max_unit, other.max_unit) if alone else total
    return replace(one, total=total, reserved=one.reserved + other.reserved, max_unit=largest)


def _also(one: Reason, other: Reason) -> Reason:
    return Reason(f"{one.fact}; {other.fact}", one.rule if one.rule == other.rule else f"{one.rule}; {other.rule}")


def _device(stock: DeviceStock, root: str, parent: str) -> Reasoned:
    return Reasoned(
        name=f"{root}_{stock.suffix}", parent=parent, inventories=stock.inventories, traits={**stock.traits, **MARK}
    )


def _shape_numa(facts: HostFacts, policy: Policy, standing: Standing, devices: tuple[DeviceStock, ...]) -> Shaped:
    """A provider per cell, per page size below it, and the cell's devices; what has no known cell is the root's."""
    root = facts.hostname
    cells = {cell.id: f"{root}_NUMA{cell.id}" for cell in facts.cells}
    cpus = _cpus_by_cell(facts, policy, standing)
    pools = page_mib(facts.cells)
    small = {cell.id: small_page_kib(cell) for cell in facts.cells}
    kept = reserved_mib(facts.cells, pools, policy.reserved_memory_mib, policy.reserved_pages)
    providers = [_root(facts, policy, {**cpus[None], **_present(_disk(facts, policy, standing))})]
    for id_, name in cells.items():
        place = Reason(f"libvirt's capabilities: cell {id_}", "[compute] layout = numa")
        providers.append(
            Reasoned(name=name, parent=root, inventories=cpus[id_], traits={"HW_NUMA_ROOT": place, **MARK})
        )
        providers += [
            _pool(root, id_, size, pools[id_, size], kept.get((id_, size), 0), policy, standing, small=small[id_])
            for cell, size in pools
            if cell == id_
        ]
    for device in devices:
        cell = cells.get(device.cell) if device.cell is not None else None
        providers.append(_device(device, root, cell or root))
    return Shaped(tuple(providers))


def _cpus_by_cell(facts: HostFacts, policy: Policy, standing: Standing) -> dict[int | None, dict[str, Entry]]:
    """VCPU and PCPU by cell; under None those of which the topology knows no place."""
    cpus = guest_cpus(facts.cpu_map, policy.cpus)
    found: dict[int | None, dict[str, Entry]] = {None: {}, **{cell.id: {} for cell in facts.cells}}
    for name, wanted, reserved, ratio in (
        ("VCPU", cpus.shared, policy.cpus.reserved, policy.cpu_ratio),
        ("PCPU", cpus.dedicated, 0, FIXED),
    ):
        placed, homeless = place_cpus(facts.cells, wanted)
        if reserved > len(wanted):
            _refuse_reserve(name, len(wanted), reserved)
        shares = apportion(reserved, {-1: len(homeless), **{id_: len(ids) for id_, ids in placed.items()}})
        for id_, ids in [(None, homeless), *placed.items()]:
            suffix, share = ("", shares[-1]) if id_ is None else (f"NUMA{id_}", shares[id_])
            stock = _stock(name, len(ids), share, ratio, standing, suffix)
            if stock:
                found[id_][name] = stock, _with_cpus(cpus.because[name], ids)
    return found


def _pool(
    root: str, cell: int, size_kib: int, mib: int, reserved: int, policy: Policy, standing: Standing, *, small: int
) -> Reasoned:
    """The pages of one size in one cell; huge ones are not overcommitted, as nobody can."""
    suffix = f"NUMA{cell}_PAGES_{size_kib}"
    is_small = size_kib == small
    ratio = policy.ram_ratio if is_small else FIXED
    stock = _stock("MEMORY_MB", mib, reserved, ratio, standing, suffix, step=max(1, size_kib // 1024))
    fact = f"libvirt's capabilities: {mib} MiB in pages of {size_kib} KiB in cell {cell}"
    kept = Reason(fact, _kept(reserved, "memory_mb or reserved_huge_pages, in this pool"))
    told = Reason(fact, "[compute] layout = numa")
    kind = f"{PAGES}SMALL" if is_small else f"{PAGES}LARGE"
    return Reasoned(
        name=f"{root}_{suffix}",
        parent=f"{root}_NUMA{cell}",
        inventories=_present({"MEMORY_MB": (stock, kept)}),
        traits={f"{PAGES}{size_kib}": told, kind: told, **MARK},
    )


def _stock(
    name: str, total: int, reserved: int, ratio: Ratio, standing: Standing, suffix: str, *, step: int = 1
) -> Inventory | None:
    """One class's inventory; None when there is none of it, as placement takes no total of 0."""
    if total == 0:
        return None
    if reserved > total:
        _refuse_reserve(name, total, reserved)
    chosen = ratio.configured
    if chosen is None:
        stands = standing.ratio(suffix, name)
        chosen = ratio.initial if stands is None else stands
    try:
        return Inventory(total=total, reserved=reserved, max_unit=total, step_size=step, allocation_ratio=chosen)
    except ValueError as error:
        raise PolicyError(f"{name} cannot be reported: {error}") from error


def _refuse_reserve(name: str, total: int, reserved: int) -> None:
    raise PolicyError(
        f"{reserved} {name} are to be reserved for the host, and it has {total}: lower the reserved_host_ option"
    )


def _present(stock: Mapping[str, tuple[Inventory | None, Reason]]) -> dict[str, Entry]:
    return {name: (inventory, reason) for name, (inventory, reason) in stock.items() if inventory}


def _with_cpus(reason: Reason, cpus: frozenset[int]) -> Reason:
    return replace(reason, fact=f"{reason.fact}; counted here: {format_cpu_set(cpus)}")


def _cells_text(facts: HostFacts) -> str:
    return ", ".join(f"cell {cell.id} has {cell.memory_kib} KiB" for cell in facts.cells)


def _kept(amount: int, option: str) -> str:
    return f"{amount} MiB kept for the host by [DEFAULT] reserved_host_{option}"
