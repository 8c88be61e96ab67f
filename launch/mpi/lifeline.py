"""Which ranks are gone? Asked of idle connections, which break when a host does.

MPI does not say: a rank that waits for a host whose network is cut waits for ever. The daemons of
mpirun notice, but not on the side that is cut off while its ranks have something to say there: then
the kernel tries for a quarter of an hour to send that. Nothing is ever sent over the connections
here, so that the kernel asks the other side in a few seconds, and nobody has to look after them.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network

from launch.mpi.ranks import Ranks
from probes.network import read_addresses

_IDLE_S, _ASK_EVERY_S, _QUESTIONS = 3, 2, 3
_GONE_AFTER_MS = 1000 * (_IDLE_S + _ASK_EVERY_S * _QUESTIONS)
_CONNECT_LIMIT_S = 3.0
_SET_UP_LIMIT_S = 10.0
_TOKEN_BYTES = 16
_RANK_BYTES = 4
_WELCOME, _GOODBYE = b"+", b"."


class Lifeline:
    """Connections between rank 0 and every other rank. Use it in a ``with`` block.

    Leaving it says goodbye: a rank that ends on purpose is not lost.
    """

    def __init__(self, ranks: Ranks, networks: Sequence[str] = ()) -> None:
        """Connect. Collective; ranks that find no way to rank 0 are left out, see `unwatched`.

        Args:
            ranks: Who.
            networks: Where they reach one another, such as ``10.0.0.0/24``; empty for any way.
        """
        self._peers: dict[int, socket.socket] = {}
        if ranks.rank == 0:
            self._welcome_all(ranks, networks)
        else:
            self._join(ranks)
        connected = ranks.all_gather(b"+" if self._peers or ranks.size == 1 else b"")
        self.unwatched = tuple(rank for rank in range(1, ranks.size) if not connected[rank])
        """Ranks whose loss would go unnoticed."""

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def find_lost(self) -> tuple[int, ...]:
        """Give the ranks that are gone without a goodbye: rank 0 sees all, the others rank 0.

        A host whose network is cut counts after nine seconds, a rank that died at once. This call
        does not wait.
        """
        return tuple(rank for rank, peer in self._peers.items() if _is_lost(peer))

    def close(self) -> None:
        """Say goodbye."""
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.send(_GOODBYE)
            peer.close()
        self._peers.clear()

    def _welcome_all(self, ranks: Ranks, networks: Sequence[str]) -> None:
        token = secrets.token_bytes(_TOKEN_BYTES)
        with _listen() as listener:
            where = {
                "port": listener.getsockname()[1],
                "addresses": _own_addresses(networks),
                "token": token.hex(),
            }
            ranks.broadcast(json.dumps(where).encode())
            give_up = time.monotonic() + _SET_UP_LIMIT_S
            while len(self._peers) < ranks.size - 1 and time.monotonic() < give_up:
                listener.settimeout(max(0.01, give_up - time.monotonic()))
                with contextlib.suppress(OSError):
                    self._welcome(listener.accept()[0], token)

    def _welcome(self, peer: socket.socket, token: bytes) -> None:
        """Take a rank in; whoever does not know the token is none of ours."""
        peer.settimeout(1.0)
        said = peer.recv(_TOKEN_BYTES + _RANK_BYTES, socket.MSG_WAITALL)
        if not secrets.compare_digest(said[:_TOKEN_BYTES], token):
            peer.close()
            return
        peer.sendall(_WELCOME)
        self._peers[int.from_bytes(said[_TOKEN_BYTES:], "big")] = _watched(peer)

    def _join(self, ranks: Ranks) -> None:
        where = json.loads(ranks.broadcast())
        hello = bytes.fromhex(where["token"]) + ranks.rank.to_bytes(_RANK_BYTES, "big")
        for address in where["addresses"]:
            # An address such as a docker bridge's may be another program's, or this host's own.
            with contextlib.suppress(OSError):
                peer = socket.create_connection((address, where["port"]), _CONNECT_LIMIT_S)
                peer.sendall(hello)
                if peer.recv(1) == _WELCOME:
                    self._peers[0] = _watched(peer)
                    return
                peer.close()


def _listen() -> socket.socket:
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _own_addresses(networks: Sequence[str]) -> list[str]:
    """Give this host's addresses in the networks, or all that others may reach it by."""
    found = [ip_address(one) for addresses in read_addresses().values() for one in addresses]
    allowed = [ip_network(network, strict=False) for network in networks]
    if allowed:
        found = [one for one in found if any(one in network for network in allowed)]
    usable = [one for one in found if not one.is_loopback and not one.is_link_local]
    return _unique(str(one) for one in usable or found)


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _watched(peer: socket.socket) -> socket.socket:
    """Let the kernel ask now and then whether the other side is there."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, _IDLE_S),
        (socket.TCP_KEEPINTVL, _ASK_EVERY_S),
        (socket.TCP_KEEPCNT, _QUESTIONS),
        (socket.TCP_USER_TIMEOUT, _GONE_AFTER_MS),
    ):
        peer.setsockopt(socket.IPPROTO_TCP, option, value)
    peer.setblocking(False)
    return peer


def _is_lost(peer: socket.socket) -> bool:
    try:
        return peer.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
