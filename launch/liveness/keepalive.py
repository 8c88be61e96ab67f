"""Keepalive connections between ranks, which break when a host is lost.

MPI does not report it: a rank that waits for a host whose network is cut waits for ever. mpirun's
daemons notice, but not on the side that is cut off while its ranks have output to send: then the
kernel tries for a quarter of an hour to send that. Nothing is ever sent over these connections, so
that the kernel probes the other side in a few seconds.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from launch.mpi.ranks import Ranks
from probes import codec
from probes.network.interfaces import read_addresses

_KEEPALIVE_IDLE_S, _KEEPALIVE_INTERVAL_S, _KEEPALIVE_PROBES = 3, 2, 3
_USER_TIMEOUT_MS = 1000 * (_KEEPALIVE_IDLE_S + _KEEPALIVE_INTERVAL_S * _KEEPALIVE_PROBES)
_CONNECT_LIMIT_S = 3.0
_SET_UP_LIMIT_S = 10.0
_TOKEN_BYTES = 16
_RANK_BYTES = 4
_ACCEPTED, _GOODBYE = b"+", b"."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoint:
    """Addresses at which rank 0 listens, and the token by which it knows its ranks."""

    addresses: tuple[tuple[str, int], ...]
    """Each with its port."""
    token: str


class Keepalive:
    """Connections between rank 0 and every other rank. Use it in a ``with`` block.

    Leaving it sends a close message: a rank that ends on purpose is not lost.
    """

    def __init__(self, ranks: Ranks, networks: Sequence[str] = ()) -> None:
        """Connect. Collective; ranks that find no way to rank 0 are left out, see `unconnected`.

        Args:
            ranks: All ranks of the job.
            networks: Where they reach one another, such as ``10.0.0.0/24``; empty for any way.
        """
        self._connections: dict[int, socket.socket] = {}
        if ranks.rank == 0:
            self._accept_all(ranks, networks)
        else:
            self._connect(ranks)
        connected = ranks.all_gather(b"+" if self._connections or ranks.size == 1 else b"")
        self.unconnected = tuple(rank for rank in range(1, ranks.size) if not connected[rank])
        """Ranks whose loss would go unnoticed."""
        for rank in self.unconnected:  # one that gave up before it was accepted is not lost
            if (given_up := self._connections.pop(rank, None)) is not None:
                given_up.close()

    def __enter__(self) -> Keepalive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find_lost(self) -> tuple[int, ...]:
        """Find the ranks that ended without a close message: rank 0 checks all, the others rank 0.

        A host whose network is cut counts after nine seconds, a rank that died at once. This call
        does not wait.
        """
        return tuple(rank for rank, connection in self._connections.items() if _is_lost(connection))

    def close(self) -> None:
        """Send the close message."""
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.send(_GOODBYE)
            connection.close()
        self._connections.clear()

    def _accept_all(self, ranks: Ranks, networks: Sequence[str]) -> None:
        token = secrets.token_bytes(_TOKEN_BYTES)
        with contextlib.ExitStack() as listening:
            listeners = {} if ranks.size == 1 else _listen(_own_addresses(networks), listening)
            endpoint = _Endpoint(
                addresses=tuple(
                    (address, one.getsockname()[1]) for address, one in listeners.items()
                ),
                token=token.hex(),
            )
            ranks.broadcast(codec.encode(endpoint))
            deadline = time.monotonic() + _SET_UP_LIMIT_S
            while len(self._connections) < ranks.size - 1:
                left_s = max(0.0, deadline - time.monotonic())
                knocked_at, _, _ = select.select(list(listeners.values()), [], [], left_s)
                if not knocked_at or not left_s:  # strangers may knock for ever
                    break
                for listener in knocked_at:
                    with contextlib.suppress(OSError):
                        self._accept(listener.accept()[0], token)

    def _accept(self, connection: socket.socket, token: bytes) -> None:
        """Accept a rank; a process without the token is none of ours."""
        connection.settimeout(1.0)
        received = connection.recv(_TOKEN_BYTES + _RANK_BYTES, socket.MSG_WAITALL)
        if not secrets.compare_digest(received[:_TOKEN_BYTES], token):
            connection.close()
            return
        connection.sendall(_ACCEPTED)
        self._connections[int.from_bytes(received[_TOKEN_BYTES:], "big")] = _enable_keepalive(
            connection
        )

    def _connect(self, ranks: Ranks) -> None:
        endpoint = codec.decode(
            ranks.broadcast(), _Endpoint, source="endpoint", allow_unknown_keys=False
        )
        handshake = bytes.fromhex(endpoint.token) + ranks.rank.to_bytes(_RANK_BYTES, "big")
        for address in endpoint.addresses:
            # An address such as a docker bridge's may be another program's, or this host's own.
            with contextlib.suppress(OSError):
                connection = socket.create_connection(address, _CONNECT_LIMIT_S)
                connection.sendall(handshake)
                if connection.recv(1) == _ACCEPTED:
                    self._connections[0] = _enable_keepalive(connection)
                    return
                connection.close()


def _listen(addresses: Sequence[str], listening: contextlib.ExitStack) -> dict[str, socket.socket]:
    """Listen on these addresses and no others, those left out where that is not possible."""
    listeners = {}
    for address in addresses:
        family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
        with contextlib.suppress(OSError):
            listener = listening.enter_context(socket.create_server((address, 0), family=family))
            listener.settimeout(1.0)  # who knocked may be gone again
            listeners[address] = listener
    return listeners


def _own_addresses(networks: Sequence[str]) -> tuple[str, ...]:
    """List this host's addresses in the networks, or all at which others may reach it."""
    found = [ip_address(one) for addresses in read_addresses().values() for one in addresses]
    allowed = [ip_network(network, strict=False) for network in networks]
    if allowed:
        found = [one for one in found if any(one in network for network in allowed)]
    usable = [one for one in found if not one.is_loopback and not one.is_link_local]
    return tuple(dict.fromkeys(str(one) for one in usable or found))


def _enable_keepalive(connection: socket.socket) -> socket.socket:
    """Have the kernel probe the other side every few seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
        (socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S),
        (socket.TCP_KEEPCNT, _KEEPALIVE_PROBES),
        (socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    connection.setblocking(False)
    return connection


def _is_lost(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
