"""Hosts that connections over REST may reach: a list of names and ports, and rules about addresses.

A name is compared with the list when the connection is defined. A client resolves the name once, checks each
address and connects to one that was checked, so that a name that changes its address leads nowhere else.

Belongs here: the decision. Does not belong here: opening connections.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from etl_assets.errors import SettingsError

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host. Raises `OSError` if it has none now."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_METADATA = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "100.100.100.200", "192.0.0.192", "fd00:ec2::254"))
)
"""Addresses at which cloud providers hand out credentials of the machine."""


def resolve(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of a host, in the order of the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHosts:
    """What connections over REST may reach.

    Attributes:
        hosts: `host:port` each, with `*` and `?`.
        networks: Networks whose loopback, link-local and metadata addresses are allowed too.
    """

    hosts: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()

    def allows(self, host: str, port: int) -> bool:
        """Return whether a connection may name a host and port."""
        named = f"{host.lower().rstrip('.')}:{port}"
        return any(fnmatchcase(named, each.lower()) for each in self.hosts)

    def allows_address(self, text: str) -> bool:
        """Return whether a host may have an address."""
        address = _plain(ipaddress.ip_address(text.partition("%")[0]))
        if any(
            address.version == each.version and address in each
            for each in map(ipaddress.ip_network, self.networks)
        ):
            return True
        return not (
            address in _METADATA
            or address.is_loopback
            or address.is_link_local
            or address.is_multicast
            or address.is_unspecified
            or address.is_reserved
        )

    def address(self, host: str, port: int, resolve: Resolve = resolve) -> str:
        """Resolve a host, check all its addresses, and return the one to connect to.

        Raises:
            SettingsError: the host, or one of its addresses, is not allowed.
            OSError: the host has no address now.
        """
        if not self.allows(host, port):
            raise SettingsError(
                f"a connection over REST may not reach {host}:{port}",
                fix=f"add it to `rest.hosts` of the platform file, now [{', '.join(self.hosts)}]",
                field="rest.hosts",
                value=f"{host}:{port}",
            )
        found = resolve(host, port)
        if not found:
            raise OSError(f"{host} has no address")
        if not all(map(self.allows_address, found)):
            raise SettingsError(
                f"{host}:{port} is an address of this machine, of its link or of its cloud provider, which"
                " a connection over REST may not reach",
                fix="add its network to `rest.networks` of the platform file if it is meant",
                field="rest.networks",
                value=f"{host}:{port}",
            )
        return found[0]


def _plain(address: IpAddress) -> IpAddress:
    """Return the IPv4 address that an IPv6 address stands for, if it stands for one."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address
