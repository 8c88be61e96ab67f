"""Order and turns of a sweep."""

from __future__ import annotations

from dataclasses import dataclass

from sweep_samples import NOW, sample_record
from worth_cases import NODE

from launch.plan import Plan
from launch.reports import StepDone
from planner.cancellation import Cancellation
from planner.sweeps.point_training import PointTraining, choose_turn
from planner.sweeps.sweep_record import StoredSweep
from planner.sweeps.sweeper import Sweeper, spread
from planner.trials.reports import ignore


@dataclass
class EventfulRunner:
    """Trains in no time, and says who ended."""

    events: list[str]

    def start(self, plan, *, epochs, on_report):
        return EventfulContender(self.events)


@dataclass
class EventfulContender:
    events: list[str]
    disturbance = peak_memory_bytes = None

    def make_steps(self, count, *, time_limit_s):
        step = StepDone(step=0, epoch=1, time_s=0.5, samples=3200, loss=1.0)
        return [step] * count

    def finish(self, *, time_limit_s):
        self.events.append("ended")

    def close(self):
        pass


def training(batch: int, step_s: float, *, samples: int = 60_000) -> PointTraining:
    plan = Plan(strategy="sequential", node_batch=batch)
    made = PointTraining(setting=0, plan=plan, samples=samples, epochs=2)
    made.step_s = step_s
    return made


def test_batches_are_spread_so_that_a_drift_tilts_no_line_through_them():
    batches = [32, 64, 128, 256, 512]
    assert spread(batches) == [32, 128, 512, 256, 64]
    places = [spread(batches).index(batch) for batch in batches]
    mean = sum(places) / len(places)
    slope = sum((n - 2) * (place - mean) for n, place in enumerate(places)) / 10
    assert abs(slope) < 0.5  # in order, it would be 1


def test_turn_lasts_about_half_a_second_and_is_one_step_where_a_step_does():
    assert choose_turn([training(32, 0.01), training(32, 0.02)]) == 50
    assert choose_turn([training(8192, 2.0)]) == 1


def test_short_training_is_cut_into_many_turns_and_a_long_one_into_no_more_than_are_stored():
    assert choose_turn([training(32, 0.0001, samples=1920)]) == 5  # 120 steps, 24 turns
    assert choose_turn([training(1, 0.01, samples=600_000)]) == 5000  # 1,200,000 steps, 240 turns


def test_steps_left_count_the_last_smaller_step_of_each_epoch():
    assert training(32, 0.1, samples=100).steps_left == 8


def test_points_of_a_batch_are_stored_together_once_all_of_them_have_ended():
    """Killed while the second setting validated, a sweep trained it again alone: not compared. So
    did one that was killed after it had stored the first."""
    events = []

    def save(points):
        events.append([point.setting for point in points])
        return points

    sweep = StoredSweep(record=sample_record([3200]))
    runner = EventfulRunner(events)
    Sweeper(sweep, NODE, runner, save, ignore, Cancellation(), lambda: NOW).run()
    assert events == ["ended", "ended", [0, 1]]
