"""Can this host take part? What it said of itself, held against this machine; nothing is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from launch.hosts.ask import Answer
from launch.hosts.facts import PACKAGES, PORTS
from launch.hosts.finding import BUSY, Finding, Judge
from launch.hosts.host_facts import HostFacts

CLOCK_NOTE_S = 2.0
"""From here on logs of two hosts cannot be put in order: the first to fail by time is the cause."""

CLOCK_LIMIT_S = 60.0
"""Training needs no clock, but this far off nothing sets it: of plans and checkpoints the older
may be taken for the newer, and tickets of Kerberos or Slurm's munge are about to be refused."""


def judge_name(host: str, addresses: set[str] | None) -> Finding:
    """Judge the name of a host that answered."""
    if addresses:
        return Judge(host).ok("name", ", ".join(sorted(addresses)))
    return Judge(host).ok("name", "known to ssh alone, by its configuration")


def judge_versions(host: str, facts: HostFacts, here: HostFacts) -> Iterator[Finding]:
    """Hold a host's software against that of this machine, which starts the job."""
    judge = Judge(host)
    ours, theirs = _series(here.python), _series(facts.python)
    if theirs != ours:
        yield judge.fail("python", f"{facts.python}, here {here.python}: use {ours} on every host")
    else:
        yield judge.ok("python", facts.python)
    if "versions" in facts.problems:
        yield judge.fail("versions", f"not known: {facts.problems['versions']}{BUSY}")
        return
    for package in PACKAGES:
        yield _judge_version(judge, package, facts.versions.get(package), here)
    if facts.source != here.source and facts.versions.get("ddlplan"):
        yield judge.fail(
            "ddlplan",
            f"other files than here in {facts.package}: install the same copy on every host",
        )


def _judge_version(judge: Judge, package: str, found: str | None, here: HostFacts) -> Finding:
    wanted = here.versions.get(package)
    if found == wanted:
        return judge.ok(package, found or "not installed, as here")
    if found is None:
        return judge.fail(package, f"not installed, here {wanted}: install {package}=={wanted}")
    if wanted is None:
        return judge.fail(package, f"{found}, and not installed here: install {package}=={found}")
    if found.partition("+")[0] == wanted.partition("+")[0]:
        return judge.note(package, f"{found}, here {wanted}: another build of the same version")
    return judge.fail(
        package, f"{found}, here {wanted}: install one version on every host ({wanted} as here)"
    )


def judge_path(host: str, facts: HostFacts, here: HostFacts) -> Finding:
    """Judge where Python and ddlplan are. The interpreter is there: it has answered."""
    if facts.package != here.package:
        return Judge(host).note("path", f"ddlplan is in {facts.package}, here in {here.package}")
    return Judge(host).ok("path", facts.executable)


def judge_clock(host: str, facts: HostFacts, answer: Answer) -> Finding:
    """Judge a host's clock by this machine's: by how much it is off at least."""
    judge = Judge(host)
    skew_s = find_skew_s(facts, answer)
    size_s = abs(skew_s)
    if size_s <= CLOCK_NOTE_S:
        return judge.ok("clock", f"within {CLOCK_NOTE_S:g} s of this machine's")
    text = f"{_duration(size_s)} {'ahead of' if skew_s > 0 else 'behind'} this machine's"
    if size_s > CLOCK_LIMIT_S:
        limit = f"more than {CLOCK_LIMIT_S:g} s"
        return judge.fail("clock", f"{text}, {limit}: let NTP set it, as by timedatectl")
    return judge.note("clock", f"{text}: times in logs will not compare; let NTP set it")


def find_skew_s(facts: HostFacts, answer: Answer) -> float:
    """Give by how many seconds a clock is surely ahead, or, below 0, behind.

    It was read some time between the start of the program and its end as this machine saw them,
    and no sooner after the start than the looking took.
    """
    earliest_s = answer.began_s + max(facts.clock_s - facts.began_s, 0.0)
    earliest_s = min(earliest_s, answer.ended_s)
    if facts.clock_s > answer.ended_s:
        return facts.clock_s - answer.ended_s
    return min(facts.clock_s - earliest_s, 0.0)


def judge_ports(host: str, facts: HostFacts) -> Finding:
    """Judge whether MPI will find ports to listen on."""
    judge = Judge(host)
    if facts.free_ports is None:
        problem = facts.problems.get("free_ports", "no answer")
        return judge.fail("ports", f"not known: {problem}{BUSY}")
    if facts.free_ports < PORTS:
        return judge.fail(
            "ports",
            f"only {facts.free_ports} of {PORTS} TCP ports could be held: widen "
            "net.ipv4.ip_local_port_range, or end what holds them",
        )
    return judge.ok("ports", f"{PORTS} of {PORTS} free")


def judge_runs(host: str, facts: HostFacts, runs: Path) -> Finding:
    """Judge whether workers can leave their logs in the folder of the runs."""
    fault = facts.problems.get("runs_fault") or facts.runs_fault
    if fault is None:
        return Judge(host).ok("folder", f"{runs} can be written")
    return Judge(host).fail(
        "folder",
        f"no job can leave its files in {runs}: {fault}: make it there, or start in a folder that "
        "can be written on every host",
    )


def judge_hardware(host: str, facts: HostFacts) -> Iterator[Finding]:
    """Say what the host has, and what its probe finds odd."""
    judge = Judge(host)
    if facts.hardware is None:
        why = facts.problems.get("hardware", "no answer")
        yield judge.fail("hardware", f"the probe failed: {why}: run ddlplan probe --quick there")
        return
    cpu, memory, gpus = facts.hardware.cpu, facts.hardware.memory, facts.hardware.gpus
    parts = [f"{cpu.usable_cores} cores", f"{memory.usable_bytes / 2**30:.1f} GiB"]
    parts.append(f"{len(gpus)} GPUs" if facts.hardware.gpu_reason is None else "no GPU")
    yield judge.ok("hardware", ", ".join(parts))
    for warning in facts.hardware.warnings:
        yield judge.note("hardware", warning)


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
