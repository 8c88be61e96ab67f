"""Settings of a server: what it serves, on which address, and to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What ``ddlplan serve`` was started with."""

    db: str = "planner.db"
    host: str = "127.0.0.1"
    """Address or name that it listens on."""

    port: int = 0
    """0 takes any that is free."""

    allow_actions: bool = False
    """Whether jobs may be started and ended, and plans imported and removed."""

    token_file: Path | None = None
    """Holds the token that scripts send and people type."""

    use_cases: Sequence[str] = ()
    """Those that may be tuned and trained, as `launch.use_cases.make_workload` spells them."""

    spellings: Mapping[str, str] = field(default_factory=dict)
    """The same, by what was typed: a request may name them so too."""

    data: Path | None = None
    """Data of these use cases."""

    hosts: Path | None = None
    """Host file of the machines on which jobs may run, beside this one."""

    ssh_config: Path | None = None
    mpirun: str | None = None
    allow_run_as_root: bool = False

    public_urls: Sequence[str] = ()
    """Addresses under which a proxy in front shows it, such as ``https://lab.example``."""

    @property
    def access(self) -> dict[str, Any]:
        """Options of every job: how machines are reached."""
        given = {
            "ssh_config": self.ssh_config and str(self.ssh_config.absolute()),
            "mpirun": self.mpirun,
            "allow_run_as_root": self.allow_run_as_root,
        }
        return {name: value for name, value in given.items() if value}

    @property
    def host_options(self) -> dict[str, Any] | None:
        """Options of a job on several hosts; ``None`` where there is this machine alone."""
        return None if self.hosts is None else {"hosts": str(self.hosts.absolute())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Sizes, numbers and times beyond which a request is refused or a connection ended."""

    url_bytes: int = 4096
    header_bytes: int = 16 * 1024
    headers: int = 64
    body_bytes: int = 2**18
    """Many times a plan file: a list of plans is put together in memory."""

    connections: int = 512
    readers: int = 256
    """Open event streams."""

    waiting: int = 256
    """Requests that wait for a thread."""

    head_s: float = 10.0
    """For all headers of a request to come, counted from the connection or the last answer."""

    body_s: float = 10.0
    write_s: float = 15.0
    read_bytes: int = 16 * 1024
    """A client has to read so much of an answer in that time."""

    heartbeat_s: float = 15.0
    """Between lines that keep an event stream open."""

    poll_s: float = 0.5
    """Between looks for new events, while somebody follows them."""

    ends_s: float = 5.0
    """Between looks for jobs and trainings that were killed and could not say so, likewise."""

    wrong_tokens: int = 10
    """Of one address, at once; then one more every six seconds."""

    wrong_tokens_per_s: float = 1 / 6
