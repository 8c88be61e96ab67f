"""Check of all hosts of a job: their facts are collected at once, then compared.

Before every job over several hosts: what is found here in seconds would else be a job that hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

from launch.errors import HostUnreachableError
from launch.hosts import cluster_checks, host_checks
from launch.hosts.facts_program import LIMIT_S as FACTS_LIMIT_S
from launch.hosts.findings import CheckedHosts, Finding
from launch.hosts.host_facts import HostFacts, find_facts
from launch.hosts.host_line import Host
from launch.hosts.missing_facts import check_ssh, explain_no_facts, login_command
from launch.hosts.name_resolution import Resolve, is_this_machine, resolve, resolve_all
from launch.hosts.network_choice import NetworkChoice, choose_networks
from launch.hosts.parallel_commands import CommandResult, run_all
from launch.hosts.ssh import LOGIN_LIMIT_S, remote_command, write_ssh_config
from launch.system.temporary_folder import TemporaryFolder
from launch.workload import Workload
from probes.child_process import module_command

LIMIT_S = LOGIN_LIMIT_S + FACTS_LIMIT_S + 5.0
"""For the login, the facts, and Python's start on a slow disk."""

OnProgress = Callable[[int, int], None]
"""Receives how many hosts have ended, of how many."""

RunCommands = Callable[..., list[CommandResult]]
"""Runs programs in parallel, as `launch.hosts.parallel_commands.run_all` does."""


