"""Reads facts about CPUs that only the kernel has: offline CPUs, and memory encryption."""

from collections.abc import Iterable

from drivers.errors import MalformedFact
from drivers.facts import CpuMap, SevKernel
from drivers.host.archive import Document, fields, whole
from drivers.host.sysfs import KernelFiles

SEV = "sys/module/kvm_amd/parameters"


def probe_sev(files: KernelFiles) -> SevKernel | None:
    """Return the parameters of kvm_amd; None where the module is not loaded."""
    documents = {name: files.read(f"{SEV}/{name}") for name in ("sev", "sev_es", "sev_snp")}
    if not any(documents.values()):
        return None
    return SevKernel(**{name: document is not None and _parse_switch(document) for name, document in documents.items()})


def probe_tdx(files: KernelFiles) -> int | None:
    """
    Return how many guests can have Intel TDX at a time, by the controller misc of cgroup v2 (the kernel's cgroup-v2).

    None where the kernel has no such file, or does not count them.
    """
    document = files.read("sys/fs/cgroup/misc.capacity")
    if document is None:
        return None
    for line in document.text.splitlines():
        name, _, count = line.partition(" ")
        if name == "tdx":
            with fields(document.source):
                return whole(int(count))
    return None


def probe_boot(files: KernelFiles) -> str | None:
    """Return the kernel's boot id, which is another one after each boot (random(4)); None where it is not known."""
    document = files.read("proc/sys/kernel/random/boot_id")
    return document.text.strip() or None if document else None


def probe_offline(
    files: KernelFiles, cpu_map: CpuMap, cells: Iterable[int], *, unplaced: Iterable[int] = ()
) -> tuple[tuple[int, int], ...]:
    """
    Return (CPU, cell) of the CPUs that are off, lowest first; without the CPUs whose cell the kernel does not know.

    ``unplaced`` are online CPUs that libvirt's topology lacks: they may have come online after it was read. They are
    looked up too.

    The kernel keeps the link ``cpuN/nodeM`` while a CPU is off; libvirt's topology and the node's own list of CPUs do
    not have the CPU then. Host archives record the texts of files and no links, so a file behind the link is read.
    """
    found = []
    known = tuple(cells)
    for cpu in sorted(set(range(cpu_map.total)) - cpu_map.online | set(unplaced)):
        for cell in known:
            if files.read(f"sys/devices/system/cpu/cpu{cpu}/node{cell}/distance") is not None:
                found.append((cpu, cell))
                break
    return tuple(found)


def _parse_switch(document: Document) -> bool:
    text = document.text.strip()
    if text not in ("Y", "N", "1", "0"):
        raise MalformedFact(f"{document.source} holds {text[:40]!r} where Y or N belongs")
    return text in ("Y", "1")
