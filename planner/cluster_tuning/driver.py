"""Driver of cluster tuning: brings all nodes to their ends, also when a host is lost.

MPI ends a job of which one rank has died. What the nodes have told by then is kept, so a new job
of the hosts that are left goes on from there.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from launch.errors import HostUnreachableError
from launch.hosts.findings import CheckedHosts
from launch.hosts.host_line import Host
from launch.hosts.ssh import ssh_name
from launch.mpi.mpirun_log import find_dead_rank, find_lost_host
from launch.reports import Noted, Report, Warned
from launch.system.process_end import explain_exit
from planner.cancellation import Cancellation
from planner.cluster_tuning.collector import Collector
from planner.cluster_tuning.reports import LinksMeasured, NodeFailed, NodeReport
from planner.cluster_tuning.task import ClusterPurpose, ClusterTask, NodeTask, choose_leaders
from planner.jobs.failure import explain_no_start
from planner.jobs.hosts import Hosts
from planner.jobs.mpi_run import MpiRunEnd, run_mpi, temporary_run_directory
from planner.jobs.placement import Placement
from planner.tuning.study import EarlierTrials
from probes import codec
from probes.hardware import Hardware

_PROGRAM = "planner.cluster_tuning.rank"
_MAX_RESTARTS = 3
_HOST_FAILED = 4


@dataclass
class ClusterDriver:
    """One task, on all hosts that passed their checks.

    What is known of each of them is added to it. A cancellation ends the job at once; what the
    nodes have reported by then is stored.
    """

    task: ClusterTask
    checked: CheckedHosts
    hosts: Hosts
    collector: Collector
    cancellation: Cancellation = field(default_factory=Cancellation)
    _lost: set[str] = field(default_factory=set, init=False)

    def run(self) -> None:
        """Run the task, again with the hosts that are left where one is lost.

        Where all have done their parts by then, the network between them alone is left to measure.

        Raises:
            HostUnreachableError: MPI cannot start the job.
            LaunchError: There is no MPI.
        """
        hosts: Sequence[Host] = self.checked.ranked
        purpose = self.task.purpose
        for attempt in range(1 + _MAX_RESTARTS):
            if attempt > 0:
                names = ", ".join(host.name for host in hosts)
                self.collector.listener(Noted(message=f"going on with {names}"), hosts[0].name)
            has_begun, end = self._run(purpose, hosts)
            if end.code == 0:
                return
            if not has_begun:
                why = explain_no_start(end)
                if attempt == 0:
                    raise HostUnreachableError(why)
                self.collector.listener(Warned(message=why), hosts[0].name)
                return  # with what is known
            self._find_lost(hosts, end.errors)
            hosts = [host for host in hosts if self._can_continue(host)]
            if all(self.collector.nodes[host.name].is_done for host in hosts):
                if self.task.is_quick or self.collector.links is not None or len(hosts) < 2:
                    return
                purpose = ClusterPurpose.LINKS

    def _can_continue(self, host: Host) -> bool:
        return host.name not in self._lost and self.collector.nodes[host.name].failure is None

    def _run(self, purpose: ClusterPurpose, hosts: Sequence[Host]) -> tuple[bool, MpiRunEnd]:
        """Run the task once; tell whether any node has begun it, and how it ended."""
        names = [host.name for host in hosts]
        has_begun = False

        def on_report(passed: Report) -> None:
            nonlocal has_begun
            if not isinstance(passed, NodeReport):
                return
            has_begun, report = True, passed.report
            if isinstance(report, LinksMeasured):
                known = [self.checked.facts[name].hardware for name in names]
                self.collector.store_links(names, known, report)
            else:
                self.collector.receive(names[passed.rank], report)

        placement = Placement.of(self.checked, names, self.hosts.access)
        document = codec.encode(self._task(purpose, hosts))
        with temporary_run_directory() as directory:
            end = run_mpi(placement, _PROGRAM, document, directory, on_report, self.cancellation)
        return has_begun, end

    def _task(self, purpose: ClusterPurpose, hosts: Sequence[Host]) -> ClusterTask:
        known = [self.checked.facts[host.name].hardware for host in hosts]
        studies = [self._studies(host, node) for host, node in zip(hosts, known, strict=True)]
        # Plans name GPUs by CUDA's numbers: who shows other ones searches for itself.
        shown = [
            None if node is None else (node.fingerprint(), *(gpu.cuda_index for gpu in node.gpus))
            for node in known
        ]
        trials = [sum(len(s.results) for s in of_node.values()) for of_node in studies]
        leaders = choose_leaders(shown, trials)
        if purpose is ClusterPurpose.TUNE:
            self._note_shared_searches([host.name for host in hosts], leaders)
        return replace(
            self.task,
            purpose=purpose,
            nodes=tuple(
                NodeTask(
                    leader=leader,
                    probe=None if node is None else self._stored_probe(node),
                    studies=of_node,
                )
                for leader, node, of_node in zip(leaders, known, studies, strict=True)
            ),
            software=self.collector.software,
            message_bytes=(*self.task.message_bytes, *sorted(self._gradient_bytes())),
            job=secrets.token_hex(8),
        )

    def _gradient_bytes(self) -> set[int]:
        """Give how large gradients are, as nodes have told."""
        found = [node.findings for node in self.collector.nodes.values()]
        return {one.case.parameter_bytes for one in found if one is not None}

    def _note_shared_searches(self, names: Sequence[str], leaders: Sequence[int]) -> None:
        for leader in sorted(set(leaders)):
            others = [name for name, of in zip(names, leaders, strict=True) if of == leader]
            others.remove(names[leader])
            if others:
                message = f"searches for {', '.join(others)} too: their hardware is equal"
                self.collector.listener(Noted(message=message), names[leader])

    def _studies(self, host: Host, node: Hardware | None) -> Mapping[str, EarlierTrials]:
        request, state = self.task.request, self.collector.nodes[host.name]
        if state.findings is not None:
            return {state.findings.study.key: state.findings.snapshot()}
        store = self.collector.store.find()
        if request is None or request.fresh or node is None or store is None:
            return {}
        return store.studies.find_for_use_case(request.workload.use_case, node.node)

    def _stored_probe(self, node: Hardware) -> Hardware | None:
        store = self.collector.store.find()
        if store is None:
            return None
        return store.machines.latest_probe(node.fingerprint(), node=node.node)

    def _find_lost(self, hosts: Sequence[Host], errors: str) -> None:
        """Note which hosts cannot continue: those that do not answer, or whose rank died."""
        lost_host = find_lost_host(errors)
        left = [host for host in hosts if ssh_name(host) != lost_host]
        for host in hosts:
            if host not in left:
                self._mark_lost(host.name, "lost: it does not answer any more")
        listener = self.collector.listener
        failures = self.hosts.only(left).check(listener, self.cancellation).failures if left else ()
        for finding in failures:
            self._mark_lost(finding.host, f"lost: {finding.check}: {finding.text}")
        if len(left) < len(hosts) or failures:
            return
        if (dead := find_dead_rank(errors)) is not None:
            how = explain_exit(-dead.signal)
            self._mark_lost(hosts[dead.rank].name, f"lost: its MPI rank was {how}")

    def _mark_lost(self, host: str, message: str) -> None:
        if host in self._lost:
            return
        self._lost.add(host)
        node = self.collector.nodes[host]
        if node.is_done or node.failure is not None:
            message += ": what it had found out is kept"
        else:
            node.failure = NodeFailed(
                code=_HOST_FAILED, error="host", message=message, is_lost=True
            )
        self.collector.listener(Warned(message=message), host)
