"""Checks of hosts against each other, on collected facts alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launch.hosts.findings import BUSY, Finding, FindingFactory
from launch.hosts.host_facts import DataFacts, HostFacts
from launch.hosts.network_choice import NetworkChoice
from launch.workload import Workload


def check_distinct_names(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Check that no machine is named twice, and that MPI can tell all apart."""
    first: dict[str, str] = {}
    for host, facts in hosts.items():
        if (other := first.setdefault(facts.host_name, host)) != host:
            yield FindingFactory(host).fail(
                "name",
                f"says that it is {facts.host_name!r}, as {other} does: name each machine once; "
                "two machines need host names of their own, or MPI takes them for one",
            )


def check_networks(hosts: Mapping[str, HostFacts], choice: NetworkChoice) -> Iterator[Finding]:
    """Check that every host reaches the others."""
    for host, facts in hosts.items():
        findings = FindingFactory(host)
        own = choice.addresses.get(host)
        if problem := facts.problems.get("addresses"):
            yield findings.fail("network", f"its addresses are not known: {problem}{BUSY}")
        elif (other := choice.unreached.get(host)) is not None:
            yield findings.fail(
                "network",
                f"no network in common with {other} and no route to it, loopback, Docker's bridges "
                "and link-local addresses of IPv6 left aside: join them by one network",
            )
        elif own is not None and choice.is_routed:
            yield findings.note(
                "network", f"{own.address} on {own.interface}: others only through a router"
            )
        elif own is not None:
            yield findings.ok("network", f"{own.address} on {own.interface}")
            if choice.faster is not None:
                yield findings.note(
                    "network",
                    f"{choice.faster} is nominally faster: to use it, name the hosts by their "
                    "addresses there",
                )


def check_files(
    hosts: Mapping[str, HostFacts], here: HostFacts, workload: Workload
) -> Iterator[Finding]:
    """Check that use case and data are on every host and the same.

    Args:
        hosts: Facts by host.
        here: Facts of this machine, whose use case is meant.
        workload: What will be trained.
    """
    for host, facts in hosts.items():
        yield _check_use_case(host, facts, here)
    if workload.data is not None:
        having = (host for host, facts in hosts.items() if facts.data and facts.data.digest)
        first = next(having, None)
        for host, facts in hosts.items():
            yield _check_data(host, facts, first, None if first is None else hosts[first].data)
    else:
        for host in hosts:
            yield FindingFactory(host).ok(
                "data", "none named: each host gets its own when a job starts"
            )


def _check_use_case(host: str, facts: HostFacts, here: HostFacts) -> Finding:
    findings = FindingFactory(host)
    if problem := facts.problems.get("use_case"):
        return findings.fail("use case", f"{problem}: copy it to the same place on every host")
    if facts.use_case != here.use_case:
        return findings.fail(
            "use case", "its file differs from this machine's: copy that one there"
        )
    return findings.ok("use case", "there" if facts.use_case is None else "there, the same file")


def _check_data(
    host: str, facts: HostFacts, first: str | None, wanted: DataFacts | None
) -> Finding:
    """Compare a host's data set with that of the first host that has one."""
    findings = FindingFactory(host)
    if facts.data is None:
        problem = facts.problems.get("data_kind", "no answer")
        remedy = BUSY if "no answer" in problem else ": see its permissions"
        return findings.fail("data", f"not known: {problem}{remedy}")
    path = facts.data.path
    if facts.data.kind == "missing":
        return findings.fail("data", f"there is no {path}: copy the data to the same path there")
    if facts.data.digest is None:
        problem = facts.problems.get("data_files", "no answer")
        if "no answer" in problem:
            return findings.note(
                "data", f"{path} is there, its list of files not compared: {problem}"
            )
        return findings.fail("data", f"{path} cannot be listed: {problem}: see its permissions")
    size = _size(facts.data)
    if wanted is not None and facts.data.digest != wanted.digest:
        same = size == _size(wanted)
        other = (
            f"as many of other names or sizes than {first}" if same else f"{first} {_size(wanted)}"
        )
        return findings.fail(
            "data", f"{path} has {size}, {other}: make the copies equal, as by rsync"
        )
    return findings.ok("data", f"{size}, the same names and sizes" if host != first else size)


def _size(data: DataFacts) -> str:
    return f"{data.num_files:,} files of {data.num_bytes:,} bytes"
