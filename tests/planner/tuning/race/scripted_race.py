"""Races of plans whose steps take times that are written down."""

from __future__ import annotations

from launch.plan import Plan
from launch.reports import StepDone
from planner.trials.contender import TrialFailedError
from planner.trials.result import Outcome, Role
from planner.tuning.race import Race

PLAN = Plan(strategy="sequential", node_batch=10)


class Scripted:
    """Makes steps whose times are written down; the last one goes on for ever."""

    peak_memory_bytes = 1
    compile_s = None
    disturbance = None

    gpu_bytes = None

    def __init__(
        self, name, times_s, log=None, *, input_s=(0.0,), read_ahead=(0,), samples=(10,), unseen=()
    ) -> None:
        self._name = name
        self._times_s = times_s
        self._input_s = input_s
        self._read_ahead = read_ahead
        self._samples = samples
        self._log = [] if log is None else log
        self._unseen = unseen
        self._made = 0
        self.is_closed = False

    def make_steps(self, count, *, time_limit_s):
        self._log.append((self._name, count))
        steps = []
        for _ in range(count):
            while self._made + 1 in self._unseen:
                self._made += 1
            time_s, input_s, ahead = (
                found[min(self._made, len(found) - 1)]
                for found in (self._times_s, self._input_s, self._read_ahead)
            )
            if time_s is None:
                raise TrialFailedError(Outcome.CRASH, "scripted")
            samples = self._samples[self._made % len(self._samples)]
            self._made += 1
            steps.append(
                StepDone(
                    step=self._made,
                    epoch=0,
                    time_s=time_s,
                    samples=samples,
                    loss=1.0,
                    input_s=input_s,
                    read_ahead=ahead,
                    peak_device_memory_bytes=self.gpu_bytes,
                )
            )
        return steps

    def close(self):
        self.is_closed = True


def race_of(*contenders):
    waiting = list(contenders)
    return Race(lambda plan: waiting.pop(0))


def entered(*contenders, plan=PLAN, role=Role.SEARCH):
    """Give a race, and the entrants of contenders that have entered it, all with one plan."""
    race = race_of(*contenders)
    return race, [race.enter(plan, role, time_limit_s=99) for _ in contenders]
