"""Decide who reports a host's root: this agent, or a nova-compute that is on the host. Pure."""

from collections.abc import Collection, Mapping

from agent.nova.answers import NovaRecord
from drivers.facts import ServiceSigns
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.tree import ObservedProvider, ProviderTree

NOVA_COMPUTE = "nova-compute"
_ROOT, _PROCESS, _SILENCE = "root", "process", "silence"


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
            signs[_ROOT] = f"{root.name} carries OWNER_NOVA, and not this agent's mark"
        elif not remembered:
            signs[_ROOT] = f"{root.name} carries OWNER_NOVA, and this agent does not remember that it wrote it"
    if found.processes:
        signs[_PROCESS] = f"nova-compute (pid {found.processes[0]}) runs on this host"
    if record.host:
        signs["record"] = f"nova has this hypervisor, of its host {record.host} (openstack hypervisor list)"
    if record.silence and not (root and MARKER in root.provider.traits):
        signs[_SILENCE] = f"nova cannot be asked: {record.silence}"
    return signs | {unit: f"the unit {unit} is enabled on this host" for unit in found.units}


def against_writing(name: str, signs: Mapping[str, str], taken_over: Collection[str]) -> tuple[str, ...]:
    """
    Return why nothing is written on the root ``name``, a sentence each; empty when this agent may write.

    ``taken_over`` are the keys of the signs that stood when a person said that this agent reports the root.
    """
    new = {key: sentence for key, sentence in signs.items() if key not in taken_over}
    if not new:
        return ()
    verb = "may report" if new.keys() == {_SILENCE} else "reports"
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
    against = {_PROCESS} if force else {_PROCESS, _ROOT}
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


def outlook(desired: ProviderTree, signs: Mapping[str, str]) -> tuple[str, ...]:
    """Return what nova-compute will do to the wanted tree once it starts, a sentence; empty without a sign of it."""
    if not signs.keys() - {_SILENCE}:
        return ()
    root, why = desired.root, "; ".join(signs.values())
    missing = [name for name in ("VCPU", "MEMORY_MB") if name not in root.inventories]
    if not missing:
        return (f"{why}: when nova-compute starts, it writes its own values on {root.name}",)
    return (
        f"{why}: when nova-compute starts, it puts {' and '.join(missing)} on {root.name} again, although its cells "
        f"have them already, and guests can be scheduled to this host twice over: disable nova-compute first, or set "
        f"[compute] layout = devices",
    )
