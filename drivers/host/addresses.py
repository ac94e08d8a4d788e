"""Tells by its addresses whether a host that a URI names is this machine."""

import socket
from ipaddress import ip_address

import psutil

from drivers.errors import DiscoveryError


def is_own(host: str) -> bool:
    """
    Return whether a name or an address is one of this machine, in this network namespace.

    Raises:
        DiscoveryError: the resolver does not know the name, or does not answer.
    """
    own = {one.address.partition("%")[0] for interface in psutil.net_if_addrs().values() for one in interface}
    try:
        found = {str(address[0]) for *_, address in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise DiscoveryError(
            f"cannot resolve {host}, the host in [libvirt] connection_uri: {error}: write its address there"
        ) from error
    return any(one in own or ip_address(one).is_loopback for one in found)
