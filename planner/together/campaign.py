"""How do all nodes come to their ends, also when a host is lost on the way?

MPI ends a job of which one rank has died. What the nodes have told by then is kept, so a new job
of the hosts that are left goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from launch.errors import HostUnreachableError
from launch.hosts.checked import HostsChecked
from launch.hosts.line import Host
from launch.hosts.ssh import ssh_name
from launch.process_end import explain_exit
from launch.workers.reports import Report
from planner.reach import Reach
from planner.study import EarlierTrials
from planner.together.gathering import Gathering
from planner.together.job import JobEnd, run_together
from planner.together.reports import LinksMeasured, NodeFailed
from planner.together.task import NodeTask, Purpose, TogetherTask, choose_leaders
from planner.tune_request import TuneRequest
from probes.hardware import Hardware

_MAX_RESTARTS = 3
_HOST_FAILED = 4


@dataclass
class Campaign:
    """One task, on all hosts that passed their checks.

    Args:
        purpose: What the nodes do.
        checked: What the checks of the hosts showed.
        reach: How the hosts are reached.
        gathering: Keeps what the nodes tell.
        is_quick: Whether nothing is measured.
        message_bytes: Sizes of gradients whose sum is timed, beside those of the use case.
    """

    purpose: Purpose
    checked: HostsChecked
    reach: Reach
    gathering: Gathering
    is_quick: bool = False
    message_bytes: tuple[int, ...] = ()
    _lost: set[str] = field(default_factory=set, init=False)

    def run(self) -> None:
        """Run the task, again with the hosts that are left where one is lost.

        Where all have done their parts by then, the network between them alone is left to measure.

        Raises:
            HostUnreachableError: MPI cannot start the job.
            LaunchError: There is no MPI.
        """
        hosts: Sequence[Host] = self.checked.ranked
        purpose = self.purpose
        for attempt in range(1 + _MAX_RESTARTS):
            end = self._run(purpose, hosts)
            if end.code == 0:
                return
            if end.refusal or not end.spoke:
                why = end.refusal or f"mpirun ended with exit code {end.code}: {_said(end)}"
                if attempt == 0:
                    raise HostUnreachableError(why)
                self.gathering.listener.warn(hosts[0].name, why)
                return  # with what is known
            self._find_lost(hosts, end)
            hosts = [host for host in hosts if self._goes_on(host)]
            if all(self.gathering.nodes[host.name].is_done for host in hosts):
                if self.is_quick or self.gathering.links is not None or len(hosts) < 2:
                    return
                purpose = Purpose.LINKS
            names = ", ".join(host.name for host in hosts)
            self.gathering.listener.note(hosts[0].name, f"going on with {names}")

    def _goes_on(self, host: Host) -> bool:
        return host.name not in self._lost and self.gathering.nodes[host.name].failure is None

    def _run(self, purpose: Purpose, hosts: Sequence[Host]) -> JobEnd:
        names = [host.name for host in hosts]

        def on_report(rank: int, report: Report) -> None:
            if isinstance(report, LinksMeasured):
                known = [self.checked.facts[name].hardware for name in names]
                fingerprints = [None if node is None else node.fingerprint() for node in known]
                self.gathering.keep_links(names, fingerprints, report)
            else:
                self.gathering.hear(names[rank], report)

        return run_together(self._task(purpose, hosts), hosts, self.checked, self.reach, on_report)

    def _task(self, purpose: Purpose, hosts: Sequence[Host]) -> TogetherTask:
        request = self.gathering.request
        known = [self.checked.facts[host.name].hardware for host in hosts]
        studies = [self._studies(host, node) for host, node in zip(hosts, known, strict=True)]
        fingerprints = [None if node is None else node.fingerprint() for node in known]
        trials = [sum(len(s.results) for s in of_node.values()) for of_node in studies]
        leaders = choose_leaders(fingerprints, trials)
        if purpose is Purpose.TUNE:
            self._say_who_shares([host.name for host in hosts], leaders)
        return TogetherTask(
            purpose=purpose,
            nodes=tuple(
                NodeTask(
                    host=host.name,
                    leader=leader,
                    probe=None if node is None else self._stored_probe(node),
                    studies=of_node,
                )
                for host, leader, node, of_node in zip(hosts, leaders, known, studies, strict=True)
            ),
            software=self.gathering.software,
            request=None if request is None else _for_nodes(request),
            is_quick=self.is_quick,
            message_bytes=(*self.message_bytes, *sorted(self._gradient_bytes())),
        )

    def _gradient_bytes(self) -> set[int]:
        """Give how large gradients are, as nodes have told."""
        found = [node.findings for node in self.gathering.nodes.values()]
        return {one.case.parameter_bytes for one in found if one is not None}

    def _say_who_shares(self, names: Sequence[str], leaders: Sequence[int]) -> None:
        for leader in sorted(set(leaders)):
            others = [name for name, of in zip(names, leaders, strict=True) if of == leader]
            others.remove(names[leader])
            if others:
                message = f"searches for {', '.join(others)} too: their hardware is equal"
                self.gathering.listener.note(names[leader], message)

    def _studies(self, host: Host, node: Hardware | None) -> Mapping[str, EarlierTrials]:
        request, state = self.gathering.request, self.gathering.nodes[host.name]
        if state.findings is not None:
            return {state.findings.study.key: state.findings.so_far()}
        store = self.gathering.store.find()
        if request is None or request.fresh or node is None or store is None:
            return {}
        return store.searches(request.use_case, node.node)

    def _stored_probe(self, node: Hardware) -> Hardware | None:
        store = self.gathering.store.find()
        if store is None:
            return None
        return store.latest_probe(node.fingerprint(), node=node.node)

    def _find_lost(self, hosts: Sequence[Host], end: JobEnd) -> None:
        """Note which hosts cannot go on: those that do not answer, or whose rank died."""
        left = [host for host in hosts if ssh_name(host) != end.lost_host]
        for host in hosts:
            if host not in left:
                self._lose(host.name, "lost: it does not answer any more")
        failures = self.reach.check(left).failures if left else ()
        for finding in failures:
            self._lose(finding.host, f"lost: {finding.check}: {finding.text}")
        if len(left) < len(hosts) or failures:
            return
        if (dead := end.dead_rank) is not None:
            how = explain_exit(-dead.signal)
            self._lose(hosts[dead.rank].name, f"lost: its MPI rank was {how}")

    def _lose(self, host: str, message: str) -> None:
        if host in self._lost:
            return
        self._lost.add(host)
        node = self.gathering.nodes[host]
        if node.is_done or node.failure is not None:
            message += ": what it had found out is kept"
        else:
            node.failure = NodeFailed(
                code=_HOST_FAILED, error="host", message=message, is_lost=True
            )
        self.gathering.listener.warn(host, message)


def _for_nodes(request: TuneRequest) -> TuneRequest:
    """Give what a node is asked.

    Which studies begin afresh is decided by what is sent of them. A strategy that the user names
    may need more cores than some of the nodes have; those go without it.
    """
    return replace(request, fresh=False, names_strategies=False)


def _said(end: JobEnd) -> str:
    """Give what mpirun said, in one line and without the frame that it draws around it."""
    lines = [" ".join(line.split()) for line in end.log_tail.splitlines()]
    said = [line for line in lines if any(char.isalnum() for char in line)]
    return " ".join(said)[:400] or "it said nothing"
