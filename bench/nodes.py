"""The bare-metal nodes of one Ironic: by this agent, and by nova's driver and report client on another placement."""

import os
from pathlib import Path

from beds import databases, ironic, placement
from beds.nodes import NodesAgent, nodes_agent, uuid_of
from beds.proxy import Proxy
from bench.goals import Goal, print_table
from bench.lab import HERE, run_nova

NODES = int(os.environ.get("BENCH_NODES", "500"))
NOVA_S = float(os.environ.get("BENCH_NOVA_S", "60"))  # for its first pass
PAGES = NODES // 1000 + 1  # a last page that is full is followed by an empty one
QUIET_S, PEAK_MIB = 10, 200


def compare_nodes(scratch: Path, _template: Path) -> tuple[Goal, ...]:
    """
    The first pass, a quiet pass, and a pass with 100 changes.

    nova does as many bare-metal nodes as it can in its time.
    """
    folder = scratch / "nodes"
    folder.mkdir()
    template = ironic.ironic_template(HERE.parent / ".bench/cache")
    with (
        ironic.serving(folder / "ironic", template) as server,
        databases.postgresql(folder / "database") as ours,
        databases.postgresql(folder / "nova-database") as novas,
        placement.serving_on(databases.with_driver(ours), folder / "placement") as own,
        placement.serving_on(databases.with_driver(novas), folder / "nova-placement") as others,
        Proxy(server.url) as nodes,
        Proxy(own.url) as providers,
    ):
        usual = {"provision_state": "available", "power_state": "power off", "resource_class": "gold"}
        uuids = [uuid_of(number, "bench") for number in range(NODES)]
        ironic.enroll(server, [usual | {"uuid": uuid, "traits": ["HW_CPU_X86_VMX"]} for uuid in uuids])
        agent = nodes_agent(folder / "agent", nodes.url, providers.url, agent={"node_workers": 8})
        first, quiet = _pass(agent, nodes, providers), _pass(agent, nodes, providers)
        for uuid in uuids[:100]:
            server.send("PUT", f"/v1/nodes/{uuid}/maintenance", {"reason": "bench"})
        changed = _pass(agent, nodes, providers)
        nova = run_nova("nova_ironic.py", server.url, others.url, NOVA_S).json
    head = ("pass", "nodes", "requests to Ironic", "to placement", "s", "nodes a second", "peak MiB")
    rows = [
        ("ours, first", NODES, *first),
        ("ours, quiet", NODES, *quiet),
        ("ours, 100 changed", NODES, *changed),
        *(
            (f"nova, {what}", one["nodes"], one["ironic"], one["placement"], one["wall_s"], nova["peak_mib"])
            for what, one in zip(("first", "quiet"), nova["passes"], strict=True)
        ),
    ]
    print_table(head, [(what, n, i, p, f"{s:.1f}", f"{n / s:.0f}", mib) for what, n, i, p, s, mib in rows])
    print("Ours are a process each. Nova's two are one process, and it is on its own, without its database and bus.")
    asked = quiet[0] + quiet[1]
    return (
        Goal(f"requests of a quiet pass over {NODES} nodes", str(asked), f"at most {PAGES + 1}", asked <= PAGES + 1),
        Goal("seconds of it", f"{quiet[2]:.1f}", f"under {QUIET_S}", quiet[2] < QUIET_S),
        Goal("most memory of any pass, MiB", str(max(one[3] for one in (first, quiet, changed))), f"under {PEAK_MIB}",
             max(one[3] for one in (first, quiet, changed)) < PEAK_MIB),
    )  # fmt: skip


def _pass(agent: NodesAgent, nodes: Proxy, providers: Proxy) -> tuple[int, int, float, int]:
    """(requests to Ironic, to placement, seconds, peak MiB) of one."""
    nodes.seen.clear()
    providers.seen.clear()
    measured = agent.measured("sync")
    return len(nodes.seen), len(providers.seen), measured.wall_s, measured.peak_mib
