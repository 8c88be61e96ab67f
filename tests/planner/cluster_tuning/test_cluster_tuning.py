"""What rank 0 makes of what the nodes say, and what the starting process keeps of it."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue

import pytest
import sample_plan
from host_answers import facts_of, host
from imagined_machines import node_of
from own_mpirun import write_mpirun
from ranks_here import run_ranks
from sample_plan import SOFTWARE

from launch.errors import HostUnreachableError
from launch.hosts.findings import CheckedHosts
from launch.plan import Plan
from launch.reports import Alive, Noted, Report, Warned
from launch.workload import Workload
from planner.cluster_tuning import driver
from planner.cluster_tuning.collector import Collector, LazyStore, NodeState
from planner.cluster_tuning.coordinator import Coordinator
from planner.cluster_tuning.driver import ClusterDriver
from planner.cluster_tuning.network import largest_within
from planner.cluster_tuning.node_search import find_hardware, follow
from planner.cluster_tuning.reports import (
    CaseDescribed,
    ConfirmPlans,
    LeadSearch,
    LinksMeasured,
    MeasureNetwork,
    NodeDone,
    NodeFailed,
    NodeProbed,
    NodeReport,
    PlansFound,
)
from planner.cluster_tuning.task import ClusterPurpose, ClusterTask, NodeTask, choose_leaders
from planner.jobs.hosts import HostAccess, Hosts
from planner.jobs.mpi_run import run_mpi
from planner.store import Store
from planner.trials.reports import TrialEnded
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import EarlierTrials
from planner.tuning.tune_request import TuneRequest
from probes import codec
from probes.hardware import Speeds
from probes.network.all_reduce import AllReduce
from probes.network.links import Link
from probes.node import probe
from probes.timing import Measurement

PLAN = Plan(strategy="sequential", node_batch=4)
TRIAL = TrialResult(
    plan=PLAN,
    role=Role.BASELINE,
    outcome=Outcome.OK,
    measurement=Measurement(warmup_s=(0.5,), samples_s=(0.1, 0.11, 0.1, 0.1)),
    elapsed_s=1.0,
)
NODE = node_of(2)
CASE = replace(sample_plan.CASE, default_batch=4, parameter_bytes=88)
REQUEST = TuneRequest(workload=Workload(use_case="steady"), strategies=("sequential", "threads"))
FAILED = NodeFailed(code=3, error="no_plan", message="no trial succeeded")


class Heard:
    """Takes down what rank 0 says and tells."""

    def __init__(self, leaders) -> None:
        self.said: list[Report] = []
        self.told: list[tuple[int, Report]] = []
        self.coordinator = Coordinator(
            leaders,
            (1000,),
            self.said.append,
            lambda rank, report: self.told.append((rank, report)),
        )

    def hear(self, *reports: tuple[int, Report]) -> list[tuple[int, Report]]:
        """Pass reports on; give what was told since."""
        self.told.clear()
        for rank, report in reports:
            self.coordinator.receive(rank, report)
        return list(self.told)


FOUND = PlansFound(plans=(PLAN,))


def test_node_with_most_trials_searches_for_its_equals():
    assert choose_leaders(["a", "b", "a", "a", "b"], [0, 0, 5, 5, 0]) == (2, 1, 2, 2, 1)


def test_node_of_unknown_hardware_searches_for_itself():
    assert choose_leaders([None, None], [0, 0]) == (0, 1)


@pytest.mark.parametrize(("shown", "leaders"), [((0, 1), [0, 0]), ((None, 0), [0, 1])])
def test_equal_node_that_shows_other_gpus_searches_for_itself(shown, leaders, collector):
    """Plans name GPUs by CUDA's numbers: with those of the other node it would train on others."""
    node = node_of(2, gpus=2)
    pairs = zip(node.gpus, shown, strict=True)
    gpus = [replace(gpu, uuid=f"other {gpu.uuid}", cuda_index=number) for gpu, number in pairs]
    other = replace(node, node="n2", gpus=tuple(gpus))
    facts = {"a": facts_of(1, hardware=node), "b": facts_of(2, hardware=other)}
    found = CheckedHosts(hosts=(host("a"), host("b")), findings=(), facts=facts, here=facts["a"])
    task = ClusterTask(purpose=ClusterPurpose.PROBE)
    tuning = ClusterDriver(task, found, Hosts.this_machine(HostAccess()), collector)
    nodes = tuning._task(ClusterPurpose.PROBE, found.ranked).nodes
    assert [one.leader for one in nodes] == leaders


