"""A training that was kept goes on in new processes as if nothing had been, under any plan."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import tiny_cases
import torch
from conftest import SEED, TINY, Training, long
from one_process import largest_error, trained_alone
from safetensors.torch import load_file
from strategy_homes import EACH_KIND, EVERY, plans_of

from launch.checkpoints.folder import find_latest
from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.gradient_sync.node_channel.requests import Directive
from launch.gradient_sync.node_channel.step_server import StepServer
from launch.job import CheckpointConfig
from launch.plan import Plan
from launch.reports import CheckpointSaved, StepDone, StepsPaused, StrategyPrepared, Warned
from launch.workers.group import WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload


class Ordering(StepServer):
    """Wants a checkpoint and an end after some steps."""

    stop_after: int | None = None
    losing: Path | None = None
    """This folder is lost after as many steps, and a checkpoint wanted, but no end."""

    def _next_directive(self) -> Directive:
        if self.steps != self.stop_after:
            return Directive()
        if self.losing is None:
            return Directive(checkpoint=True, stop=True)
        shutil.rmtree(self.losing)
        return Directive(checkpoint=True)


class KeptTraining:
    """Trains in one run or in two, with a checkpoint between them."""

    def __init__(self, training: Training, directory: Path) -> None:
        self._training = training
        self._directory = directory
        self.folder = directory / "kept"
        self.steps: list[list[float]] = []
        """Losses of each run's steps."""
        self.saved: list[CheckpointSaved] = []
        self.warned: list[str] = []
        self.prepared: list[StrategyPrepared] = []

    def run(
        self,
        plan: Plan,
        case: str,
        *,
        stop: int | None = None,
        resume: bool = False,
        epochs: int = 1,
        loses: bool = False,
    ) -> dict[str, torch.Tensor]:
        """Train to the end or until so many steps are made; give the weights."""
        weights = self._directory / "weights.safetensors"
        task = Task(
            purpose=Purpose.TRAIN,
            workload=Workload(use_case=f"{TINY}:{case}", seed=SEED),
            plan=plan,
            epochs=epochs,
            has_rank=True,
            weights=str(weights),
            checkpoint=CheckpointConfig(
                folder=None if stop is None else str(self.folder),
                resume_from=str(find_latest(self.folder).path) if resume else None,
            ),
        )
        tasks = make_worker_tasks(task, self._training._node.cpu.core_ids)
        self._training.events.clear()
        with served(tasks, stop, self.folder if loses else None) as descriptors:
            group = WorkerGroup(
                self._training._server, tasks, self._directory, descriptors=descriptors
            )
            with group:
                while event := group.next_event():
                    failure = explain_failure(group, event)
                    assert failure is None, f"{failure.message}\n{failure.log_tail}"
                    self._training.events.append(event)
        self.steps.append([step.loss for step in self._training.reports(StepDone)])
        self.saved += self._training.reports(CheckpointSaved)
        self.prepared += self._training.reports(StrategyPrepared)
        self.warned += [said.message for said in self._training.reports(Warned)]
        return load_file(weights)

    def in_two_runs(self, first: Plan, second: Plan, case: str, *, epochs=1, stop=3):
        self.run(first, case, stop=stop, epochs=epochs)
        return self.run(second, case, resume=True, epochs=epochs)


@contextmanager
def served(tasks: list[Task], stop: int | None, losing: Path | None) -> Iterator[SharedDescriptors]:
    descriptors = SharedDescriptors.create()
    server = Ordering(descriptors, len(tasks))
    server.stop_after, server.losing = stop, losing
    thread = Thread(target=server.run)
    thread.start()
    try:
        yield descriptors
    finally:
        server.close()
        thread.join()
        descriptors.close()


@pytest.fixture
def kept(home, tmp_path) -> KeptTraining:
    return KeptTraining(home.training, tmp_path)


@pytest.fixture
def kept_on_four(training_on_four, tmp_path) -> KeptTraining:
    return KeptTraining(training_on_four, tmp_path)


def assert_same(ours, theirs) -> None:
    assert ours.keys() == theirs.keys()
    assert {name for name in ours if not torch.equal(ours[name], theirs[name])} == set()


def settled(plan: Plan) -> Plan:
    """A plan that is the same whenever it is built, for batches of eight."""
    options = {**plan.options, "cut": "2"} if "cut" in plan.options else plan.options
    few = min(plan.micro_batches, 2)
    return replace(plan, node_batch=8, micro_batches=few, options=options)


@EACH_KIND
def test_the_same_plan_goes_on_to_the_last_bit(kept, home):
    """In the middle of the second epoch, which has 20 steps."""
    plan = settled(home.plans()[0])
    if plan.strategy == "threads" and plan.replicas > 1:
        plan = replace(plan, replicas=1)  # they draw from one generator, in any order
    whole = kept.run(plan, "Random", epochs=2)
    parts = kept.in_two_runs(plan, plan, "Random", epochs=2, stop=23)
    assert_same(parts, whole)
    alone, before, after = kept.steps
    assert (len(before), len(after)) == (23, 17)
    assert before + after == alone
    (saved,) = kept.saved
    assert saved.step == 23
    assert Path(saved.path).name == "step-00000023"


