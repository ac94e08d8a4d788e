"""Decide who reports a host's root: this agent, or a nova-compute that is on the host. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from agent.nova.answers import NovaRecord
from drivers.facts import ServiceSigns
from reportclient.ownership import MARKER, OWNER_NOVA, Ownership, is_novas
from reportclient.tree import ObservedProvider, Provider

NOVA_COMPUTE = "nova-compute"
_OF_GUESTS = ("VCPU", "PCPU", "MEMORY_MB")
ROOT, _PROCESS = "root", "process"
_SILENCE, _UNKNOWN, _HIDDEN = _DOUBTS = ("silence", "unknown", "hidden")


def signs_of_nova(
    root: ObservedProvider | None, found: ServiceSigns, record: NovaRecord = NovaRecord(), *, remembered: bool = True
) -> dict[str, str]:
    """
    Return what shows that nova reports this root, a sentence each, by a key to remember it by; empty: nothing does.

    ``found`` is what shows nova-compute on this host, and ``record`` what nova itself answered. A nova that does not
    answer counts as a sign only where this agent has not reported the root before: else the devices of a host would
    stay on offer as they were while nova is away. ``remembered`` is whether this agent knows of its own that it wrote
    the root: our driver inside nova-compute leaves both marks. The kinds of sign have the same keys at each pass.
    """
    signs = {}
    if root and OWNER_NOVA in root.provider.traits:
        if MARKER not in root.provider.traits:
            signs[ROOT] = f"{root.name} carries OWNER_NOVA, and not this agent's mark"
        elif not remembered:
            signs[ROOT] = f"{root.name} carries OWNER_NOVA, and this agent does not remember that it wrote it"
    if found.processes:
        signs[_PROCESS] = f"nova-compute (pid {found.processes[0]}) runs on this host"
    if record.host:
        signs["record"] = f"nova has this hypervisor, of its host {record.host} (openstack hypervisor list)"
    if not (root and MARKER in root.provider.traits):
        signs |= _doubts(root, found, record)
    return signs | {unit: f"the unit {unit} is enabled on this host" for unit in found.units}


def _doubts(root: ObservedProvider | None, found: ServiceSigns, record: NovaRecord) -> dict[str, str]:
    """Return what leaves open whether nova reports a root that this agent has not reported."""
    doubts = {}
    if record.silence:
        doubts[_SILENCE] = f"nova cannot be asked: {record.silence}"
    if root and record.unknown:
        doubts[_UNKNOWN] = (
            f"{root.name} stands without this agent's mark, and nova shows no hypervisor with its uuid, as also while "
            f"the database of its cell is away"
        )
    if found.hidden:
        doubts[_HIDDEN] = (
            "this user may not see all processes of this host (hidepid of /proc, proc(5)), so a nova-compute may run"
        )
    return doubts


def against_writing(name: str, signs: Mapping[str, str], taken_over: Collection[str]) -> tuple[str, ...]:
    """
    Return why nothing is written on the root ``name``, a sentence each; empty when this agent may write.

    ``taken_over`` are the keys of the signs that stood when a person said that this agent reports the root.
    """
    new = {key: sentence for key, sentence in signs.items() if key not in taken_over}
    if not new:
        return ()
    verb = "may report" if new.keys() <= set(_DOUBTS) else "reports"
    return (
        f"nova-compute {verb} {name}: {'; '.join(new.values())}",
        "nothing is written: leave the host to nova, and set [agent] role = audit, or role = beside to report what "
        "nova leaves out; or stop and disable nova-compute on this host, then run sync --take-over; or if that "
        f"nova-compute does not report {name}, run sync --take-over now",
    )


def against_handing(
    name: str, signs: Mapping[str, str], taken_over: Collection[str], *, force: bool = False
) -> tuple[str, ...]:
    """
    Return why the root ``name`` is not left to nova, a sentence each: nova has it already; empty: it may be left.

    With ``force`` only a nova-compute that runs is a reason.
    """
    against = {_PROCESS} if force else {_PROCESS, ROOT}
    new = [sentence for key, sentence in signs.items() if key in against and key not in taken_over]
    if not new:
        return ()
    return (
        f"nova-compute reports {name} already: {'; '.join(new)}",
        "nothing is written: hand-over is for a root that this agent reports. Stop nova-compute first, and start it "
        "after hand-over; if this agent reports the root and has lost its memory, run sync --take-over before; if "
        "nova-compute reported it with this agent's driver and is to use its own from now on, say --force",
    )


def only_audits(name: str) -> str:
    """Return why nothing is written on the root ``name`` in the role audit."""
    return f"[agent] role = audit: this agent writes nothing on {name} but repairs of its audits"


def disputed(standing: Iterable[Provider], wanted: Iterable[Provider]) -> dict[str, tuple[int, int]]:
    """
    Return the CPUs and memory of a host that nova reports and this agent's options give otherwise: (stands, given).

    By class, over the whole tree; empty where both agree. What the agent says of guests rests on its options.
    """
    stands, given = Counter[str](), Counter[str]()
    for counted, side in ((stands, standing), (given, wanted)):
        for provider in side:
            counted.update({name: stock.total for name, stock in provider.inventories.items()})
    return {name: (stands[name], given[name]) for name in _OF_GUESTS if stands[name] != given[name]}


def tell_disputed(name: str, found: Mapping[str, tuple[int, int]]) -> str:
    """Return a sentence on what ``disputed`` found."""
    told = ", ".join(f"{stands} {each}, not {given}" for each, (stands, given) in found.items())
    return (
        f"placement has {told} on {name}, which nova reports: give this agent nova's own options (cpu_dedicated_set, "
        f"cpu_shared_set, file_backed_memory and reserved_huge_pages, for instance by --config-file "
        f"/etc/nova/nova.conf), or restart nova-compute"
    )


def stranded(observed: Iterable[ObservedProvider], ours: Ownership) -> list[ObservedProvider]:
    """Return the children that stay nova's; a child whose device is here is ours from the first pass on."""
    return [seen for seen in observed if is_novas(seen) and not ours.writes(seen)]


def open_stock(seen: ObservedProvider) -> list[str]:
    """Return the classes of a provider that still have unreserved stock, sorted."""
    return sorted(name for name, stock in seen.provider.inventories.items() if stock.reserved < stock.total)


def advice(seen: ObservedProvider) -> str:
    """Return a sentence on such a provider, with what a person can do about it."""
    open_ = open_stock(seen)
    stands = f". Placement still offers {', '.join(open_)} of this provider to guests" if open_ else ""
    reserved = " ".join(f"--resource {name}:reserved={seen.provider.inventories[name].total}" for name in open_)
    kept = (
        f". Until then, run openstack resource provider inventory set {seen.uuid} --amend {reserved}" if open_ else ""
    )
    return (
        f"nova made {seen.name}, but no device of this host matches this provider{stands}. Bring the device back and "
        f"run sync{kept}. If the device is gone for good, run openstack resource provider delete {seen.uuid}"
    )
