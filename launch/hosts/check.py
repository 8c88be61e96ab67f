"""Can these hosts do the job? All are asked at once; what they say is judged.

Before every job over several hosts: what is found here in seconds would else be a job that hangs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from launch.errors import HostUnreachableError
from launch.hosts import judging, together
from launch.hosts.ask import Answer, OnAnswer, ask_all
from launch.hosts.checked import HostsChecked
from launch.hosts.facts import LIMIT_S as FACTS_LIMIT_S
from launch.hosts.finding import Finding
from launch.hosts.host_facts import HostFacts, find_facts
from launch.hosts.line import Host
from launch.hosts.names import resolve_all
from launch.hosts.networks import choose_networks
from launch.hosts.silence import judge_silence, judge_ssh, login_command
from launch.hosts.ssh import ssh_command, write_ssh_config
from launch.hosts.this_machine import is_this_machine

SSH_LIMIT_S = 10.0
LIMIT_S = SSH_LIMIT_S + FACTS_LIMIT_S + 5.0
"""For the login, the facts, and Python's start on a slow disk."""

_PROGRAM = (sys.executable, "-P", "-m", "launch.hosts.facts")
_FORWARDED = ("PYTHONPATH", "LD_LIBRARY_PATH", "DDLPLAN_CACHE")
"""Variables that a rank gets too, and on which it depends what is found."""


class Ask(Protocol):
    """Runs programs side by side: `launch.hosts.ask.ask_all`."""

    def __call__(
        self, commands: Sequence[Sequence[str]], *, limit_s: float, on_answer: OnAnswer | None
    ) -> list[Answer]:
        """Give what each of them wrote, in the order of the commands."""


def check_hosts(
    hosts: Sequence[Host],
    *,
    ssh_config: Path | None = None,
    use_case: str | None = None,
    data: str | None = None,
    by_srun: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    ask: Ask = ask_all,
) -> HostsChecked:
    """Ask all hosts at once what they are like, and judge whether they can do a job together.

    Takes no longer than `LIMIT_S` for up to 64 hosts, whatever one of them does. This machine,
    which starts the job, is asked too, and not by ssh, whether it is one of them or not.

    Args:
        hosts: Of a host file, each once.
        ssh_config: The user's own, in place of ``~/.ssh/config``.
        use_case: What will be trained, as `normalise_spec` spells it; ``None`` to leave it out.
        data: Absolute path of its data; ``None`` to leave it out.
        by_srun: Ask through Slurm, where ssh may lead nowhere.
        on_progress: Hears how many hosts have answered, of how many.
        ask: Runs the programs.

    Raises:
        HostFileError: ``ssh_config`` cannot be used.
        HostUnreachableError: Not even this machine can be asked.
    """
    known = resolve_all(host.name for host in hosts)
    here = {host.name for host in hosts if is_this_machine(host, resolve=known.__getitem__)}
    away = [host for host in hosts if host.name not in here]
    program = _program(use_case, data, _peers(known))
    done = {"hosts": len(here)}

    def on_answer(number: int, _: Answer) -> None:
        done["hosts"] += number < len(away)
        if on_progress is not None:
            on_progress(done["hosts"], len(hosts))

    with tempfile.TemporaryDirectory(prefix="ddlplan-") as folder:
        config = Path(folder, "ssh_config")
        write_ssh_config(away, config, include=ssh_config)
        commands = [_command(host, program, config, by_srun=by_srun) for host in away]
        *others, own = ask([*commands, program], limit_s=LIMIT_S, on_answer=on_answer)
    answers = {host.name: answer for host, answer in zip(away, others, strict=True)}
    answers |= dict.fromkeys(here, own)
    asked = _Asked(hosts, known, here, answers, use_case, data, ssh_config)
    return asked.judge(own)


