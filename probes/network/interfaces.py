"""Networks of this node, and the interface that leads to an address."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]

from probes.hardware import NetworkInterface
from probes.kernel_files import ROOT, read_int, read_text

_BYTES_PER_MEGABIT = 125_000
_IP_FAMILIES = (socket.AF_INET, socket.AF_INET6)

# <linux/if_arp.h>, <linux/if.h>
_ARPHRD_LOOPBACK = 772
_IFF_UP = 0x1

_DOCKER_BRIDGE = re.compile(r"docker\d*|docker_gwbridge|br-[0-9a-f]{12}")
"""Docker's own bridges, and those of its networks. OpenWrt and Open vSwitch have a `br-lan`, a
`br-ex`."""


def read_networks(
    root: Path = ROOT, addresses: Mapping[str, Sequence[str]] | None = None
) -> tuple[NetworkInterface, ...]:
    """Read every interface from ``/sys/class/net``, sorted by name.

    Args:
        root: Root of the file system to read from.
        addresses: Addresses by interface; those of this machine when left out.
    """
    addresses = read_addresses() if addresses is None else addresses
    # `bonding_masters` in there is a plain file
    directories = sorted(path for path in (root / "sys/class/net").glob("*") if path.is_dir())
    return tuple(_read_interface(path, addresses.get(path.name, ())) for path in directories)


def read_addresses() -> dict[str, tuple[str, ...]]:
    """Give the IP addresses of each interface of this machine, without the zone."""
    return {
        name: tuple(_without_zone(a.address) for a in found if a.family in _IP_FAMILIES)
        for name, found in psutil.net_if_addrs().items()
    }


def read_subnets() -> dict[str, tuple[str, ...]]:
    """Give the IP addresses of each interface with the length of their prefix: ``10.0.0.1/24``."""
    return {
        name: tuple(
            f"{_without_zone(a.address)}/{int(ip_address(a.netmask)).bit_count()}"
            for a in found
            if a.family in _IP_FAMILIES and a.netmask
        )
        for name, found in psutil.net_if_addrs().items()
    }


def find_source(address: str) -> str | None:
    """Give the address of ours that packets to ``address`` carry; ``None`` without a route.

    Connecting a UDP socket makes the kernel choose a route and sends nothing.

    Args:
        address: An IP address in numbers; a name would need a server.
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            address, 9, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return _without_zone(str(probe.getsockname()[0]))
    except OSError:
        return None


def _read_interface(directory: Path, addresses: Sequence[str]) -> NetworkInterface:
    # down links give -1 or fail; some virtual ones 0 or the largest number that fits
    megabits_per_s = read_int(directory / "speed") or 0
    is_known = 0 < megabits_per_s < 2**31 - 1
    return NetworkInterface(
        name=directory.name,
        kind=_kind(directory),
        is_up=_is_up(directory),
        addresses=tuple(addresses),
        speed_bytes_per_s=float(megabits_per_s * _BYTES_PER_MEGABIT) if is_known else None,
    )


def _kind(directory: Path) -> str:
    name = directory.name
    if read_int(directory / "type") == _ARPHRD_LOOPBACK:
        return "loopback"
    if (directory / "bridge").exists():
        return "docker" if _DOCKER_BRIDGE.fullmatch(name) else "bridge"
    if (directory / "bonding").exists():
        return "bond"
    return "physical" if (directory / "device").exists() else "virtual"


def _is_up(directory: Path) -> bool:
    state = read_text(directory / "operstate")
    if state in (None, "unknown"):  # loopback and tunnels do not report a state
        flags = read_text(directory / "flags") or "0"
        return bool(int(flags, 16) & _IFF_UP)
    return state == "up"


def _without_zone(address: str) -> str:
    return address.partition("%")[0]
