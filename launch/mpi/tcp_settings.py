"""Settings of MPI's TCP transport, and the time after which a host counts as lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TCP_MESSAGE_SETTINGS: Mapping[str, str] = {
    "btl_tcp_eager_limit": str(4 * 2**20),
    "btl_tcp_max_send_size": str(4 * 2**20),
}
"""Open MPI's settings for TCP. By default a message of more than 64 kB is announced, confirmed, and
then sent in pieces that wait for the other side: chunks of 4 MB get half of a 1 Gb/s link. Sent at
once they get 0.95 of it, as much as one message of 228 MB."""

DAEMON_KEEPALIVE: Mapping[str, str] = {
    "oob_tcp_keepalive_time": "4",
    "oob_tcp_keepalive_intvl": "2",
    "oob_tcp_keepalive_probes": "2",
}
"""Settings of mpirun and its daemons, in seconds: a host whose network is cut sends nothing. After
4 s it is probed, and counts as lost after two probes without reply; by default that takes eight
minutes. No network is set: that of Open MPI 5.0.11 takes a network's interface for another one, and
tries one address of a host after the other anyway."""


def message_settings(networks: Sequence[str]) -> dict[str, str]:
    """Give the settings for what ranks send to one another.

    Args:
        networks: The only ones that may be used; empty for all. A docker bridge has the same
            address on every host, and what is sent to it never arrives.
    """
    include = {"btl_tcp_if_include": ",".join(networks)} if networks else {}
    return {**TCP_MESSAGE_SETTINGS, **include}


def as_options(flag: str, settings: Mapping[str, str]) -> list[str]:
    """Write settings as options of mpirun."""
    return [word for name, value in settings.items() for word in (flag, name, value)]


def as_variables(settings: Mapping[str, str]) -> list[str]:
    """Write settings as what ``env`` sets for a rank that no mpirun starts."""
    return [f"OMPI_MCA_{name}={value}" for name, value in settings.items()]