def test_equal_nodes_confirm_what_was_found():
    heard = Heard([0, 0, 2, 0])
    confirm = ConfirmPlans(plans=FOUND.plans)
    assert heard.hear((0, FOUND)) == [(1, confirm), (3, confirm)]
    assert confirm.plans == (PLAN,)


@pytest.mark.parametrize("end", [PlansFound(plans=()), FAILED])
def test_next_of_the_equal_nodes_searches_where_the_first_found_nothing(end):
    heard = Heard([0, 0, 0])
    assert heard.hear((0, end)) == [(1, LeadSearch())]
    assert heard.hear((1, FOUND)) == [(2, ConfirmPlans(plans=FOUND.plans))]


class Ordered:
    """Notes in which order a machine is locked and its search is told what to do."""

    def __init__(self) -> None:
        self.did: list[str] = []

    @contextmanager
    def lock(self):
        self.did.append("lock")
        yield

    def extend(self, waited_s):
        self.did.append("extend")

    def confirm(self, plans):
        self.did.append("confirm")

    def search(self):
        self.did.append("search")


@pytest.mark.parametrize(
    ("directive", "then"), [(ConfirmPlans(plans=(PLAN,)), "confirm"), (LeadSearch(), "search")]
)
def test_node_has_its_whole_budget_when_it_has_waited_for_others(directive, then):
    """The story: what it waited for its machine's lock, which another job had, was missing."""
    node, directives = Ordered(), SimpleQueue()
    directives.put(directive)
    assert follow(node, directives, node.lock) is (then == "confirm")
    assert node.did == ["lock", "extend", then]


def test_node_that_has_failed_is_not_asked_to_search():
    heard = Heard([0, 0, 0])
    assert heard.hear((1, FAILED), (0, FAILED)) == [(2, LeadSearch())]


def test_all_finish_when_the_last_has_done_its_part():
    heard = Heard([0, 0, 2])
    learnt = CaseDescribed(facts=CASE, pixel_bytes=None)
    assert heard.hear((2, learnt), (2, NodeDone()), (0, FAILED)) == [(1, LeadSearch())]
    finish = MeasureNetwork(message_bytes=(88, 1000))
    assert heard.hear((1, NodeDone())) == [(0, finish), (1, finish), (2, finish)]


def test_what_nodes_say_is_passed_on_with_their_rank():
    heard = Heard([0, 1])
    heard.hear((1, Warned(message="mind\nthe gap")))
    line = heard.said[0].encode()
    assert line.count(b"\n") == 1
    passed = Report.decode(line)
    assert isinstance(passed, NodeReport)
    assert (passed.rank, passed.report) == (1, Warned(message="mind\nthe gap"))


def test_task_reaches_the_nodes_as_it_was_given():
    earlier = EarlierTrials(study_id=0, results=(TRIAL,), finished=1)
    nodes = (
        NodeTask(leader=0, probe=NODE, studies={"sha256:2": earlier}),
        NodeTask(leader=0),
    )
    task = ClusterTask(
        purpose=ClusterPurpose.TUNE,
        nodes=nodes,
        software=SOFTWARE,
        request=REQUEST,
        message_bytes=(4,),
    )
    assert codec.decode(codec.encode(task), ClusterTask, source="task") == task


