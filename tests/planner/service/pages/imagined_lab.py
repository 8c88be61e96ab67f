"""An imagined lab: a database of any size that looks like one of a year's work.

The same numbers come of the same seed. Everything is written by the store's own methods.
"""

from __future__ import annotations

import platform
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lab_machines import make_links, make_machine, speed_of
from lab_searches import CASES, facts_of, make_stored_plan, make_trial
from lab_trainings import make_epoch, make_race, make_usage
from sweep_samples import failed_point, sample_point, sample_record

from launch.plan import Plan
from launch.system.process_identity import ProcessIdentity
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.records.progress import TrainingProgress
from planner.records.training_record import TrainingHost, TrainingRecord, TrainingStatus
from planner.store import Store
from planner.tuning.study import Study
from probes import codec

NOW = datetime(2026, 11, 24, 20, 46, 10, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """How much of everything there is."""

    machines: int = 6
    studies: int = 12
    trials: int = 480
    plans: int = 36
    trainings: int = 30
    jobs: int = 40
    seed: int = 0

    text: str = ""
    """Is put into every text that a user or a job can have chosen."""

    now: datetime = NOW
    machine: str = field(default_factory=platform.node)
    """Name of the machine that runs what runs now."""


SMALL = Lab(machines=3, studies=3, trials=60, plans=7, trainings=7, jobs=12)
FULL = Lab(machines=12, studies=100, trials=10_000, plans=500, trainings=200, jobs=400)


def fill(db: Path, lab: Lab | None = None) -> None:
    """Store everything of a lab."""
    lab = lab or Lab()
    writer = _Writer(lab)
    with Store.open(str(db), now=lambda: writer.moment) as store:
        writer.write(store)


class _Writer:
    """Writes a lab, the oldest first."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._random = random.Random(lab.seed)
        self.moment = lab.now - timedelta(days=200)
        self._machines = [make_machine(number, lab.text) for number in range(lab.machines)]
        self._plan_ids: dict[str, list[tuple[int, StoredPlan]]] = {}

    def write(self, store: Store) -> None:
        lab = self._lab
        step = timedelta(days=198) / max(1, lab.studies)
        for machine in self._machines:
            self.moment += timedelta(minutes=3)
            store.machines.save_probe(machine)
        study_ids = []
        for number in range(lab.studies):
            self.moment = lab.now - timedelta(days=199) + number * step
            study_ids.append(self._write_study(store, number))
        self.moment = lab.now - timedelta(days=2)
        for machine in self._machines:
            self.moment += timedelta(hours=3, minutes=7)
            store.machines.save_probe(machine)
        for size in (2, 3, 4):
            if size <= lab.machines:
                self.moment += timedelta(minutes=20)
                links = make_links(self._machines[:size], self._random, self.moment)
                store.machines.save_links(links)
        self._write_trainings(store)
        self._write_sweeps(store)
        self._write_jobs(store, study_ids)
        self.moment = lab.now

    def _write_study(self, store: Store, number: int) -> int:
        lab, chance = self._lab, self._random
        machine = self._machines[number % len(self._machines)]
        name, flop, parameters, samples, batch = CASES[(number // len(self._machines)) % len(CASES)]
        facts = facts_of(flop, parameters, samples, batch, f"sha256:{name}")
        study = Study(
            use_case=name + lab.text,
            node=machine.node,
            fingerprint=machine.fingerprint(),
            precision="auto" if number % 3 else "fp32",
            software=current_software(),
            data=f"sha256:{name}{number}",
            seed=number,
            facts=facts,
        )
        study_id = store.studies.get_or_create(study)
        speed = speed_of(machine, flop)
        num_trials = lab.trials // lab.studies + (1 if number < lab.trials % lab.studies else 0)
        num_plans = lab.plans // lab.studies + (1 if number < lab.plans % lab.studies else 0)
        is_open = number == lab.studies - 1
        best: tuple[float, Plan] | None = None
        for count in range(num_trials):
            self.moment += timedelta(seconds=chance.uniform(8, 40))
            result = make_trial(chance, count, machine, speed, batch, lab.text)
            store.studies.add_trial(study_id, result)
            rate = result.throughput_samples_per_s()
            if rate and result.role.is_for_choice and (best is None or rate.median > best[0]):
                best = rate.median, result.plan
            due = (count + 1) * num_plans // num_trials > count * num_plans // num_trials
            if due and best is not None and not is_open:
                stored = make_stored_plan(
                    chance, study_id, study, facts, machine, best, speed, batch, self.moment
                )
                plan_id = store.plans.save(stored, ends_search=True)
                self._plan_ids.setdefault(stored.use_case, []).append((plan_id, stored))
        return study_id

    def _write_trainings(self, store: Store) -> None:
        lab, chance = self._lab, self._random
        machines = {machine.node: machine for machine in self._machines}
        known = [pair for pairs in self._plan_ids.values() for pair in pairs]
        for number in range(lab.trainings if known else 0):
            is_last = number == lab.trainings - 1
            self.moment = lab.now - timedelta(hours=12 * (lab.trainings - number) - 11)
            plan_id, stored = known[number % len(known)]
            names = [stored.node]
            names += [m.node for m in self._machines[: number % 3] if m.node != stored.node]
            epochs = 40 if is_last else chance.choice((5, 10, 20, 60))
            rate = stored.throughput_samples_per_s.median * (0.9 * len(names) + 0.1)
            record = store.trainings.add(
                TrainingRecord(
                    started_at=self.moment,
                    use_case=stored.use_case,
                    data=f"/data/{stored.node}",
                    seed=number,
                    epochs=epochs,
                    hosts=tuple(
                        TrainingHost(
                            host=name,
                            plan_id=plan_id,
                            plan=stored.plan,
                            plan_samples_per_s=stored.throughput_samples_per_s.median,
                        )
                        for name in names
                    ),
                    expected_samples_per_s=rate,
                    machine=lab.machine if is_last else stored.node,
                    run_directory=f"/home/ada/runs/{number}{lab.text}",
                    process=ProcessIdentity.of() if is_last else None,
                )
            )
            num_done = 23 if is_last else epochs
            done = [make_epoch(chance, n, rate, stored) for n in range(1, num_done + 1)]
            states = (TrainingStatus.DONE,) * 6 + (TrainingStatus.FAILED, TrainingStatus.CANCELLED)
            state = TrainingStatus.RUNNING if is_last else states[number % len(states)]
            if state in (TrainingStatus.FAILED, TrainingStatus.CANCELLED):
                done = done[: max(1, len(done) // 3)]
            store.trainings.update(
                record.id,
                epochs_done=done,
                steps=len(done) * 190,
                checkpoint=f"/home/ada/checkpoints/step-{len(done) * 190:08d}{lab.text}",
                weights=None if is_last else f"/home/ada/runs/{number}/weights.safetensors",
                usage_series=make_usage(chance, [machines[name] for name in names], rate),
            )
            if not is_last:
                error = "worker 3 of birch ended by signal 9: out of memory" + lab.text
                store.trainings.end(
                    record.id,
                    state,
                    error=error if state is TrainingStatus.FAILED else None,
                    ended_at=self.moment + timedelta(minutes=len(done) * 2),
                )

    def _write_sweeps(self, store: Store) -> None:
        """Write a sweep that is done, with points that failed, and one that is not."""
        text = self._lab.text
        for done, batches in ((True, (32, 64, 128, 256)), (False, (16, 32, 64))):
            record = replace(
                sample_record(batches), use_case=CASES[0][0] + text, node="atlas" + text
            )
            sweep_id = store.sweeps.begin(record, fresh=True).record.id
            for batch in batches if done else batches[:1]:
                for setting in (0, 1):
                    point = sample_point(batch, setting, epoch_s=400 / batch + 4 / (1 + setting))
                    if batch == 256 and setting == 1:
                        point = failed_point(batch, setting, f"loss=inf at step 3 {text}")
                    store.sweeps.add_points(sweep_id, point)

    def _write_jobs(self, store: Store, study_ids: list[int]) -> None:
        lab, chance = self._lab, self._random
        for number in range(lab.jobs):
            kind = (JobKind.TUNE, JobKind.LAUNCH, JobKind.TUNE, JobKind.PROBE)[number % 4]
            left = lab.jobs - number
            self.moment = lab.now - timedelta(hours=5 * left)
            case = CASES[number % len(CASES)][0] + lab.text
            machine = self._machines[number % len(self._machines)].node
            options = "" if kind is JobKind.PROBE else f" --use-case={case}"
            job = store.jobs.add(
                JobRecord(
                    kind=kind,
                    created_at=self.moment,
                    machine=lab.machine if left <= 3 else machine,
                    user="ada" + lab.text,
                    title=f"ddlplan {kind}{options}",
                    request={"use_case": case},
                    is_detached=True,
                    process=ProcessIdentity.of() if left <= 3 else None,
                )
            )
            if left == 1:
                continue
            store.jobs.start(job.id, ProcessIdentity.of())
            if left <= 3:
                self.moment = lab.now - timedelta(seconds=4)
                if kind is JobKind.TUNE:
                    progress = make_race(lab.text)
                    links = {"study_id": study_ids[-1] if study_ids else None}
                else:
                    progress = TrainingProgress(
                        doing="training",
                        epochs=40,
                        epoch=24,
                        steps=4500,
                        samples=2100,
                        samples_in_epoch=6003,
                        loss=0.4132,
                        throughput_samples_per_s=612.4,
                    )
                    links = {"training_id": lab.trainings or None}
                store.jobs.set_progress(job.id, codec.to_builtins(progress), **links)
                continue
            if study_ids and kind is JobKind.TUNE:
                store.jobs.set_progress(job.id, None, study_id=chance.choice(study_ids))
            if lab.trainings and kind is JobKind.LAUNCH:
                store.jobs.set_progress(job.id, None, training_id=1 + number % lab.trainings)
            states = [JobState.DONE] * 7
            states += [JobState.FAILED, JobState.CANCELLED, JobState.INTERRUPTED]
            state = states[number % len(states)]
            error = "worker 1 failed: KeyError: 'lr'" + lab.text
            store.jobs.end(
                job.id,
                state,
                exit_code={JobState.DONE: 0, JobState.FAILED: 1}.get(state),
                error=error if state is JobState.FAILED else None,
                ended_at=self.moment + timedelta(minutes=chance.uniform(1, 90)),
            )
