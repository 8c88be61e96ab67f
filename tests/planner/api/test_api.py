"""The Python API on this machine: probe, tune, plans and launch, with a listener and a cancel."""

from __future__ import annotations

import re
import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from launch.errors import LaunchError, MachineBusyError
from launch.reports import EpochDone, Noted, StepDone, Warned
from launch.system.machine_lock import Occupant, timing_alone
from planner.api import (
    Cancellation,
    CancelledError,
    CheckpointConfig,
    CompareRequest,
    HostAccess,
    Hosts,
    LaunchRequest,
    PreparedLaunch,
    TuneRequest,
    compare,
    launch,
    make_workload,
    plans,
    prepare_launch,
    probe,
    reports,
    tune,
)
from planner.api._call_context import CallContext
from planner.api.comparing import _launch_request
from planner.errors import NoDatabaseError, NoPlanError, PlannerError, StoreError, UsageError
from planner.exit_codes import classify_error
from planner.store import Store
from planner.trials.reports import TrialEnded, TrialProgress, TrialStarted
from planner.trials.result import Role
from probes.node import probe as probe_node

CASES = Path(__file__).parents[1] / "steady_cases.py"
# Nothing in it can be faster in bf16, on any machine.
NO_PRODUCTS = make_workload(
    f"{Path(__file__).parents[2] / 'launch/cases/precision_cases.py'}:NoProducts"
)
HERE = Hosts.this_machine(HostAccess(allow_root=True))
END_LIMIT_S = 60.0
"""Until a cancelled call returns: one that went on would take ten minutes."""