def test_measured_network_reaches_the_starting_process_as_it_was_measured():
    links = (Link(first=0, second=1, latency_s=1e-5, bytes_per_s=1e8),)
    times = Measurement(warmup_s=(1.0,), samples_s=(0.5, 0.6))
    sums = AllReduce(
        message_bytes=88,
        ranks=2,
        times=times,
        beside_s=0.3,
        cpu_s=(0.1, 0.2),
        interrupts_s=(0.05, 0.0),
    )
    measured = LinksMeasured(links=links, all_reduces=(sums,))
    assert Report.decode(measured.encode()) == measured


class Shown:
    def __init__(self) -> None:
        self.lines: list[tuple[str, bool]] = []
        self.notes: list[str] = []

    def __call__(self, report, host=None):
        if isinstance(report, TrialEnded):
            self.lines.append((host, report.is_best))
        if isinstance(report, Noted):
            self.notes.append(report.message)


@pytest.fixture
def collector(tmp_path):
    with LazyStore(str(tmp_path / "planner.db")) as store:
        nodes = {name: NodeState(host=name) for name in ("a", "b")}
        yield Collector(store, SOFTWARE, Shown(), REQUEST, nodes)


def begin(collector, host="a"):
    collector.receive(host, NodeProbed(hardware=NODE, is_new=True))
    collector.receive(host, CaseDescribed(facts=CASE, pixel_bytes=None))


def test_nothing_is_made_before_there_is_something_to_keep(collector, tmp_path):
    collector.receive("a", NodeProbed(hardware=NODE, is_new=False))
    collector.receive("a", FAILED)
    collector.conclude(interrupted=False)
    assert list(tmp_path.iterdir()) == []


def test_each_trial_is_in_the_database_when_it_was_told(collector, tmp_path):
    begin(collector)
    collector.receive("a", TrialEnded(result=TRIAL, number=0))
    with Store.open(str(tmp_path / "planner.db")) as store:
        assert [trial.result for trial in store.studies.all_trials()] == [TRIAL]
    assert collector.listener.lines == [("a", True)]


def test_failed_node_does_not_keep_another_from_its_plan(collector):
    begin(collector)
    collector.receive("a", TrialEnded(result=TRIAL, number=0))
    collector.receive("a", NodeDone())
    collector.receive("b", FAILED)
    collector.conclude(interrupted=False)
    assert collector.nodes["a"].outcome.plan.plan == PLAN
    assert collector.nodes["b"].outcome is None


def test_only_the_speeds_of_a_stored_probe_are_old():
    """A host was tuned on the cores, GPUs and memory that it had when it was probed."""
    told = []
    today = probe(quick=True)
    speeds = Speeds(fp32_one_core_flop_per_s=5e9)
    cores = tuple(900 + core for core in today.cpu.core_ids)
    stored = replace(today, cpu=replace(today.cpu, core_ids=cores), speeds=speeds)
    assert stored.fingerprint() == today.fingerprint()
    found = find_hardware(stored, told.append)
    assert found.speeds == speeds
    assert found.cpu.core_ids == today.cpu.core_ids
    assert told == [NodeProbed(hardware=found, is_new=False)]


def test_search_on_a_lost_host_can_go_on(collector, tmp_path):
    begin(collector)
    collector.receive("a", TrialEnded(result=TRIAL, number=0))
    collector.receive("a", replace(FAILED, is_lost=True))
    collector.conclude(interrupted=False)
    with Store.open(str(tmp_path / "planner.db")) as store:
        (earlier,) = store.studies.find_for_use_case("steady", "n1").values()
    assert (earlier.results, earlier.finished) == ((TRIAL,), 0)


def test_trials_go_on_in_one_study_when_a_node_begins_again(collector):
    begin(collector)
    collector.receive("a", TrialEnded(result=TRIAL, number=0))
    begin(collector)
    collector.receive("a", TrialEnded(result=TRIAL, number=0))
    assert collector.nodes["a"].findings.new_results() == [TRIAL, TRIAL]


