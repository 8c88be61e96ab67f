"""Networks over which the hosts of a job reach each other.

MPI would try every interface that is up, and wait for ever on one that leads nowhere: the loopback
that Debian's ``/etc/hosts`` gives a host's own name (127.0.1.1), or Docker's bridge, which has the
same address on each host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from launch.hosts.host_facts import HostAddress, HostFacts

_LOCAL_KINDS = ("loopback", "docker")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkChoice:
    """The chosen networks, and each host's address there."""

    networks: tuple[str, ...] = ()
    """In CIDR form; empty for one host, and where there is none."""

    addresses: Mapping[str, HostAddress] = field(default_factory=dict)
    """By host: its address there."""

    faster: str | None = None
    """Another network that all hosts are on, nominally faster than the chosen one."""

    is_routed: bool = False
    """Whether no network has all hosts: some reach the others through routers."""

    unreached: Mapping[str, str] = field(default_factory=dict)
    """By host that is on no network with the others: one to which no route leads, or none back."""


def choose_networks(
    hosts: Mapping[str, HostFacts], reached_addresses: Mapping[str, str | None]
) -> NetworkChoice:
    """Choose the network over which the hosts reach each other.

    Of several that all are on, the one through which ssh reached them: so the user's names for the
    hosts decide. Where some are on no network with the others, they may still have routes.

    Args:
        hosts: Facts by host.
        reached_addresses: The address under which each was reached, where that is known.
    """
    if len(hosts) < 2:
        return NetworkChoice()
    by_host = {name: _by_network(facts.addresses) for name, facts in hosts.items()}
    members = {network: _members(network, by_host) for by in by_host.values() for network in by}
    ranked = sorted(
        (network for network in members if len(members[network]) > 1),
        key=lambda network: (
            -len(members[network]),
            -sum(
                by_host[name][network].address == reached_addresses.get(name)
                for name in members[network]
            ),
            ip_network(network).is_link_local,
            ip_network(network).version,
            -_speed(network, by_host),
            network,
        ),
    )
    inside = {name: by_host[name][ranked[0]] for name in members[ranked[0]]} if ranked else {}
    if len(inside) == len(hosts):
        full = [network for network in ranked if len(members[network]) == len(hosts)]
        speed = _speed(full[0], by_host)
        fastest = max(full, key=lambda network: _speed(network, by_host))
        return NetworkChoice(
            networks=(full[0],),
            addresses=inside,
            faster=fastest if 0 < speed < _speed(fastest, by_host) else None,
        )
    return _with_routes(hosts, inside, reached_addresses)


def _by_network(addresses: Sequence[HostAddress]) -> dict[str, HostAddress]:
    """Give a host's address on each network that leads out of it; the first where there are two.

    Link-local ones of version 6 say nothing: each interface is on fe80::/64, wherever it leads.
    """
    found: dict[str, HostAddress] = {}
    for own in addresses:
        address = ip_address(own.address)
        is_everywhere = address.version == 6 and address.is_link_local
        if own.kind in _LOCAL_KINDS or address.is_loopback or is_everywhere:
            continue
        # A network of one address is a link to a router.
        if ip_network(own.network).num_addresses > 1:
            found.setdefault(own.network, own)
    return found


def _members(network: str, by_host: Mapping[str, Mapping[str, HostAddress]]) -> list[str]:
    """List the hosts on a network; none where two have the same address there.

    Those have networks of the same number, each to itself.
    """
    there = [name for name, by in by_host.items() if network in by]
    return there if len({by_host[name][network].address for name in there}) == len(there) else []


def _speed(network: str, by_host: Mapping[str, Mapping[str, HostAddress]]) -> float:
    return min(by[network].speed_bytes_per_s or 0.0 for by in by_host.values() if network in by)


def _with_routes(
    hosts: Mapping[str, HostFacts],
    inside: Mapping[str, HostAddress],
    reached_addresses: Mapping[str, str | None],
) -> NetworkChoice:
    """Include hosts outside of the network that most are on, where routes lead both ways."""
    found = dict(inside)
    unreached: dict[str, str] = {}
    for name in (name for name in hosts if name not in inside):
        others = [other for other in hosts if other != name and other not in unreached]
        sources = {other: _source(hosts[name], reached_addresses.get(other)) for other in others}
        lost = [
            o for o in others if not (sources[o] and _source(hosts[o], reached_addresses.get(name)))
        ]
        if lost or not others:
            unreached[name] = next(iter(lost or hosts))
        elif (source := sources[others[0]]) is not None:
            found[name] = source
    networks = tuple(dict.fromkeys(_as_mpi_reads(own) for own in found.values()))
    return NetworkChoice(networks=networks, addresses=found, is_routed=True, unreached=unreached)


def _as_mpi_reads(own: HostAddress) -> str:
    """Write the network of an address for Open MPI.

    Clouds give addresses that are networks of their own (/32). Open MPI 5.0 finds no interface for
    such a one and then takes all that there are, the loopback first; one bit less, and it does.
    """
    network = ip_network(own.network)
    return str(network.supernet() if network.num_addresses == 1 else network)


def _source(facts: HostFacts, reached_address: str | None) -> HostAddress | None:
    """Find the address from which a host sends to another address."""
    source = None if reached_address is None else facts.routes.get(reached_address)
    usable = (own for own in facts.addresses if own.kind not in _LOCAL_KINDS)
    return next((own for own in usable if own.address == source), None)
