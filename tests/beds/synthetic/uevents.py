"""Events as systemd-udevd sends them to libudev's listeners, in the network namespace of who calls."""

import socket
import struct
import sys
import time
from itertools import count
from pathlib import Path

NETLINK_KOBJECT_UEVENT, UDEV_GROUP = 15, 2
MAGIC = 0xFEEDCAFE
_MULTIPLIER, _MASK = 0x5BD1E995, 0xFFFFFFFF
_numbers = count(int(time.time()))


def send(action: str, folder: str) -> None:
    """``add``, ``remove`` or ``change`` of a device by its folder in /sys, which may be gone already."""
    device = folder.removeprefix("/sys")
    facts = {"ACTION": action, "DEVPATH": device, "SEQNUM": str(next(_numbers)), "USEC_INITIALIZED": "1"}
    facts["SUBSYSTEM"] = _subsystem(Path(f"/sys{device}"))
    uevent = Path(f"/sys{device}/uevent")
    if uevent.exists():
        facts |= dict(line.split("=", 1) for line in uevent.read_text().splitlines() if "=" in line)
    body = b"".join(f"{name}={value}".encode() + b"\0" for name, value in facts.items())
    # libudev/libudev-monitor.c: the receiver's filters go by hashes in the header
    header = struct.pack("=8sIIII", b"libudev\0", socket.htonl(MAGIC), 40, 40, len(body))
    header += struct.pack(">IIII", _murmur(facts["SUBSYSTEM"].encode()), 0, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as netlink:
        netlink.bind((0, 0))
        netlink.sendto(header + body, (0, UDEV_GROUP))


def _subsystem(folder: Path) -> str:
    """Of a device that is there by its link, of one that is gone by where it was."""
    if folder.exists():
        return (folder / "subsystem").resolve().name
    if folder.parent.name == "net":
        return "net"
    return "mdev" if folder.name.count("-") == 4 else "pci"


def _murmur(text: bytes) -> int:
    """MurmurHash2 with seed 0, as libudev hashes subsystems."""
    value, rest = len(text), text
    while len(rest) >= 4:
        word = struct.unpack("<I", rest[:4])[0] * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value, rest = value * _MULTIPLIER & _MASK ^ word, rest[4:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


if __name__ == "__main__":
    print("inside", flush=True)  # of the namespaces, by now
    for line in sys.stdin:
        send(*line.split())
        print("sent", flush=True)