def check_hosts(
    hosts: Sequence[Host],
    *,
    ssh_config: Path | None = None,
    workload: Workload | None = None,
    runs: Path | None = None,
    by_srun: bool = False,
    on_progress: OnProgress | None = None,
    run_commands: RunCommands = run_all,
    resolve: Resolve = resolve,
) -> CheckedHosts:
    """Collect the facts of all hosts at once, and check whether they can do a job together.

    Takes no longer than `LIMIT_S` for up to 64 hosts, whatever one of them does; twice that where
    some must report their routes. The facts of this machine, which starts the job, are collected
    too, and not by ssh, whether it is one of them or not.

    Args:
        hosts: Of a host file, each once.
        ssh_config: The user's own, in place of ``~/.ssh/config``.
        workload: What will be trained; ``None`` to leave it out.
        runs: Folder in which it will leave its files on every host; ``None`` to leave it out.
        by_srun: Start programs by Slurm, where ssh may lead nowhere.
        on_progress: Receives how many hosts have ended, of how many.
        run_commands: Runs the programs.
        resolve: Looks up the addresses of a name. It may hang.

    Raises:
        HostFileError: ``ssh_config`` cannot be used.
        HostUnreachableError: Not even this machine gives its facts.
    """
    known = resolve_all((host.name for host in hosts), resolve=resolve)
    local = frozenset(h.name for h in hosts if is_this_machine(h, resolve=known.__getitem__))
    folder = None if runs is None else runs.resolve()
    wanted: dict[str, object] = {"--runs": folder}
    if workload is not None:
        wanted |= {"--use-case": workload.use_case, "--data": workload.data}
    arguments = [f"{option}={value}" for option, value in wanted.items() if value is not None]
    with TemporaryFolder() as scratch:
        config = scratch / "ssh_config"
        write_ssh_config(hosts, config, include=ssh_config)
        collector = _FactCollector(
            local=local, ssh_config=None if by_srun else config, run_commands=run_commands
        )
        results, own_result = collector.collect(hosts, arguments, on_progress)
        here = find_facts(own_result.out)
        if here is None:
            failed = explain_no_facts("", own_result, login="")
            raise HostUnreachableError(f"this machine: {failed.check}: {failed.text}")
        facts = _find_all_facts(results)
        found: dict[str, list[Finding]] = {}
        for host in hosts:
            name, result = host.name, results[host.name]
            if name in facts:
                checks = _check_host(name, facts[name], here, result, name in local, known[name])
                found[name] = list(checks)
                if folder is not None:
                    found[name].append(host_checks.check_runs(name, facts[name], folder))
                found[name] += host_checks.check_hardware(name, facts[name])
            else:
                login = login_command(host, ssh_config, by_srun=by_srun)
                found[name] = [explain_no_facts(name, result, login=login)]

        def add(findings: Iterable[Finding]) -> None:
            for finding in findings:
                found[finding.host].append(finding)

        add(cluster_checks.check_distinct_names(facts))
        if workload is not None:
            add(cluster_checks.check_files(facts, here, workload))
        # An excluded host must not decide over the network of the others.
        good = {name: facts[name] for name in facts if not any(f.is_failure for f in found[name])}
        choice = _choose_networks([h for h in hosts if h.name in good], good, known, collector)
        add(cluster_checks.check_networks(good, choice))
    return CheckedHosts(
        hosts=tuple(hosts),
        findings=tuple(finding for host in hosts for finding in found[host.name]),
        facts=facts,
        here=here,
        this_machine=next((host.name for host in hosts if host.name in local), None),
        networks=choice.networks,
        addresses={name: own.address for name, own in choice.addresses.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FactCollector:
    """Runs the program of facts on hosts: by ssh or srun, on this machine as a child process."""

    local: frozenset[str]
    """Names of this machine."""

    ssh_config: Path | None
    """File of `launch.hosts.ssh.write_ssh_config`; ``None`` to start by srun."""

    run_commands: RunCommands

    def collect(
        self, hosts: Sequence[Host], arguments: Sequence[str], on_progress: OnProgress | None = None
    ) -> tuple[dict[str, CommandResult], CommandResult]:
        """Run the program on hosts and this machine at once; give results by name, and our own.

        Args:
            hosts: Which; this machine always runs it, whether it is one of them or not.
            arguments: Of the program `launch.hosts.facts_program`.
            on_progress: Called after each end.
        """
        program = module_command("launch.hosts.facts_program", *arguments, f"--folder={Path.cwd()}")
        remote = [host for host in hosts if host.name not in self.local]
        done = 0

        def on_result(number: int, _: CommandResult) -> None:
            nonlocal done
            done += 1 if number < len(remote) else len(hosts) - len(remote)
            if on_progress is not None:
                on_progress(done, len(hosts))

        commands = [remote_command(h, program, ssh_config=self.ssh_config) for h in remote]
        *others, own = self.run_commands([*commands, program], limit_s=LIMIT_S, on_result=on_result)
        results = {host.name: result for host, result in zip(remote, others, strict=True)}
        return {host.name: results.get(host.name, own) for host in hosts}, own


def _check_host(
    name: str,
    facts: HostFacts,
    here: HostFacts,
    result: CommandResult,
    is_local: bool,
    addresses: set[str],
) -> Iterator[Finding]:
    """Check how a host was reached and whether its software is that of this machine."""
    yield host_checks.check_name(name, addresses)
    yield check_ssh(name, result, is_here=is_local)
    yield host_checks.check_path(name, facts, here)
    yield from host_checks.check_versions(name, facts, here)
    if not is_local:
        yield host_checks.check_clock(name, facts, result)
    yield host_checks.check_ports(name, facts)


def _choose_networks(
    hosts: Sequence[Host],
    facts: Mapping[str, HostFacts],
    known: Mapping[str, set[str]],
    collector: _FactCollector,
) -> NetworkChoice:
    """Choose the networks of good hosts, whose names have the ``known`` addresses."""
    reached = {name: _reached_address(facts[name], known[name]) for name in facts}
    choice = choose_networks(facts, reached)
    if not choice.is_routed:
        return choice
    # Only now is it known under which addresses they would have to reach one another.
    from probes.network.interfaces import find_source

    remote = [address for name, address in reached.items() if name not in collector.local]
    sources = (find_source(address) for address in remote if address)
    source = next((own for own in sources if own is not None), None)
    reached |= {name: source for name in reached if name in collector.local}
    addresses = ",".join(address for address in reached.values() if address is not None)
    results, _ = collector.collect(hosts, [f"--routes-to={addresses}"])
    routes = {name: found.routes for name, found in _find_all_facts(results).items()}
    facts = {name: replace(facts[name], routes=routes.get(name, {})) for name in facts}
    return choose_networks(facts, reached)


def _reached_address(facts: HostFacts, addresses: set[str]) -> str | None:
    """Give the address under which a host was reached, or would be."""
    named = sorted(address.partition("%")[0] for address in addresses)
    outside = (address for address in named if not ip_address(address).is_loopback)
    return facts.reached_at or next(outside, None)


def _find_all_facts(results: Mapping[str, CommandResult]) -> dict[str, HostFacts]:
    found = {name: find_facts(result.out) for name, result in results.items()}
    return {name: facts for name, facts in found.items() if facts is not None}
