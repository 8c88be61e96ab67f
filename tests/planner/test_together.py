"""What rank 0 makes of what the nodes say, and what the starting process keeps of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from host_answers import facts_of, host
from own_mpirun import write_mpirun
from ranks_here import run_ranks

from launch.case_facts import CaseFacts
from launch.errors import HostUnreachableError
from launch.hosts.checked import HostsChecked
from launch.plan import Plan
from launch.workers.reports import Alive, Report, Warned
from planner.reach import Reach
from planner.result import Outcome, Role, TrialResult
from planner.store import Store
from planner.study import EarlierTrials
from planner.together import job
from planner.together.campaign import Campaign
from planner.together.coordinator import Coordinator
from planner.together.gathering import Gathering, LazyStore, NodeState
from planner.together.network import largest_within
from planner.together.reports import (
    CaseLearnt,
    Confirm,
    Finish,
    FromNode,
    Lead,
    LinksMeasured,
    NodeDone,
    NodeFailed,
    NodeProbed,
    PlansFound,
    TrialEnded,
)
from planner.together.task import NodeTask, Purpose, TogetherTask, choose_leaders
from planner.tune_request import TuneRequest
from probes.all_reduce import AllReduce
from probes.hardware import CoreLimit, Cpu, Hardware, Memory
from probes.links import Link
from probes.timing import Measurement

PLAN = Plan(strategy="sequential", node_batch=4)
TRIAL = TrialResult(
    plan=PLAN,
    role=Role.BASELINE,
    outcome=Outcome.OK,
    measurement=Measurement(warmup_s=(0.5,), samples_s=(0.1, 0.11, 0.1, 0.1)),
    elapsed_s=1.0,
)
NODE = Hardware(
    node="n1",
    cpu=Cpu(
        architecture="x86_64",
        logical_cores=2,
        usable_cores=2,
        core_ids=(0, 1),
        limits=(CoreLimit(source="test", cores=2),),
    ),
    memory=Memory(total_bytes=2**33, usable_bytes=2**33),
)
CASE = CaseFacts(
    spec="steady",
    default_batch=4,
    train_samples=32,
    validation_samples=4,
    parameter_count=22,
    parameter_bytes=88,
    max_stages=3,
    digest="sha256:1",
)
REQUEST = TuneRequest(use_case="steady", strategies=("sequential", "threads"))
SOFTWARE = {"python": "3.11.7", "torch": "2.15.0", "ddlplan": "0.1.0"}
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
            self.coordinator.hear(rank, report)
        return list(self.told)


FOUND = PlansFound(plans=[PLAN.to_json()])


def test_node_with_most_trials_searches_for_its_equals():
    assert choose_leaders(["a", "b", "a", "a", "b"], [0, 0, 5, 5, 0]) == (2, 1, 2, 2, 1)


def test_node_of_unknown_hardware_searches_for_itself():
    assert choose_leaders([None, None], [0, 0]) == (0, 1)


def test_equal_nodes_confirm_what_was_found():
    heard = Heard([0, 0, 2, 0])
    confirm = Confirm(plans=FOUND.plans)
    assert heard.hear((0, FOUND)) == [(1, confirm), (3, confirm)]
    assert confirm.values() == [PLAN]


@pytest.mark.parametrize("end", [PlansFound(plans=[]), FAILED])
def test_next_of_the_equal_nodes_searches_where_the_first_found_nothing(end):
    heard = Heard([0, 0, 0])
    assert heard.hear((0, end)) == [(1, Lead())]
    assert heard.hear((1, FOUND)) == [(2, Confirm(plans=FOUND.plans))]


def test_node_that_has_failed_is_not_asked_to_search():
    heard = Heard([0, 0, 0])
    assert heard.hear((1, FAILED), (0, FAILED)) == [(2, Lead())]


def test_all_finish_when_the_last_has_done_its_part():
    heard = Heard([0, 0, 2])
    learnt = CaseLearnt(facts=CASE.to_json(), pixel_bytes=None)
    assert heard.hear((2, learnt), (2, NodeDone()), (0, FAILED)) == [(1, Lead())]
    finish = Finish(message_bytes=[88, 1000])
    assert heard.hear((1, NodeDone())) == [(0, finish), (1, finish), (2, finish)]


def test_what_nodes_say_is_passed_on_with_their_rank():
    heard = Heard([0, 1])
    heard.hear((1, Warned(message="mind\nthe gap")))
    line = heard.said[0].encode()
    assert line.count(b"\n") == 1
    passed = Report.decode(line)
    assert isinstance(passed, FromNode)
    assert (passed.rank, passed.report) == (1, Warned(message="mind\nthe gap"))


def test_task_reaches_the_nodes_as_it_was_given():
    earlier = EarlierTrials(study_id=0, results=(TRIAL,), finished=1)
    nodes = (
        NodeTask(host="n1", leader=0, probe=NODE, studies={"sha256:2": earlier}),
        NodeTask(host="n2", leader=0),
    )
    task = TogetherTask(
        purpose=Purpose.TUNE, nodes=nodes, software=SOFTWARE, request=REQUEST, message_bytes=(4,)
    )
    assert TogetherTask.decode(task.encode()) == task


def test_measured_network_reaches_the_starting_process_as_it_was_measured():
    links = [Link(first=0, second=1, latency_s=1e-5, bytes_per_s=1e8)]
    times = Measurement(warmup_s=(1.0,), samples_s=(0.5, 0.6))
    sums = [
        AllReduce(
            message_bytes=88,
            ranks=2,
            times=times,
            beside_s=0.3,
            cpu_s=(0.1, 0.2),
            interrupts_s=(0.05, 0.0),
        )
    ]
    report = Report.decode(LinksMeasured.of(links, sums).encode())
    assert isinstance(report, LinksMeasured)
    assert report.values() == (links, sums)


class Shown:
    def __init__(self) -> None:
        self.lines: list[tuple[str, bool]] = []

    def trial_ended(self, host, result, *, is_best):
        self.lines.append((host, is_best))


@pytest.fixture
def gathering(tmp_path):
    with LazyStore(str(tmp_path / "planner.db")) as store:
        nodes = {name: NodeState(host=name) for name in ("a", "b")}
        yield Gathering(store, SOFTWARE, Shown(), REQUEST, nodes)


def begin(gathering, host="a"):
    gathering.hear(host, NodeProbed(hardware=NODE.to_json(), is_new=True))
    gathering.hear(host, CaseLearnt(facts=CASE.to_json(), pixel_bytes=None))


def test_nothing_is_made_before_there_is_something_to_keep(gathering, tmp_path):
    gathering.hear("a", NodeProbed(hardware=NODE.to_json(), is_new=False))
    gathering.hear("a", FAILED)
    gathering.conclude(interrupted=False)
    assert list(tmp_path.iterdir()) == []


def test_each_trial_is_in_the_database_when_it_was_told(gathering, tmp_path):
    begin(gathering)
    gathering.hear("a", TrialEnded(result=TRIAL.to_json()))
    with Store.open(str(tmp_path / "planner.db")) as store:
        assert [trial.result for trial in store.all_trials()] == [TRIAL]
    assert gathering.listener.lines == [("a", True)]


def test_failed_node_does_not_keep_another_from_its_plan(gathering):
    begin(gathering)
    gathering.hear("a", TrialEnded(result=TRIAL.to_json()))
    gathering.hear("a", NodeDone())
    gathering.hear("b", FAILED)
    gathering.conclude(interrupted=False)
    assert gathering.nodes["a"].outcome.plan.plan == PLAN
    assert gathering.nodes["b"].outcome is None


def test_search_on_a_lost_host_can_go_on(gathering, tmp_path):
    begin(gathering)
    gathering.hear("a", TrialEnded(result=TRIAL.to_json()))
    gathering.hear("a", replace(FAILED, is_lost=True))
    gathering.conclude(interrupted=False)
    with Store.open(str(tmp_path / "planner.db")) as store:
        (earlier,) = store.searches("steady", "n1").values()
    assert (earlier.results, earlier.finished) == ((TRIAL,), 0)


def test_trials_go_on_in_one_study_when_a_node_begins_again(gathering):
    begin(gathering)
    gathering.hear("a", TrialEnded(result=TRIAL.to_json()))
    begin(gathering)
    gathering.hear("a", TrialEnded(result=TRIAL.to_json()))
    assert gathering.nodes["a"].findings.new() == [TRIAL, TRIAL]


def test_job_whose_ranks_never_come_together_is_ended_and_told(tmp_path, monkeypatch):
    """The story: behind a firewall each rank waited for the others, and tune for all of them."""
    monkeypatch.setattr(job, "_START_LIMIT_S", 0.5)
    own = write_mpirun(tmp_path, "mpirun (Open MPI) 5.0.3", "exec sleep 1000")
    facts = facts_of(1, hardware=NODE)
    checked = HostsChecked(
        hosts=(host("localhost"),),
        findings=(),
        facts={"localhost": facts},
        here=facts,
        this_machine="localhost",
    )
    with LazyStore(str(tmp_path / "planner.db")) as store:
        nodes = {"localhost": NodeState(host="localhost")}
        gathering = Gathering(store, SOFTWARE, Shown(), nodes=nodes)
        campaign = Campaign(Purpose.PROBE, checked, Reach(mpirun=own), gathering)
        with pytest.raises(HostUnreachableError, match=r"has not joined all ranks .* a firewall"):
            campaign.run()


def test_ranks_say_that_they_are_together_before_they_begin(tmp_path):
    nodes = (NodeTask(host="a", leader=0), NodeTask(host="b", leader=1))
    task = tmp_path / "task"
    task.write_bytes(TogetherTask(purpose=Purpose.PROBE, nodes=nodes, is_quick=True).encode())
    ended = run_ranks(2, ["-m", "planner.together.rank", str(task)])
    assert ended.returncode == 0, ended.stderr
    first, *others = (Report.decode(line.encode()) for line in ended.stdout.splitlines())
    assert first == Alive()
    assert {report.rank for report in others} == {0, 1}


POST = """
import json, sys
from queue import SimpleQueue
from mpi4py import MPI
from planner.together.post import Post

comm, heard = MPI.COMM_WORLD, SimpleQueue()
large = b"x" * 5_000_000
with Post(comm, lambda sender, document: heard.put((sender, document))) as post:
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


def test_result_of_a_trial_is_the_same_after_its_way_as_json():
    trial = replace(TRIAL, compile_s=3.0, parameters={"a.b": 1}, reason="why", log_tail="tail")
    assert TrialResult.from_json(json.loads(json.dumps(trial.to_json()))) == trial


def test_gradients_are_cut_to_what_a_slow_link_can_sum_in_time():
    assert largest_within(4.0, 2, [100e6, 12.5e6]) == 11 * 2**22
    assert largest_within(0.001, 3, [12.5e6]) == 2**22
