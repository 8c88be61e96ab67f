"""How do MPI's messages travel between nodes, and when is a host given up?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MESSAGES: Mapping[str, str] = {
    "btl_tcp_eager_limit": str(4 * 2**20),
    "btl_tcp_max_send_size": str(4 * 2**20),
}
"""Open MPI's settings for TCP. By default a message of more than 64 kB is announced, answered, and
then sent in pieces that wait for the other side: chunks of 4 MB get half of a 1 Gb/s link. Sent at
once they get 0.95 of it, as much as one message of 228 MB."""

KEEPALIVE: Mapping[str, str] = {
    "oob_tcp_keepalive_time": "4",
    "oob_tcp_keepalive_intvl": "2",
    "oob_tcp_keepalive_probes": "2",
}
"""PRRTE's settings, in seconds: a host whose network is cut says nothing. After 4 s of silence it
is asked, and given up when it has not answered twice; by default that takes eight minutes."""


def message_options(networks: Sequence[str]) -> list[str]:
    """Give the options for what ranks send to one another.

    Args:
        networks: The only ones that may be used; empty for all. A docker bridge has the same
            address on every host, and what is sent to it never arrives.
    """
    values = dict(MESSAGES)
    if networks:
        values["btl_tcp_if_include"] = ",".join(networks)
    return _options("--mca", values)


def daemon_options() -> list[str]:
    """Give the options for PRRTE, which starts the ranks and watches them.

    It is told no network: that of Open MPI 5.0.11 takes a network's interface for another one. It
    tries one address of a host after the other anyway.
    """
    return _options("--prtemca", KEEPALIVE)


def _options(flag: str, values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (flag, name, value)]