class Heard:
    """Records reports; does something with each one that has a type."""

    def __init__(self, kind=(), act=lambda: None):
        self._kind = kind
        self._act = act
        self.reports = []

    def __call__(self, report, host=None):
        self.reports.append(report)
        if isinstance(report, self._kind):
            self._act()

    def of(self, kind):
        return [report for report in self.reports if isinstance(report, kind)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tuned_here(folder, tuned_folder, shared_servers):
    """A database with one plan, of the steady use case, and fork servers that have started."""
    shutil.copy(tuned_folder / "planner.db", folder / "planner.db")


@pytest.fixture
def probed_here(folder, probed_database, shared_servers):
    """A database that knows this machine and holds no trial, and fork servers that have started."""
    shutil.copy(probed_database, folder / "planner.db")


def steady(case="Steady", **settings):
    return make_workload(f"{CASES}:{case}", **settings)


def run_in_thread(function):
    """Call a function in a thread of its own; give its result, or its error, when that ends."""
    results = []

    def run():
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to the test
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


@pytest.mark.usefixtures("probed_here")
def test_tune_finds_a_plan_that_launch_then_trains_with_and_nothing_is_printed(folder, capfd):
    """Of a stored probe only speeds count: trials were pinned to the cores that it had seen."""
    cpu = probe_node(quick=True).cpu
    old = replace(cpu, core_ids=tuple(900 + core for core in cpu.core_ids))
    with Store.open("planner.db") as store:
        known = store.machines.latest_probe(probe_node(quick=True).fingerprint())
        store.machines.save_probe(replace(known, cpu=old))
    heard = Heard()
    request = TuneRequest(workload=steady(), budget_s=12, trials=1)
    result = tune(request, listener=heard)
    assert not result.interrupted
    assert heard.of(TrialStarted)
    assert heard.of(TrialProgress)
    assert len(heard.of(TrialEnded)) == len(result.nodes[0].outcome.trials)
    assert "crash" not in {ended.result.outcome for ended in heard.of(TrialEnded)}
    (found,) = plans.find(request.workload.use_case)
    assert found.stored.id == result.plan.id
    assert not found.is_stale
    assert len(plans.find_trials()) == len(heard.of(TrialEnded))
    assert plans.find_best(request.workload.use_case).stored == plans.get(result.plan.id).stored

    heard = Heard()
    done = launch(LaunchRequest(workload=request.workload, epochs=2), hosts=HERE, listener=heard)
    assert len(heard.of(EpochDone)) == len(done.outcome.epochs) == 2
    assert heard.of(PreparedLaunch) == [done.prepared]
    assert not any("tune again" in said.message for said in heard.of(Warned))  # of changed code
    assert done.outcome.weights.is_file()
    assert done.prepared.expected_samples_per_s == pytest.approx(
        result.plan.throughput_samples_per_s.median
    )
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_probe_without_speeds_is_not_enough(tuned_folder):
    """It is all that is stored of this machine when the search begins."""
    with Store.open(str(tuned_folder / "planner.db")) as store:
        found = store.machines.latest_probe(probe_node(quick=True).fingerprint())
    assert found.speeds is not None


def copy_cases(folder):
    """Copy the use cases to another folder; give the workload there."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(CASES, elsewhere)
    return make_workload(f"{elsewhere / CASES.name}:Steady")


@pytest.mark.long
@pytest.mark.usefixtures("tuned_here")
def test_use_case_that_was_copied_keeps_its_plans(folder):
    """It was known by its path: a copy had no plans, and its search began from nothing. A
    comparison with the batch of a plan said that there was none, and later read it twice."""
    copy = copy_cases(folder)
    prepared = prepare_launch(LaunchRequest(workload=copy))
    assert prepared.job.workload == copy
    assert prepared.plans[0].stored.id == plans.find_best(copy.use_case).stored.id == 1
    named = prepare_launch(LaunchRequest(workload=copy, plan_id=1))
    assert named.plans[0].stored == prepared.plans[0].stored
    batch = prepared.plans[0].stored.plan.node_batch
    compared, heard = CompareRequest(workload=copy, peers=("plain",), batch_size=batch), Heard()
    ours = _launch_request(compared, CallContext.of(HERE, "planner.db", heard, None))
    assert ours.plan_id == prepare_launch(ours, listener=heard).plans[0].stored.id == 1
    assert [said.message.partition(" ")[0] for said in heard.of(Noted)] == ["reading"]
    trials = len(plans.find_trials())
    found = tune(TuneRequest(workload=copy, budget_s=300, trials=0))
    assert found.plan.study_id == 1  # it went on with the study
    assert found.nodes[0].outcome.trials[:trials]
    assert {plan.stored.id for plan in plans.find(steady().use_case)} == {1, 2}


@pytest.mark.usefixtures("tuned_here")
def test_changed_copy_has_no_plans(folder):
    copy = copy_cases(folder)
    file = folder / "elsewhere" / CASES.name
    file.write_text(file.read_text().replace("nn.Linear(2, 4)", "nn.Linear(2, 8)"))
    with pytest.raises(NoPlanError, match=r"no plan for .*elsewhere"):
        prepare_launch(LaunchRequest(workload=copy))


@pytest.mark.long
@pytest.mark.usefixtures("tuned_here")
def test_training_of_code_that_has_changed_since_says_so(folder):
    file = copy_cases(folder).use_case.removesuffix(":Steady")
    case = make_workload(f"{file}:Steady")
    with Store.open("planner.db") as store:
        store.plans.save(replace(store.plans.get(1), use_case=case.use_case))
    Path(file).write_text(Path(file).read_text() + "\n# another release\n")
    heard = Heard()
    launch(LaunchRequest(workload=case), hosts=HERE, listener=heard)
    assert sum("tune again" in said.message for said in heard.of(Warned)) == 1


@pytest.mark.long
@pytest.mark.usefixtures("shared_servers")
@pytest.mark.parametrize(
    ("workload", "limits", "code", "message"),
    [
        (steady(), {"batch_size": 33}, 2, "--batch-size 33 and train_samples=32: use .* 32"),
        (NO_PRODUCTS, {"precision": "bf16"}, 3, "bf16 is not offered: there is no conv.* fp32"),
        (steady(), {"strategies": ("threads", "gpu_data")}, 3, ".*gpu_data: no usable GPU.*"),
        (steady("Fails"), {}, 2, "(?s).*ArithmeticError: the loss is.*"),
    ],
    ids=["batch", "precision", "strategy", "loss"],
)
def test_search_that_cannot_be_is_refused_before_any_trial_and_leaves_nothing(
    folder, workload, limits, code, message
):
    if "strategies" in limits and probe_node(quick=True).gpus:
        pytest.skip("gpu_data can run here: there is a GPU")
    with pytest.raises((LaunchError, PlannerError)) as refused:
        tune(TuneRequest(workload=workload, **limits))
    assert re.fullmatch(message, str(refused.value))
    assert classify_error(refused.value)[0] == code
    assert list(folder.iterdir()) == []


@contextmanager
def being_timed(command="ddlplan tune --use-case theirs"):
    """Have the machine's place for timing, as another search would."""
    # Not of this process, below which a training is started.
    theirs = replace(Occupant.of_this_process(command), pid=0)
    with timing_alone(theirs, waits=False, on_wait=pytest.fail, on_trouble=pytest.fail):
        yield


def test_second_search_waits_says_for_whom_and_can_be_cancelled(folder):
    """Two searches at once measured each other, and both stored it."""
    cancellation = Cancellation()
    heard = Heard(Noted, cancellation.cancel)
    request = TuneRequest(workload=steady(), budget_s=12)
    with being_timed(), pytest.raises(CancelledError):
        tune(request, listener=heard, cancellation=cancellation)
    (noted,) = heard.of(Noted)
    assert noted.message.startswith("waiting for process ")
    assert noted.message.endswith(": ddlplan tune --use-case theirs")


@pytest.mark.parametrize(
    "call",
    [lambda: tune(TuneRequest(workload=steady()), waits=False), lambda: probe(waits=False)],
    ids=["tune", "probe"],
)
def test_who_does_not_want_to_wait_is_refused_with_a_code_of_its_own(folder, call):
    with being_timed(), pytest.raises(MachineBusyError) as refused:
        call()
    assert classify_error(refused.value) == (7, "busy")
    assert probe(quick=True, waits=False).nodes  # which measures nothing


@pytest.mark.usefixtures("tuned_here", "without_mpirun")
@pytest.mark.parametrize(
    "call",
    [
        lambda: launch(LaunchRequest(workload=steady()), hosts=HERE),
        lambda: compare(CompareRequest(workload=steady(), peers=("plain",)), hosts=HERE),
        lambda: reports.measure(reports.MeasureRequest(budget_s=0.01, hosts=HERE)),
    ],
    ids=["launch", "compare", "report"],
)
def test_machine_without_any_mpirun_is_told_before_anything_is_written(folder, call):
    """The story: `launch` left a run directory, and the others had begun with their work."""
    with pytest.raises(UsageError, match="no mpirun beside this Python nor on the path"):
        call()
    assert [path.name for path in folder.iterdir()] == ["planner.db"]


@pytest.mark.usefixtures("probed_here")
def test_cancel_from_another_thread_ends_a_search_and_keeps_its_trials(folder):
    cancellation, enough = Cancellation(), threading.Event()
    heard = Heard(TrialEnded, enough.set)
    request = TuneRequest(workload=steady(), budget_s=600)
    thread, results = run_in_thread(
        lambda: tune(request, listener=heard, cancellation=cancellation)
    )
    assert enough.wait(120)
    cancellation.cancel()
    thread.join(END_LIMIT_S)
    assert not thread.is_alive()
    (result,) = results
    ended = heard.of(TrialEnded)
    assert len(plans.find_trials()) == len(ended) >= 1
    if {one.result.role for one in ended} == {Role.LOOK}:  # in a busy moment a step seems long
        assert isinstance(result, CancelledError), result
        return
    assert result.interrupted
    assert result.plan.use_case == request.workload.use_case


def test_call_that_is_cancelled_before_it_begins_does_nothing(folder):
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(CancelledError):
        tune(TuneRequest(workload=steady(), budget_s=600), cancellation=cancellation)


@pytest.fixture(scope="module")
def cancelled_training(tuned_folder, tmp_path_factory):
    """A training that ran while another search was timed, and was cancelled by another thread."""
    folder = tmp_path_factory.mktemp("cancelled")
    shutil.copy(tuned_folder / "planner.db", folder)
    cancellation, steps = Cancellation(), threading.Event()
    heard = Heard(StepDone, steps.set)
    checkpoint = CheckpointConfig(folder=str(folder / "kept"))
    request = LaunchRequest(workload=steady(), epochs=10**4, checkpoint=checkpoint)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DDLPLAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        with being_timed():
            thread, results = run_in_thread(
                lambda: launch(request, hosts=HERE, listener=heard, cancellation=cancellation)
            )
            assert steps.wait(120)
        with pytest.raises(MachineBusyError) as busy:
            probe(waits=False)
        cancellation.cancel()
        thread.join(END_LIMIT_S)
        assert not thread.is_alive()
    (error,) = results
    assert isinstance(error, CancelledError)
    return CancelledTraining(folder, request, heard, busy.value)


@dataclass(frozen=True)
class CancelledTraining:
    folder: Path
    request: LaunchRequest
    heard: Heard
    refused: MachineBusyError
    """Of a search that did not wait for it."""


def test_training_says_whose_times_it_disturbs_and_a_search_waits_for_it(cancelled_training):
    (warned,) = cancelled_training.heard.of(Warned)
    assert "disturbs the times that are measured by process" in warned.message
    assert re.search(r": ddlplan launch --use-case .*:Steady: ", str(cancelled_training.refused))
    with being_timed():
        pass  # the place is free again


def test_cancel_from_another_thread_ends_a_training_with_a_checkpoint_that_it_resumes_from(
    cancelled_training, monkeypatch
):
    monkeypatch.chdir(cancelled_training.folder)
    (kept,) = (cancelled_training.folder / "kept").glob("step-*")
    resumed = replace(cancelled_training.request, resume=True)
    assert prepare_launch(resumed).job.checkpoint.resume_from == str(kept)


def test_errors_are_of_our_types(folder):
    with pytest.raises(NoDatabaseError):
        plans.find()
    with pytest.raises(NoPlanError, match=r"run ddlplan tune --use-case .*:Steady "):
        launch(LaunchRequest(workload=steady()), hosts=HERE)
    with pytest.raises(UsageError, match="name the folder of the checkpoints"):
        launch(LaunchRequest(workload=steady(), resume=True), hosts=HERE)
    (folder / "planner.db").write_text("no database, but long enough to be taken for one" * 99)
    with pytest.raises(StoreError):
        plans.find()
