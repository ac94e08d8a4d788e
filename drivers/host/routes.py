"""Asks the kernel by rtnetlink(7) which interfaces its routes use; /proc/net/route has one table, and one next hop."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from struct import Struct

ROUTED = "routed.txt"  # the file of a host archive
PATIENCE_S = 10
ATTEMPTS = 5
# From linux/netlink.h and linux/rtnetlink.h; each part begins with its length, and is filled up to 4 bytes.
MESSAGE, ROUTE, ATTRIBUTE, NEXT_HOP = Struct("=IHHII"), Struct("=8BI"), Struct("=HH"), Struct("=HBBi")
NLMSG_ERROR, NLMSG_DONE, RTM_GETROUTE, REQUEST_DUMP, NLM_F_DUMP_INTR = 2, 3, 26, 0x301, 0x10
RTA_DST, RTA_OIF, RTA_MULTIPATH = 1, 4, 9


def list_routed() -> str:
    """
    Return the interfaces, a line for each, that an address or a route of any table uses, each next hop counted.

    An address has a route in the table local. IPv6's link-local and multicast routes, which each interface has, are
    left out.

    Raises:
        OSError: the kernel does not answer, or the routes change each time while they are listed.
    """
    for _ in range(ATTEMPTS):
        if (found := _dump()) is not None:
            return "".join(f"{name}\n" for index, name in socket.if_nameindex() if index in found)
    raise OSError(errno.EINTR, "the routes change while they are listed")


def _dump() -> set[int] | None:
    """Return the numbers of the interfaces; None where the kernel says that a change made its answer incomplete."""
    found: set[int] = set()
    whole = True
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as kernel:
        kernel.settimeout(PATIENCE_S)
        kernel.send(MESSAGE.pack(MESSAGE.size + ROUTE.size, RTM_GETROUTE, REQUEST_DUMP, 0, 0) + bytes(ROUTE.size))
        kind = 0
        while kind != NLMSG_DONE:
            for (_, kind, flags, *_), body in _parts(memoryview(kernel.recv(1 << 16)), MESSAGE):
                whole &= not flags & NLM_F_DUMP_INTR
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    if number := -int.from_bytes(body[:4], sys.byteorder, signed=True):
                        raise OSError(number, os.strerror(number))
                else:
                    found.update(_interfaces(body))
    return found if whole else None


def _interfaces(route: memoryview) -> Iterator[int]:
    attributes = {kind: value for (_, kind), value in _parts(route[ROUTE.size :], ATTRIBUTE)}
    target = bytes(attributes.get(RTA_DST, b""))
    if route[0] == socket.AF_INET6 and target.startswith((b"\xfe\x80", b"\xff")):
        return
    if RTA_OIF in attributes:
        yield int.from_bytes(attributes[RTA_OIF], sys.byteorder)
    for (*_, index), _ in _parts(attributes.get(RTA_MULTIPATH, memoryview(b"")), NEXT_HOP):
        yield index


def _parts(data: memoryview, head: Struct) -> Iterator[tuple[tuple[int, ...], memoryview]]:
    """Yield the head of each part, which begins with the length of the part, and what follows the head."""
    while data:
        fields = head.unpack_from(data)
        yield fields, data[head.size : fields[0]]
        data = data[(fields[0] + 3) & ~3 :]
