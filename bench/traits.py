"""The root as nova's own libvirt driver reports it, beside ours, from one libvirtd and one configuration file."""

from pathlib import Path
from typing import Any

from bench.differences import GROWING_MEMORY, NOVA_ONLY, OURS_ONLY, PROMISES, Reasons, reason_of
from bench.goals import Goal, print_table
from bench.lab import AGENT, only_provider, run, run_nova, write_config

FIELDS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
GROWS = "MEMORY_MB"


def compare_roots(scratch: Path, _: Path) -> tuple[Goal, ...]:
    """Traits and inventories side by side; every difference needs a reason."""
    folder = scratch / "traits"
    folder.mkdir()
    virt_type = "kvm" if Path("/dev/kvm").exists() else "qemu"
    config = write_config(folder, libvirt={"virt_type": virt_type, "connection_uri": "qemu:///system"})
    print(f"[libvirt] virt_type = {virt_type}, connection_uri = qemu:///system for both\n")
    nova = run_nova("nova_tree.py", config)
    ours = run([AGENT, "discover", "--config-file", config, "--format", "json"])
    nova_name, nova_root = only_provider(nova.json)
    name, root = only_provider(ours.json)
    print_table(
        ("who", "root", "traits", "classes", "wall s"),
        [
            ("nova", nova_name, len(nova_root["traits"]), len(nova_root["inventories"]), f"{nova.wall_s:.1f}"),
            ("agent", name, len(root["traits"]), len(root["inventories"]), f"{ours.wall_s:.1f}"),
        ],
    )
    print(f"wall time, agent to nova: {ours.wall_s / nova.wall_s:.2f} (most of both is libvirt asking QEMU)")
    return (
        Goal("name of the root", name, f"nova's: {nova_name}", name == nova_name),
        _compare_traits(set(nova_root["traits"]), set(root["traits"])),
        _compare_inventories(nova_root["inventories"], root["inventories"]),
        _list_promises(folder),
    )


def _compare_traits(nova: set[str], ours: set[str]) -> Goal:
    print(f"\n{len(nova & ours)} traits are reported by both.")
    unexplained = _explain("nova", nova - ours, NOVA_ONLY) + _explain("the agent", ours - nova, OURS_ONLY)
    if unexplained:
        print("\nwithout a reason in bench/differences.py: " + ", ".join(unexplained))
    return Goal(
        "traits that differ without a reason", ", ".join(unexplained) or "none", "none", not unexplained and bool(ours)
    )


def _explain(who: str, traits: set[str], reasons: Reasons) -> list[str]:
    """Print what only one side reports; answer what nobody gave a reason for."""
    for common, group in reasons.items():
        seen = sorted(traits & group.keys())
        if seen:
            print(f"\nonly {who} reports ({common}):")
            print_table(("trait", "reason"), [(trait, group[trait]) for trait in seen])
    return sorted(trait for trait in traits if reason_of(reasons, trait) is None)


def _compare_inventories(nova: dict[str, Any], ours: dict[str, Any]) -> Goal:
    print("\ninventories:")
    rows, differ = [], []
    for name in sorted(nova.keys() | ours.keys()):
        theirs, own = nova.get(name, {}), ours.get(name, {})
        rows += [("nova", name, *_cells(theirs)), ("agent", name, *_cells(own))]
        if _cells(theirs) != _cells(own):
            differ.append(name)
    print_table(("who", "class", *FIELDS), rows)
    if GROWS in differ:
        print(f"{GROWS} differs: {GROWING_MEMORY}.")
    wrong = [name for name in differ if name != GROWS or _terms(nova.get(name, {})) != _terms(ours.get(name, {}))]
    return Goal(f"inventories that differ, {GROWS}'s size apart", ", ".join(wrong) or "none", "none", not wrong)


def _cells(inventory: dict[str, Any]) -> list[str]:
    return [f"{inventory[field]:g}" if field in inventory else "-" for field in FIELDS]


def _terms(inventory: dict[str, Any]) -> dict[str, Any]:
    """All of an inventory but its size."""
    return {field: value for field, value in inventory.items() if field not in ("total", "max_unit")}


def _list_promises(folder: Path) -> Goal:
    """Whether the operator's list does what the reasons say; a made-up host will do."""
    listed = sorted(NOVA_ONLY[PROMISES])
    config = write_config(
        folder, "listed.conf", DEFAULT={"compute_driver": "fake.FakeDriver"}, agent={"root_traits": ",".join(listed)}
    )
    _, root = only_provider(run([AGENT, "discover", "--config-file", config, "--format", "json"]).json)
    found = len(set(listed) & set(root["traits"]))
    return Goal(
        "promises reported once listed in [agent] root_traits",
        f"{found} of {len(listed)}",
        f"{len(listed)} of {len(listed)}",
        found == len(listed),
    )
