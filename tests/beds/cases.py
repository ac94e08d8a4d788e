"""A case (what nova reports for a host and a configuration) as a host archive and a configuration file."""

import json
from pathlib import Path
from typing import Any

GIB = 1024**3


def write_archive(host: dict[str, Any], name: str, folder: Path) -> Path:
    """The host of a case as a host archive; what a case does not tell (emulators, devices) is absent."""
    files = {
        "host.json": json.dumps({"format": 1, "hostname": name, "recorded_at": "", "uname": {}}),
        "disk.json": json.dumps({"total_bytes": host["disk_gb_seen"] * GIB, "free_bytes": 0}),
        "libvirt/version.json": json.dumps({"libvirt": 9_000_000, "hypervisor": 7_002_000, "type": "QEMU"}),
        "libvirt/cpumap.json": json.dumps({"total": 1 + max(host["online_cpus"]), "online": host["online_cpus"]}),
        "libvirt/capabilities.xml": _capabilities(host),
        "libvirt/domains.json": "{}",
    }
    for file, text in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def write_config(conf: dict[str, Any], path: Path) -> Path:
    """The configuration of a case as a file; options without a value are left out."""
    lines = []
    for group, options in conf.items():
        lines.append(f"[{group}]")
        for option, value in options.items():
            if option == "reserved_huge_pages":
                pages = (f"node:{page['node']},size:{page['size']},count:{page['count']}" for page in value or ())
                lines += [f"{option} = {page}" for page in pages]
            elif value not in (None, []):
                lines.append(f"{option} = {value}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _capabilities(host: dict[str, Any]) -> str:
    """Cells share the memory that the driver saw: in nova's own tests it is not what the cells add up to."""
    cells = host["numa_cells"]
    each, rest = divmod(host["memory_mb_seen"] * 1024, len(cells))
    xml = "".join(
        f"<cell id='{cell['id']}'><memory unit='KiB'>{each + (rest if cell is cells[0] else 0)}</memory><cpus>"
        + "".join(
            f"<cpu id='{cpu['id']}' socket_id='{cpu['socket']}' core_id='{cpu['core']}' "
            f"siblings='{','.join(map(str, cpu['siblings']))}'/>"
            for cpu in cell["cpus"]
        )
        + "</cpus></cell>"
        for cell in cells
    )
    cpu = f"<cpu><arch>{host['arch']}</arch><model>{host['cpu_model']}</model></cpu>"
    return f"<capabilities><host>{cpu}<topology><cells>{xml}</cells></topology></host></capabilities>"