@EACH_KIND
def test_a_training_that_is_done_gives_its_weights_once_more(kept, home):
    plan = settled(home.plans()[0])
    whole = kept.run(plan, "AdamW", stop=10**6)
    assert_same(kept.run(plan, "AdamW", resume=True), whole)
    assert kept.steps[1] == []


@pytest.mark.parametrize("name", ["processes", "threads", long("hybrid")])
def test_running_statistics_go_on_to_the_last_bit(name, kept, home):
    """Of each worker's own share; those of the first one count."""
    plan = settled(home.plans()[0])
    whole = kept.run(plan, "Normed", epochs=2)
    assert_same(kept.in_two_runs(plan, plan, "Normed", epochs=2, stop=23), whole)


SEQUENTIAL = Plan(strategy="sequential", node_batch=8)


@EVERY
@pytest.mark.parametrize("case", ["AdamW", "OneCycle"])
@pytest.mark.long
def test_another_plan_goes_on(case, kept, home):
    """There and back: from each strategy to the plainest plan, and from that to the strategy."""
    plan = replace(settled(home.plans()[0]), memory_format="channels_last")
    alone = trained_alone(getattr(tiny_cases, case)(), node_batch=8)
    kept.run(plan, case, stop=3)
    kept.run(SEQUENTIAL, case, resume=True, stop=5)
    weights = kept.run(plan, case, resume=True)
    assert [len(steps) for steps in kept.steps] == [3, 5, 12]
    assert largest_error(weights, alone) < 1e-5


MIXED = [
    ("Sgd", "processes", "pipeline"),
    ("Adagrad", "pipeline", "processes"),
    ("Tied", "pipeline", "gpu_data"),
    ("Scheduled", "gpu_data", "threads"),
    ("WholeTensors", "processes", "threads"),
]
"""Cases that only some strategies treat in ways of their own."""


@pytest.mark.parametrize(("case", "before", "after"), MIXED)
def test_another_strategy_goes_on(case, before, after, kept_on_four, tiny_facts, nodes):
    _, two_gpus, *_ = nodes
    first, second = (settled(plans_of(name, tiny_facts, two_gpus)[0]) for name in (before, after))
    first, second = (replace(plan, devices=("cpu",)) for plan in (first, second))
    alone = trained_alone(getattr(tiny_cases, case)(), node_batch=8)
    weights = kept_on_four.in_two_runs(first, second, case, stop=7)
    assert largest_error(weights, alone) < 1e-5


def test_a_measured_cut_is_kept_and_not_measured_again(training, tmp_path):
    """Cut elsewhere, the same plan would round other sums."""
    kept = KeptTraining(training, tmp_path)
    plan = Plan(
        strategy="pipeline",
        node_batch=8,
        processes=2,
        micro_batches=2,
        options={"schedule": "1f1b", "cut": "measured"},
    )
    kept.in_two_runs(plan, plan, "Sgd")
    shutil.rmtree(tmp_path / "kept")
    kept.in_two_runs(plan, replace(plan, micro_batches=4), "Sgd")
    first, second, _, other = (said.facts for said in kept.prepared)
    assert second["cut"] == first["cut"]
    assert first["layer_times_s"] is not None
    assert second["layer_times_s"] is None
    assert other["layer_times_s"] is not None  # another plan: what was best need not be now


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(training, tmp_path):
    kept = KeptTraining(training, tmp_path)
    plan = replace(SEQUENTIAL, strategy="processes", processes=2, replicas=2)
    kept.run(plan, "Sgd", stop=7, loses=True)
    assert len(kept.steps[0]) == 20
    assert len(kept.warned) == 2  # the one that was asked for, and the one at the end
    for warning in kept.warned:
        assert warning.startswith("worker 0 cannot write a checkpoint into ")
        assert warning.endswith(": the training does without it")


def test_steps_of_another_size_may_take_any_time_to_come(training, tmp_path, monkeypatch):
    """The story: a share that changed was compiled anew, which counted as a hang after a minute."""

    def change(server: Ordering) -> Directive:
        return Directive(node_batches=(4,) if server.steps == 5 else None)

    monkeypatch.setattr(Ordering, "_next_directive", change)
    KeptTraining(training, tmp_path).run(SEQUENTIAL, "Sgd")
    assert [step.samples for step in training.reports(StepDone)] == [8] * 5 + [4] * 30
    *_, paused = training.reports((StepDone, StepsPaused))[:6]
    assert isinstance(paused, StepsPaused)


@pytest.mark.gpu
def test_a_step_that_is_recorded_draws_what_it_draws_where_it_is_replayed(training, tmp_path):
    """The passes before a recording drew its numbers: a resumed training had another dropout."""
    plan = replace(SEQUENTIAL, devices=("cuda:0",), cuda_graph=True)
    kept = KeptTraining(training, tmp_path)
    whole = kept.run(plan, "Random")
    assert largest_error(kept.in_two_runs(plan, plan, "Random"), whole) < 1e-4


def test_a_checkpoint_of_other_data_is_refused(training, tmp_path):
    kept = KeptTraining(training, tmp_path)
    kept.run(SEQUENTIAL, "Sgd", stop=7)
    with pytest.raises(AssertionError, match="counts 160 training samples and the data set has 17"):
        kept.run(SEQUENTIAL, "Uneven", resume=True)
