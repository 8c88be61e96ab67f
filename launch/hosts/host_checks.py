"""Checks of one host against this machine, on collected facts alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from launch.hosts.facts_program import PACKAGES, PORTS
from launch.hosts.findings import BUSY, Finding, FindingFactory
from launch.hosts.host_facts import HostFacts
from launch.hosts.parallel_commands import CommandResult

_CLOCK_NOTE_S = 2.0
"""Above this, logs of two hosts cannot be put in order: the first to fail by time is the cause."""

_CLOCK_LIMIT_S = 60.0
"""Training needs no clock, but this far off nothing sets it: an older plan or checkpoint may be
taken for the newer, and tickets of Kerberos or Slurm's munge are about to be refused."""


def check_name(host: str, addresses: set[str]) -> Finding:
    """Report the addresses of a host that gave its facts."""
    known = ", ".join(sorted(addresses))
    return FindingFactory(host).ok("name", known or "known to ssh alone, by its configuration")


def check_versions(host: str, facts: HostFacts, here: HostFacts) -> Iterator[Finding]:
    """Compare a host's software with that of this machine, which starts the job."""
    findings = FindingFactory(host)
    ours, theirs = _series(here.python), _series(facts.python)
    if theirs != ours:
        yield findings.fail(
            "python", f"{facts.python}, here {here.python}: use {ours} on every host"
        )
    else:
        yield findings.ok("python", facts.python)
    if "versions" in facts.problems:
        yield findings.fail("versions", f"not known: {facts.problems['versions']}{BUSY}")
        return
    for package in PACKAGES:
        yield _check_version(findings, package, facts.versions.get(package), here)
    if facts.source != here.source and facts.versions.get("ddlplan"):
        yield findings.fail(
            "ddlplan",
            f"other files than here in {facts.package}: install the same copy on every host",
        )


def _check_version(
    findings: FindingFactory, package: str, found: str | None, here: HostFacts
) -> Finding:
    wanted = here.versions.get(package)
    if found == wanted:
        return findings.ok(package, found or "not installed, as here")
    if found is None:
        return findings.fail(package, f"not installed, here {wanted}: install {package}=={wanted}")
    if wanted is None:
        return findings.fail(
            package, f"{found}, and not installed here: install {package}=={found}"
        )
    if found.partition("+")[0] == wanted.partition("+")[0]:
        return findings.note(package, f"{found}, here {wanted}: another build of the same version")
    return findings.fail(
        package, f"{found}, here {wanted}: install one version on every host ({wanted} as here)"
    )


def check_path(host: str, facts: HostFacts, here: HostFacts) -> Finding:
    """Compare where ddlplan is. The interpreter exists: it has run."""
    if facts.package != here.package:
        return FindingFactory(host).note(
            "path", f"ddlplan is in {facts.package}, here in {here.package}"
        )
    return FindingFactory(host).ok("path", facts.executable)


def check_clock(host: str, facts: HostFacts, result: CommandResult) -> Finding:
    """Compare a host's clock with this machine's: by how much it is off at least."""
    findings = FindingFactory(host)
    skew_s = _find_skew_s(facts, result)
    size_s = abs(skew_s)
    if size_s <= _CLOCK_NOTE_S:
        return findings.ok("clock", f"within {_CLOCK_NOTE_S:g} s of this machine's")
    text = f"{_duration(size_s)} {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    if size_s > _CLOCK_LIMIT_S:
        limit = f"more than {_CLOCK_LIMIT_S:g} s"
        return findings.fail("clock", f"{text}, {limit}: let NTP set it, as by timedatectl")
    return findings.note("clock", f"{text}: times in logs will not compare; let NTP set it")


def _find_skew_s(facts: HostFacts, result: CommandResult) -> float:
    """Compute by how many seconds a clock is surely ahead, or, below 0, behind.

    It was read some time between the start of the program and its end as this machine saw them,
    and after the start by at least the time that the collection took.
    """
    earliest_s = result.began_s + max(facts.clock_s - facts.began_s, 0.0)
    earliest_s = min(earliest_s, result.ended_s)
    if facts.clock_s > result.ended_s:
        return facts.clock_s - result.ended_s
    return min(facts.clock_s - earliest_s, 0.0)


def check_ports(host: str, facts: HostFacts) -> Finding:
    """Check that MPI will find ports to listen on."""
    findings = FindingFactory(host)
    if facts.free_ports is None:
        problem = facts.problems.get("free_ports", "no answer")
        return findings.fail("ports", f"not known: {problem}{BUSY}")
    if facts.free_ports < PORTS:
        return findings.fail(
            "ports",
            f"only {facts.free_ports} of {PORTS} TCP ports could be held: widen "
            "net.ipv4.ip_local_port_range, or end what holds them",
        )
    return findings.ok("ports", f"{PORTS} of {PORTS} free")


def check_runs(host: str, facts: HostFacts, runs: Path) -> Finding:
    """Check that workers can write their logs in the folder of the runs."""
    fault = facts.problems.get("runs_fault") or facts.runs_fault
    if fault is None:
        return FindingFactory(host).ok("folder", f"{runs} can be written")
    return FindingFactory(host).fail(
        "folder",
        f"no job can leave its files in {runs}: {fault}: make it there, or start in a folder that "
        "can be written on every host",
    )


def check_hardware(host: str, facts: HostFacts) -> Iterator[Finding]:
    """List what the host has, and the warnings of its probe."""
    findings = FindingFactory(host)
    if facts.hardware is None:
        why = facts.problems.get("hardware", "no answer")
        yield findings.fail("hardware", f"the probe failed: {why}: run ddlplan probe --quick there")
        return
    cpu, memory, num_gpus = facts.hardware.cpu, facts.hardware.memory, facts.hardware.num_gpus
    parts = [f"cores: {cpu.granted_cores:g}", f"memory: {memory.usable_bytes / 2**30:.1f} GiB"]
    parts.append(f"GPUs: {num_gpus}" if num_gpus else "no GPU")
    yield findings.ok("hardware", ", ".join(parts))
    for warning in facts.hardware.warnings:
        yield findings.note("hardware", warning)


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
