"""Do these hosts go together? What each said, held against the others; nothing is asked here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launch.hosts.finding import BUSY, Finding, Judge
from launch.hosts.host_facts import DataFacts, HostFacts
from launch.hosts.networks import NetworkChoice


def judge_names_apart(hosts: Mapping[str, HostFacts]) -> Iterator[Finding]:
    """Find machines that are named twice, or that MPI would take for one."""
    first: dict[str, str] = {}
    for host, facts in hosts.items():
        if (other := first.setdefault(facts.host_name, host)) != host:
            yield Judge(host).fail(
                "name",
                f"says that it is {facts.host_name!r}, as {other} does: name each machine once; "
                "two machines need host names of their own, or MPI takes them for one",
            )


def judge_networks(hosts: Mapping[str, HostFacts], choice: NetworkChoice) -> Iterator[Finding]:
    """Judge whether every host reaches the others."""
    for host, facts in hosts.items():
        judge = Judge(host)
        held = choice.held.get(host)
        if problem := facts.problems.get("addresses"):
            yield judge.fail("network", f"its addresses are not known: {problem}{BUSY}")
        elif (other := choice.unreached.get(host)) is not None:
            yield judge.fail(
                "network",
                f"no network in common with {other} and no route to it, loopback and Docker's "
                "bridges left aside: join them by one network",
            )
        elif held is not None and choice.is_routed:
            yield judge.note(
                "network", f"{held.address} on {held.interface}: others only through a router"
            )
        elif held is not None:
            yield judge.ok("network", f"{held.address} on {held.interface}")
            if choice.faster is not None:
                yield judge.note(
                    "network",
                    f"{choice.faster} is nominally faster: to use it, name the hosts by their "
                    "addresses there",
                )


def judge_files(
    hosts: Mapping[str, HostFacts], here: HostFacts, *, use_case: str | None, data: str | None
) -> Iterator[Finding]:
    """Judge whether what is trained, and on what, is on every host and the same.

    Args:
        hosts: What each said.
        here: Facts of this machine, whose use case is meant.
        use_case: What will be trained; ``None`` to leave it out.
        data: Where its data are; ``None`` where it comes by them by itself.
    """
    if use_case is not None:
        for host, facts in hosts.items():
            yield _judge_use_case(host, facts, here)
    if data is not None:
        having = (host for host, facts in hosts.items() if facts.data and facts.data.digest)
        first = next(having, None)
        for host, facts in hosts.items():
            yield _judge_data(host, facts, first, None if first is None else hosts[first].data)
    elif use_case is not None:
        for host in hosts:
            yield Judge(host).ok("data", "none named: each host gets its own when a job starts")


def _judge_use_case(host: str, facts: HostFacts, here: HostFacts) -> Finding:
    judge = Judge(host)
    if problem := facts.problems.get("use_case"):
        return judge.fail("use case", f"{problem}: copy it to the same place on every host")
    if facts.use_case != here.use_case:
        return judge.fail("use case", "its file differs from this machine's: copy that one there")
    return judge.ok("use case", "there" if facts.use_case is None else "there, the same file")


def _judge_data(
    host: str, facts: HostFacts, first: str | None, wanted: DataFacts | None
) -> Finding:
    """Hold a host's data set against that of the first host that has one."""
    judge = Judge(host)
    if facts.data is None:
        problem = facts.problems.get("data_kind", "no answer")
        return judge.fail("data", f"not known: {problem}{BUSY}")
    path = facts.data.path
    if facts.data.kind == "missing":
        return judge.fail("data", f"there is no {path}: copy the data to the same path there")
    if facts.data.digest is None:
        problem = facts.problems.get("data_files", "no answer")
        if "no answer" in problem:
            return judge.note("data", f"{path} is there, its list of files not compared: {problem}")
        return judge.fail("data", f"{path} cannot be listed: {problem}: see its permissions")
    size = _size(facts.data)
    if wanted is not None and facts.data.digest != wanted.digest:
        same = size == _size(wanted)
        other = (
            f"as many of other names or sizes than {first}" if same else f"{first} {_size(wanted)}"
        )
        return judge.fail("data", f"{path} has {size}, {other}: make the copies equal, as by rsync")
    return judge.ok("data", f"{size}, the same names and sizes" if host != first else size)


def _size(data: DataFacts) -> str:
    return f"{data.num_files:,} files of {data.num_bytes:,} bytes"