def _program(use_case: str | None, data: str | None, peers: Sequence[str]) -> list[str]:
    """Give the program that a host is asked by, with what it is asked."""
    asked = [("--use-case", use_case), ("--data", data), ("--peers", ",".join(peers))]
    asked += [("--folder", str(Path.cwd()))]
    return [*_PROGRAM, *(f"{option}={value}" for option, value in asked if value)]


def _command(host: Host, program: Sequence[str], config: Path, *, by_srun: bool) -> list[str]:
    if by_srun:
        where = (f"--nodelist={host.name}", "--nodes=1", "--ntasks=1", "--overlap")
        return ["srun", *where, "--export=ALL", *program]
    environment = [f"{name}={os.environ[name]}" for name in _FORWARDED if name in os.environ]
    return ssh_command(host, ["env", *environment, *program], config=config, timeout_s=SSH_LIMIT_S)


def _peers(known: Mapping[str, set[str]]) -> list[str]:
    """List every address under which one host might be reached from another."""
    from probes.network import find_source  # what it imports would slow other commands

    named = {address.partition("%")[0] for addresses in known.values() for address in addresses}
    named = {address for address in named if not ip_address(address).is_loopback}
    own = {source for address in named if (source := find_source(address)) is not None}
    return sorted(named | own)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked of whom, and what they answered."""

    hosts: Sequence[Host]
    known: Mapping[str, set[str]]
    here: set[str]
    answers: Mapping[str, Answer]
    use_case: str | None
    data: str | None
    ssh_config: Path | None

    def judge(self, answer_here: Answer) -> HostsChecked:
        own = find_facts(answer_here.out)
        if own is None:
            failed = judge_silence("", answer_here, login="", executable=sys.executable)
            raise HostUnreachableError(f"this machine: {failed.check}: {failed.text}")
        found = {host.name: list(self._alone(host, own)) for host in self.hosts}
        facts = self._facts()

        def keep(findings: Iterable[Finding]) -> None:
            for finding in findings:
                found[finding.host].append(finding)

        keep(together.judge_names_apart(facts))
        keep(together.judge_files(facts, own, use_case=self.use_case, data=self.data))
        # A host that takes no part must not decide over the network of the others.
        good = {name: facts[name] for name in facts if not any(f.is_failure for f in found[name])}
        choice = choose_networks(good, self._places(good, own))
        keep(together.judge_networks(good, choice))
        return HostsChecked(
            hosts=tuple(self.hosts),
            findings=tuple(finding for host in self.hosts for finding in found[host.name]),
            facts=facts,
            here=own,
            this_machine=next((host.name for host in self.hosts if host.name in self.here), None),
            networks=choice.networks,
            addresses={name: held.address for name, held in choice.held.items()},
        )

    def _facts(self) -> dict[str, HostFacts]:
        said = {host.name: find_facts(self.answers[host.name].out) for host in self.hosts}
        return {name: facts for name, facts in said.items() if facts is not None}

    def _alone(self, host: Host, own: HostFacts) -> Iterator[Finding]:
        """Judge a host by itself."""
        name, answer = host.name, self.answers[host.name]
        facts = find_facts(answer.out)
        if facts is None:
            login = login_command(host, self.ssh_config)
            yield judge_silence(name, answer, login=login, executable=sys.executable)
            return
        yield judging.judge_name(name, self.known[name])
        yield judge_ssh(name, answer, is_here=name in self.here)
        yield judging.judge_path(name, facts, own)
        yield from judging.judge_versions(name, facts, own)
        yield judging.judge_clock(name, facts, answer)
        yield judging.judge_ports(name, facts)
        yield from judging.judge_hardware(name, facts)

    def _places(self, facts: Mapping[str, HostFacts], own: HostFacts) -> dict[str, str | None]:
        """Give the address by which each host was reached; for this machine, the one from which."""
        places = {name: facts[name].reached_at for name in facts if name not in self.here}
        sources = (own.routes.get(place) for place in places.values() if place is not None)
        source = next((source for source in sources if source is not None), None)
        return {**places, **dict.fromkeys(self.here, source)}
