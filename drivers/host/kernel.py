"""Reads facts that only the kernel has: offline CPUs, memory encryption, the boot, and where guests' memory is."""

from collections.abc import Iterable

from drivers.errors import MalformedFact
from drivers.facts import CpuMap, SevKernel
from drivers.host.archive import Document, KernelFiles, fields, whole

SEV = "sys/module/kvm_amd/parameters"
COUNTED = ("anon", "file")  # kinds of a guest's memory; all other kinds are part of these


def probe_sev(files: KernelFiles) -> SevKernel | None:
    """
    Return the parameters of kvm_amd (svm/sev.c); None where the module is not loaded.

    A loaded module shows them in /sys/module (admin-guide/kernel-parameters.rst): Y or N, and as a number 1 or 0.
    """
    documents = {name: files.read(f"{SEV}/{name}") for name in ("sev", "sev_es", "sev_snp")}
    if not any(documents.values()):
        return None
    return SevKernel(**{name: document is not None and _parse_switch(document) for name, document in documents.items()})


def hides_groups(files: KernelFiles) -> bool:
    """
    Return whether a container sees its own control groups in place of the host's.

    The root of its cgroup namespace is no root of the host, and these have a file cgroup.type (cgroup-v2).
    """
    return files.read("sys/fs/cgroup/cgroup.type") is not None


def hides_tdx(files: KernelFiles) -> bool:
    """Return whether the number of guests with Intel TDX is hidden: of the host's cgroup v2 not even the root shows."""
    return hides_groups(files) or not any(
        files.read(f"sys/fs/cgroup/{name}") for name in ("misc.capacity", "cgroup.controllers")
    )


def probe_tdx(files: KernelFiles) -> int | None:
    """
    Return how many guests can have Intel TDX at a time, by the controller misc of cgroup v2 (the kernel's cgroup-v2).

    None where the kernel has no such file, as in a container with control groups of its own, or does not count them.
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

    The kernel keeps the link ``cpuN/nodeM`` (sysfs-devices-system-cpu) while a CPU is off; libvirt's topology and the
    node's own list of CPUs do not have the CPU then (the kernel's drivers/base/node.c). Host archives record the texts
    of files and no links, so a file behind the link is read.
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


def probe_residency(files: KernelFiles, id_: int, name: str) -> tuple[tuple[int, int], ...]:
    """
    Return (cell, KiB) of the memory of the libvirt domain with this id and name, most first.

    Its control group tells it (cgroup-v2, memory.numa_stat); () without one. systemd-machined makes the group, or
    libvirt itself where there is no systemd (libvirt: cgroups.html).
    """
    scope = "".join(one if one.isalnum() or one in "_." else f"\\x{ord(one):02x}" for one in f"qemu-{id_}-{name}")
    for group in (f"machine.slice/machine-{scope}.scope", f"machine/qemu-{id_}-{name}.libvirt-qemu"):
        document = files.read(f"sys/fs/cgroup/{group}/memory.numa_stat")
        if document is not None:
            return _parse_residency(document)
    return ()


def _parse_residency(document: Document) -> tuple[tuple[int, int], ...]:
    """Parse lines like ``anon N0=4096 N1=0``, in bytes."""
    total: dict[int, int] = {}
    for line in document.text.splitlines():
        kind, *counts = line.split() or [""]
        for count in counts if kind in COUNTED else ():
            cell, sign, amount = count.partition("=")
            if not (sign and cell.startswith("N") and cell[1:].isdecimal() and amount.isdecimal()):
                raise MalformedFact(f"{document.source} holds {count[:40]!r} where an amount like N0=123 belongs")
            total[int(cell[1:])] = total.get(int(cell[1:]), 0) + int(amount) // 1024
    return tuple(sorted(total.items(), key=lambda item: (-item[1], item[0])))