@pytest.fixture
def probed_by(tmp_path):
    """Probe this machine by an mpirun that does what a script says; give what came of it."""
    facts = facts_of(1, hardware=NODE)
    checked = CheckedHosts(
        hosts=(host("localhost"),),
        findings=(),
        facts={"localhost": facts},
        here=facts,
        this_machine="localhost",
    )

    def run(script: str) -> Collector:
        own = write_mpirun(tmp_path, "mpirun (Open MPI) 5.0.3", script)
        with LazyStore(str(tmp_path / "planner.db")) as store:
            nodes = {"localhost": NodeState(host="localhost")}
            collector = Collector(store, SOFTWARE, Shown(), nodes=nodes)
            hosts = Hosts.this_machine(HostAccess(mpirun=own))
            task = ClusterTask(purpose=ClusterPurpose.PROBE)
            ClusterDriver(task, checked, hosts, collector).run()
        return collector

    return run


def test_job_whose_ranks_never_come_together_is_ended_and_told(probed_by, monkeypatch):
    """The story: behind a firewall each rank waited for the others, and tune for all of them."""
    monkeypatch.setitem(run_mpi.__kwdefaults__, "start_limit_s", 0.5)
    with pytest.raises(HostUnreachableError, match=r"no answer within .* a firewall"):
        probed_by("exec sleep 1000")


PROBED = NodeReport.of(0, NodeProbed(hardware=NODE, is_new=False)).encode().decode().strip()
TELL_PROBED = f"printf '%s\\n' {shlex.quote(PROBED)}"


def test_job_that_failed_too_often_is_not_said_to_go_on(probed_by, monkeypatch):
    monkeypatch.setattr(driver, "_MAX_RESTARTS", 0)
    assert probed_by(f"{TELL_PROBED}; exit 1").listener.notes == []


def test_host_whose_rank_was_killed_is_lost_and_told(probed_by):
    noticed = "process rank 0 with PID 7 on node vm exited on signal 9 (Killed)."
    node = probed_by(f"{TELL_PROBED}; echo '{noticed}' >&2; exit 1").nodes["localhost"]
    assert node.failure.message == "lost: its MPI rank was killed by signal 9 (SIGKILL)"
    assert node.failure.is_lost


def test_ranks_say_that_they_are_together_before_they_begin(tmp_path):
    nodes = (NodeTask(leader=0), NodeTask(leader=1))
    task = tmp_path / "task"
    told = ClusterTask(purpose=ClusterPurpose.PROBE, nodes=nodes, is_quick=True)
    task.write_bytes(codec.encode(told))
    ended = run_ranks(2, ["-m", "planner.cluster_tuning.rank", str(task)])
    assert ended.returncode == 0, ended.stderr
    first, *others = (Report.decode(line.encode()) for line in ended.stdout.splitlines())
    assert first == Alive()
    assert {report.rank for report in others} == {0, 1}


POST = """
import json, sys
from queue import SimpleQueue
from mpi4py import MPI
from planner.cluster_tuning.mailbox import Mailbox

comm, heard = MPI.COMM_WORLD, SimpleQueue()
large = b"x" * 5_000_000
with Mailbox(comm, lambda sender, document: heard.put((sender, document))) as post:
    post.send(0, b"from %d" % comm.rank)
    post.send(0, large)
    if comm.rank == 0:
        every = [heard.get() for _ in range(2 * comm.size)]
        for rank in range(comm.size):
            assert [d for s, d in every if s == rank] == [b"from %d" % rank, large]
        for rank in range(comm.size):
            post.send(rank, b"to %d" % rank)
    assert heard.get() == (0, b"to %d" % comm.rank)
print("done", flush=True)
"""


def test_documents_arrive_whole_and_in_order():
    ended = run_ranks(3, ["-c", POST])
    assert (ended.returncode, ended.stdout) == (0, "done\n" * 3), ended.stderr


def test_gradients_are_cut_to_what_a_slow_link_can_sum_in_time():
    assert largest_within(4.0, 2, [100e6, 12.5e6]) == 11 * 2**22
    assert largest_within(0.001, 3, [12.5e6]) == 2**22
