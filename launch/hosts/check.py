"""Can these hosts do the job? All are asked at once; what they say is judged.

Before every job over several hosts: what is found here in seconds would else be a job that hangs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

from launch.errors import HostUnreachableError
from launch.hosts import judging, together
from launch.hosts.ask import Answer, ask_all
from launch.hosts.checked import HostsChecked
from launch.hosts.finding import Finding
from launch.hosts.host_facts import HostFacts, find_facts
from launch.hosts.inquiry import Ask, Inquiry, OnProgress
from launch.hosts.line import Host
from launch.hosts.names import Resolve, resolve_all
from launch.hosts.networks import NetworkChoice, choose_networks
from launch.hosts.silence import judge_silence, judge_ssh, login_command
from launch.hosts.ssh import write_ssh_config
from launch.hosts.this_machine import is_this_machine, resolve


def check_hosts(
    hosts: Sequence[Host],
    *,
    ssh_config: Path | None = None,
    use_case: str | None = None,
    data: str | None = None,
    runs: Path | None = None,
    by_srun: bool = False,
    on_progress: OnProgress | None = None,
    ask: Ask = ask_all,
    resolve: Resolve = resolve,
) -> HostsChecked:
    """Ask all hosts at once what they are like, and judge whether they can do a job together.

    Takes no longer than `launch.hosts.inquiry.LIMIT_S` for up to 64 hosts, whatever one of them
    does; twice that where some have to be asked for their routes. This machine, which starts the
    job, is asked too, and not by ssh, whether it is one of them or not.

    Args:
        hosts: Of a host file, each once.
        ssh_config: The user's own, in place of ``~/.ssh/config``.
        use_case: What will be trained, as `normalise_spec` spells it; ``None`` to leave it out.
        data: Absolute path of its data; ``None`` to leave it out.
        runs: Folder in which it will leave its files on every host; ``None`` to leave it out.
        by_srun: Ask through Slurm, where ssh may lead nowhere.
        on_progress: Hears how many hosts have answered, of how many.
        ask: Runs the programs.
        resolve: Gives the addresses of a name. It may hang.

    Raises:
        HostFileError: ``ssh_config`` cannot be used.
        HostUnreachableError: Not even this machine can be asked.
    """
    known = resolve_all((host.name for host in hosts), resolve=resolve)
    here = {host.name for host in hosts if is_this_machine(host, resolve=known.__getitem__)}
    with tempfile.TemporaryDirectory(prefix="ddlplan-") as folder:
        config = Path(folder, "ssh_config")
        write_ssh_config(hosts, config, include=ssh_config)
        check = _Check(
            hosts=hosts,
            known=known,
            inquiry=Inquiry(here=frozenset(here), ssh_config=config, by_srun=by_srun, ask=ask),
            ssh_config=ssh_config,
            use_case=use_case,
            data=data,
            runs=None if runs is None else runs.resolve(),
        )
        return check.make(on_progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One check of a list of hosts."""

    hosts: Sequence[Host]
    known: Mapping[str, set[str]]
    """Addresses that the system gives for their names."""

    inquiry: Inquiry
    ssh_config: Path | None
    use_case: str | None
    data: str | None
    runs: Path | None

    def make(self, on_progress: OnProgress | None) -> HostsChecked:
        wanted = (("--use-case", self.use_case), ("--data", self.data), ("--runs", self.runs))
        arguments = [f"{option}={value}" for option, value in wanted if value is not None]
        answers, answer_here = self.inquiry.put(self.hosts, arguments, on_progress)
        here = find_facts(answer_here.out)
        if here is None:
            failed = judge_silence("", answer_here, login="", executable=sys.executable)
            raise HostUnreachableError(f"this machine: {failed.check}: {failed.text}")
        facts = _facts(answers)
        found = {
            host.name: list(self._alone(host, answers[host.name], here)) for host in self.hosts
        }

        def keep(findings: Iterable[Finding]) -> None:
            for finding in findings:
                found[finding.host].append(finding)

        keep(together.judge_names_apart(facts))
        keep(together.judge_files(facts, here, use_case=self.use_case, data=self.data))
        # A host that takes no part must not decide over the network of the others.
        good = {name: facts[name] for name in facts if not any(f.is_failure for f in found[name])}
        choice = self._choose_networks(good)
        keep(together.judge_networks(good, choice))
        return HostsChecked(
            hosts=tuple(self.hosts),
            findings=tuple(finding for host in self.hosts for finding in found[host.name]),
            facts=facts,
            here=here,
            this_machine=next((h.name for h in self.hosts if h.name in self.inquiry.here), None),
            networks=choice.networks,
            addresses={name: held.address for name, held in choice.held.items()},
        )

    def _alone(self, host: Host, answer: Answer, here: HostFacts) -> Iterator[Finding]:
        """Judge a host by itself."""
        name, facts = host.name, find_facts(answer.out)
        if facts is None:
            login = login_command(host, self.ssh_config, by_srun=self.inquiry.by_srun)
            yield judge_silence(name, answer, login=login, executable=sys.executable)
            return
        yield judging.judge_name(name, self.known[name])
        yield judge_ssh(name, answer, is_here=name in self.inquiry.here)
        yield judging.judge_path(name, facts, here)
        yield from judging.judge_versions(name, facts, here)
        if name not in self.inquiry.here:
            yield judging.judge_clock(name, facts, answer)
        yield judging.judge_ports(name, facts)
        if self.runs is not None:
            yield judging.judge_runs(name, facts, self.runs)
        yield from judging.judge_hardware(name, facts)

    def _choose_networks(self, facts: Mapping[str, HostFacts]) -> NetworkChoice:
        places = {name: self._place(name, facts[name]) for name in facts}
        choice = choose_networks(facts, places)
        if not choice.is_routed:
            return choice
        # Only now is it known under which addresses they would have to reach one another.
        from probes.network import find_source

        away = [place for name, place in places.items() if name not in self.inquiry.here and place]
        source = next((own for place in away if (own := find_source(place)) is not None), None)
        places |= {name: source for name in places if name in self.inquiry.here}
        peers = ",".join(place for place in places.values() if place is not None)
        hosts = [host for host in self.hosts if host.name in facts]
        answers, _ = self.inquiry.put(hosts, [f"--peers={peers}"])
        routes = {name: said.routes for name, said in _facts(answers).items()}
        facts = {name: replace(facts[name], routes=routes.get(name, {})) for name in facts}
        return choose_networks(facts, places)

    def _place(self, name: str, facts: HostFacts) -> str | None:
        """Give the address under which a host was reached, or would be."""
        named = sorted(address.partition("%")[0] for address in self.known[name])
        outside = (address for address in named if not ip_address(address).is_loopback)
        return facts.reached_at or next(outside, None)


def _facts(answers: Mapping[str, Answer]) -> dict[str, HostFacts]:
    found = {name: find_facts(answer.out) for name, answer in answers.items()}
    return {name: facts for name, facts in found.items() if facts is not None}
