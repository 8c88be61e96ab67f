"""Testbed: several hosts on one machine, as ddlplan meets them on a cluster.

A host is a set of namespaces with its own network, name, /dev/shm and scratch folder, an sshd with
keys made for it, and a control group. A switch, in a namespace too, joins the hosts. This machine
has a plug in it, so that it reaches them as a login node would, but is none of them. Files are
shared but for `Testbed.scratch`, which is a path that leads to another folder on each host.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.cgroups import CGroup
from testbed.programs import SSHD, TestbedError, run
from testbed.slot import Slot, sweep_free_slots
from testbed.space import Space, is_alive, network_of

_START_LIMIT_S = 60.0
_POLL_S = 0.1  # to look at the network of every process takes time of a core
_THIS_MACHINE = 254

_HOST_SETUP = """
hostname {name}
mount --bind {folder}/hosts {etc_hosts}
mount --bind {own} {scratch}
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
# A new /sys shows this host's interfaces; the control groups below it are put back.
mount --rbind /sys/fs/cgroup {folder}/cgroup
mount -t sysfs sysfs /sys
mount --rbind {folder}/cgroup /sys/fs/cgroup
umount -l {folder}/cgroup
ip link set lo up
"""

_SSHD_CONFIG = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PrintLastLog no
# What a program leaves behind there goes with the hosts.
SetEnv TMPDIR={folder}/tmp
MaxStartups 100
# A session whose other end was cut off would be there for hours.
ClientAliveInterval 2
ClientAliveCountMax 2
"""

_SSH_CONFIG = """
Host {name} {address} {address_v6}
  HostName {address}
  HostKeyAlias testbed
  User root
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


class TestHost:
    """One host of a testbed."""

    __test__ = False

    def __init__(self, slot: Slot, number: int, name: str, scratch: Path) -> None:
        self.name = name
        self.number = number
        self.address = slot.address(number)
        self.address_v6 = slot.address_v6(number)
        self.own_scratch = slot.folder / f"scratch-{name}"
        """What is at `Testbed.scratch` on this host, as this machine sees it."""
        self.own_scratch.mkdir()
        self._log = slot.folder / f"sshd-{name}.log"
        self.group = CGroup(f"{slot.name}-{number}")
        setup = _HOST_SETUP.format(
            name=name,
            folder=slot.folder,
            own=self.own_scratch,
            scratch=scratch,
            etc_hosts="/etc/hosts",
        )
        self.space = Space(("net", "uts", "mount"), self.group, setup)
        self._daemon: subprocess.Popen[bytes] | None = None

    def command(self, argv: Sequence[str], folder: Path | None = None) -> list[str]:
        """Give the command that runs a program there, for `subprocess.Popen`.

        The process that it starts becomes the program: what is sent to one reaches the other.
        """
        return self.space.command(argv, folder or Path.cwd())

    def run(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program there to its end; its exit code is the caller's business."""
        defaults = {"capture_output": True, "text": True, "check": False}
        return subprocess.run(self.command(argv), **(defaults | options))

    def pids(self) -> set[int]:
        """Give every process of the host but those that are the host: empty means at rest."""
        network = self.space.network
        found = {int(one.name) for one in Path("/proc").iterdir() if one.name.isdecimal()}
        inside = {pid for pid in found if network_of(pid) == network} | self.group.pids()
        return {pid for pid in inside - self._own() if is_alive(pid)}

    def command_lines(self) -> dict[int, list[str]]:
        """Give the words of each of these processes, the oldest first, unless it ends meanwhile."""
        found = {}
        for pid in sorted(self.pids()):
            with contextlib.suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return found

    def find(self, words: str) -> list[int]:
        """Give those of Python whose command line has these words, the oldest first."""
        lines = self.command_lines().items()
        return [pid for pid, line in lines if "python" in line[0] and words in " ".join(line)]

    def workers(self) -> list[int]:
        """Give the processes that train: their fork server has the same command line."""
        servers = self.find("launch.workers.fork_server")
        return [pid for pid in servers if _parent_of(pid) in servers]

    def _own(self) -> set[int]:
        return {self.space.pid} | ({self._daemon.pid} if self._daemon else set())

    def start_sshd(self, config: Path) -> None:
        """Let ssh in."""
        with self._log.open("ab") as log:
            self._daemon = subprocess.Popen(
                self.command([SSHD, "-D", "-e", "-f", str(config)], Path("/")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for_sshd(self) -> None:
        """Wait until ssh gets an answer; to connect would start a process, which ends late.

        Raises:
            TestbedError: It does not come.
        """
        give_up = time.monotonic() + _START_LIMIT_S
        while "Server listening" not in (said := self._log.read_text()):
            if time.monotonic() > give_up:
                raise TestbedError(f"sshd of {self.name} does not start: {said.strip()}")
            time.sleep(0.01)

    def stop_sshd(self) -> None:
        """Let nobody in any more; who is in stays."""
        if self._daemon is not None:
            self._daemon.kill()
            self._daemon.wait()
            self._daemon = None

    def close(self) -> None:
        """End the host and all that runs on it."""
        self.group.kill()
        self.stop_sshd()
        self.space.close()
        self.group.remove()


class Testbed:
    """Hosts on a switch. Use it in a ``with`` block; leaving it leaves nothing behind."""

    __test__ = False

    def __init__(
        self,
        num_hosts: int = 2,
        *,
        names: Sequence[str] | None = None,
        rate: str | None = None,
        quotas: Sequence[float | None] = (),
        cores: Sequence[str | None] = (),
    ) -> None:
        """Bring the hosts up.

        Args:
            num_hosts: How many.
            names: What they are called; ``node1``, ``node2``, ... by default.
            rate: Of each host's link, as `set_rate` takes it.
            quotas: By host, as `set_quota` takes them.
            cores: By host, as `set_cores` takes them.

        Raises:
            TestbedError: It cannot be.
        """
        sweep_free_slots()
        self._slot = Slot()
        self._is_up = True
        self.hosts: list[TestHost] = []
        self._switch: Space | None = None
        self._switch_group = CGroup(f"{self._slot.name}-switch")
        try:
            self._bring_up(list(names or [f"node{i}" for i in range(1, num_hosts + 1)]))
            self.set_rate(rate)
            for host, quota in zip(self.hosts, quotas, strict=False):
                self.set_quota(host, quota)
            for host, allowed in zip(self.hosts, cores, strict=False):
                if allowed is not None:
                    host.group.set_cores(allowed)
        except BaseException:
            self.down()
            raise

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def folder(self) -> Path:
        """A folder of this machine that goes with the testbed."""
        return self._slot.folder

    @property
    def network(self) -> str:
        """The network of the hosts, such as ``198.18.1.0/24``."""
        return self._slot.network

    @property
    def address(self) -> str:
        """What the hosts reach this machine by."""
        return self._slot.address(_THIS_MACHINE)

    @property
    def scratch(self) -> Path:
        """A path that is another folder on each host."""
        return self.folder / "scratch"

    @property
    def ssh_config(self) -> Path:
        """What ``ssh -F`` and ``ddlplan --ssh-config`` need to log in to the hosts."""
        return self.folder / "ssh_config"

    def write_host_file(self, path: Path, hosts: Sequence[TestHost] | None = None) -> Path:
        """Write a host file with some of the hosts, by default all."""
        path.write_text("".join(f"{host.name}\n" for host in hosts or self.hosts))
        return path

    def options(self, folder: Path) -> list[str]:
        """Give the options of a command of ddlplan on all hosts, whose file it has in a folder."""
        file = self.write_host_file(folder / "hosts")
        return ["--hosts", str(file), "--ssh-config", str(self.ssh_config), "--allow-run-as-root"]

    def set_rate(self, rate: str | None, hosts: Sequence[TestHost] | None = None) -> None:
        """Limit what hosts send, such as ``1gbit``, by default all hosts; ``None``: no limit.

        One shaper per direction, and a queue of 5 ms: with two in a row, or a shorter queue, even
        iperf3 gets half of the rate.
        """
        for host in hosts or self.hosts:
            host.run(["tc", "qdisc", "delete", "dev", "eth0", "root"])
            if rate is not None:
                shape = ["root", "tbf", "rate", rate, "burst", "128kb", "latency", "5ms"]
                _checked(host, ["tc", "qdisc", "add", "dev", "eth0", *shape])

    def set_quota(self, host: TestHost, cores: float | None) -> None:
        """Slow a host down to a share of a core, such as 0.5; ``None``: all that there is."""
        host.group.set_quota(cores)

    def set_cores(self, host: TestHost, cores: str) -> None:
        """Let a host have these cores alone, such as ``0-1,3``."""
        host.group.set_cores(cores)

    def cut(self, host: TestHost) -> None:
        """Take a host off the network. It is not told: packets just do not arrive any more."""
        self._on_switch("ip", "link", "set", f"port{host.number}", "nomaster")

    def mend(self, host: TestHost) -> None:
        """Take that back."""
        self._on_switch("ip", "link", "set", f"port{host.number}", "master", "switch")

    def pids(self) -> set[int]:
        """Give every process of every host. A login that has ended may be there for a moment."""
        return {pid for host in self.hosts for pid in host.pids()}

    def left_over(self, *, patience_s: float = 60.0) -> set[int]:
        """Give the processes that are still on any host when there was time for them to end."""
        give_up = time.monotonic() + patience_s
        while (left := self.pids()) and time.monotonic() < give_up:
            time.sleep(_POLL_S)
        return left

    def down(self) -> None:
        """End everything, also what does not want to."""
        if not self._is_up:
            return
        for host in self.hosts:
            host.close()
        self.hosts.clear()
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        self._switch_group.remove()
        self._slot.free()
        self._is_up = False

    def _bring_up(self, names: Sequence[str]) -> None:
        for folder in (self.scratch, self.folder / "cgroup", self.folder / "tmp"):
            folder.mkdir()
        self._write_files(names)
        setup = "ip link add switch type bridge\nip link set switch up"
        self._switch = Space(("net",), self._switch_group, setup)
        self._plug(_THIS_MACHINE, self._slot.name, None)
        for number, name in enumerate(names, start=1):
            host = TestHost(self._slot, number, name, self.scratch)
            self.hosts.append(host)
            self._plug(number, "eth0", host)
            host.start_sshd(self.folder / "sshd_config")
        for host in self.hosts:
            host.wait_for_sshd()

    def _write_files(self, names: Sequence[str]) -> None:
        for key in ("user_key", "host_key"):
            file = str(self.folder / key)
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", file])
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        known = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"testbed {known}")
        (self.folder / "sshd_config").write_text(_SSHD_CONFIG.format(folder=self.folder))
        addresses = [
            {
                "name": name,
                "address": self._slot.address(number),
                "address_v6": self._slot.address_v6(number),
                "folder": self.folder,
            }
            for number, name in enumerate(names, start=1)
        ]
        self.ssh_config.write_text("".join(_SSH_CONFIG.format(**one) for one in addresses))
        lines = [f"{one['address']} {one['name']}\n" for one in addresses]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))

    def _plug(self, number: int, name: str, host: TestHost | None) -> None:
        """Join a host, or this machine, to the switch by a cable."""
        assert self._switch is not None
        port = f"port{number}"
        where = ["netns", str(host.space.pid)] if host else []
        other_end = ["peer", "name", port, "netns", str(self._switch.pid)]
        run(["ip", "link", "add", name, *where, "type", "veth", *other_end])
        self._on_switch("ip", "link", "set", port, "up", "master", "switch")
        four = f"{self._slot.address(number)}/24"
        six = f"{self._slot.address_v6(number)}/64"
        for words in (
            ["address", "add", four, "dev", name],
            ["address", "add", six, "dev", name, "nodad"],
            ["link", "set", name, "up"],
        ):
            argv = ["ip", *words]
            run(host.command(argv) if host else argv)

    def _on_switch(self, *argv: str) -> None:
        assert self._switch is not None
        run(self._switch.command(argv, Path("/")))


def _parent_of(pid: int) -> int | None:
    with contextlib.suppress(OSError):  # it has ended
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def _checked(host: TestHost, argv: Sequence[str]) -> None:
    run(host.command(argv))
