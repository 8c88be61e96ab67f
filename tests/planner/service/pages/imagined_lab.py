"""An imagined lab: a database of any size that looks like one of a year's work.

The same numbers come of the same seed. Everything is written by the store's own methods.
"""

from __future__ import annotations

import math
import platform
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from sweep_samples import failed_point, sample_point, sample_record

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.reports import EpochDone
from launch.system.process_identity import ProcessIdentity
from planner.cluster.links import HostAllReduce, HostLink, MeasuredLinks
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.plans.software import current_software
from planner.plans.stored_plan import Baseline, ComparedPlan, StoredPlan
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.records.progress import ContenderStanding, SearchProgress, TrainingProgress
from planner.records.training_record import TrainingHost, TrainingRecord, TrainingStatus
from planner.records.usage_record import GpuUsage, HostUsage, UsageCurve
from planner.store import Store
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import Study
from probes import codec
from probes.hardware import CoreLimit, Cpu, Gpu, Hardware, Memory, Speeds
from probes.timing import Interval, Measurement

NOW = datetime(2026, 11, 24, 20, 46, 10, tzinfo=UTC)

_MACHINES = (
    ("atlas", "AMD EPYC 9554", 32, 256, 62.0, 118.0, 0),
    ("birch", "Intel Xeon Gold 6338", 16, 128, 48.0, 0.0, 0),
    ("cedar", "AMD Ryzen 9 7950X", 16, 64, 88.0, 160.0, 1),
    ("delta-01", "AMD EPYC 7763", 8, 64, 41.0, 0.0, 2),
    ("delta-02", "AMD EPYC 7763", 8, 64, 41.0, 0.0, 2),
    ("elm", "Intel Core i7-8700", 6, 32, 39.0, 0.0, 0),
)
_CASES = (
    ("simplebig", 4.1e9, 57_000_000, 6003, 32),
    ("complexsmall", 92e9, 134_000_000, 6003, 16),
    ("cases/keywords.py:Keywords", 0.3e9, 2_400_000, 84_000, 64),
    ("vision.segment:Lakes", 31e9, 31_000_000, 12_400, 8),
    ("cases/translate.py:SmallTransformer", 9e9, 44_000_000, 220_000, 32),
)
_REASONS = (
    (Outcome.OUT_OF_MEMORY, "exit code -9 and the cgroup counted an oom_kill"),
    (Outcome.OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate 2.50 GiB"),
    (Outcome.TIME_LIMIT, "no step ended within 60 s"),
    (
        Outcome.CRASH,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x9216 and 4096x4096)",
    ),
)


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
        self._machines = [_machine(number, lab.text) for number in range(lab.machines)]
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
            self._write_network(store, size)
        self._write_trainings(store)
        self._write_sweeps(store)
        self._write_jobs(store, study_ids)
        self.moment = lab.now

    def _write_study(self, store: Store, number: int) -> int:
        lab, chance = self._lab, self._random
        machine = self._machines[number % len(self._machines)]
        name, flop, parameters, samples, batch = _CASES[
            (number // len(self._machines)) % len(_CASES)
        ]
        facts = _facts(flop, parameters, samples, batch, f"sha256:{name}")
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
        speed = _speed(machine, flop)
        num_trials = lab.trials // lab.studies + (1 if number < lab.trials % lab.studies else 0)
        num_plans = lab.plans // lab.studies + (1 if number < lab.plans % lab.studies else 0)
        is_open = number == lab.studies - 1
        best: tuple[float, Plan] | None = None
        for count in range(num_trials):
            self.moment += timedelta(seconds=chance.uniform(8, 40))
            result = self._trial(count, machine, speed, batch)
            store.studies.add_trial(study_id, result)
            rate = result.throughput_samples_per_s()
            if (
                rate is not None
                and result.role.is_for_choice
                and (best is None or rate.median > best[0])
            ):
                best = rate.median, result.plan
            due = (count + 1) * num_plans // num_trials > count * num_plans // num_trials
            if due and best is not None and not is_open:
                stored = self._stored(study_id, study, facts, machine, best, speed, batch)
                plan_id = store.plans.save(stored, ends_search=True)
                self._plan_ids.setdefault(stored.use_case, []).append((plan_id, stored))
        return study_id

    def _trial(self, count: int, machine: Hardware, speed: float, batch: int) -> TrialResult:
        chance = self._random
        cores = machine.cpu.usable_cores
        role = Role.SEARCH
        if count == 0:
            plan, role = Plan(strategy="sequential", node_batch=batch), Role.BASELINE
        elif count == 1:
            plan = Plan(strategy="threads", node_batch=batch, threads_per_process=cores)
            role = Role.DEFAULTS
        else:
            plan = _draw(chance, cores, batch, len(machine.gpus))
            if count % 17 == 16:
                role = Role.FINAL
        if role is Role.SEARCH and chance.random() < 0.09:
            outcome, reason = chance.choice(_REASONS)
            return TrialResult(
                plan=plan,
                role=role,
                outcome=outcome,
                reason=reason + self._lab.text,
                log_tail=f"Traceback (most recent call last):\n  {reason}{self._lab.text}",
                elapsed_s=chance.uniform(3, 60),
            )
        rate = speed * _factor(plan, cores)
        step_s = plan.node_batch / rate
        wobble = chance.gauss(0, 0.02)
        measurement = Measurement(
            warmup_s=(2.2 * step_s,),
            samples_s=tuple(step_s * math.exp(wobble + chance.gauss(0, 0.03)) for _ in range(9)),
            input_share=round(chance.uniform(0.0, 0.06), 4),
        )
        is_slow = role is Role.SEARCH and chance.random() < 0.25
        return TrialResult(
            plan=plan,
            role=role,
            outcome=Outcome.SLOWER if is_slow else Outcome.OK,
            reason="slower than the leader with 97.5 %" if is_slow else None,
            measurement=measurement,
            peak_memory_bytes=int(6e8 + 3e6 * plan.node_batch * plan.replicas),
            elapsed_s=10 * step_s + 4,
            parameters={f"{plan.strategy}.batch": plan.node_batch},
        )

    def _stored(
        self,
        study_id: int,
        study: Study,
        facts: CaseFacts,
        machine: Hardware,
        best: tuple[float, Plan],
        speed: float,
        batch: int,
    ) -> StoredPlan:
        rate, plan = best
        cores = machine.cpu.usable_cores
        default = Plan(strategy="threads", node_batch=batch, threads_per_process=cores)
        one = Plan(strategy="sequential", node_batch=batch)
        usual = replace(plan, node_batch=max(batch, plan.replicas * plan.micro_batches))
        runner_up = replace(plan, memory_format="contiguous", allocator="default")
        default_rate = speed * _factor(default, cores)
        software = current_software()
        if self._random.random() < 0.15:
            software = {**software, "torch": "2.9.1"}
        return StoredPlan(
            use_case=study.use_case,
            use_case_digest=facts.digest,
            node=study.node,
            fingerprint=study.fingerprint,
            plan=plan,
            throughput_samples_per_s=_around(rate, 0.012),
            speedup=_around(rate / default_rate, 0.02),
            baseline=Baseline(
                strategy=default.strategy,
                node_batch=batch,
                throughput_samples_per_s=default_rate,
            ),
            peak_memory_bytes=int(6e8 + 3e6 * plan.node_batch),
            created_at=self.moment,
            software=software,
            step_time=steps_from_points(
                [
                    StepPoint(node_batch=size, step_s=size / rate + 0.02)
                    for size in sorted({max(1, plan.node_batch // 2), plan.node_batch})
                ]
            ),
            gradient_bytes=4 * facts.parameter_count,
            comparisons=tuple(
                ComparedPlan(
                    name=name,
                    plan=other,
                    throughput_samples_per_s=speed * _factor(other, cores),
                    speedup=_around(rate / (speed * _factor(other, cores)), 0.03),
                )
                for name, other in (
                    ("defaults", default),
                    ("one_core", one),
                    ("own_batch", usual),
                    ("runner_up", runner_up),
                )
            ),
            begins_early=plan.devices == ("cpu",),
            study_id=study_id,
        )

    def _write_network(self, store: Store, size: int) -> None:
        machines = self._machines[:size]
        if len(machines) < size:
            return
        chance = self._random
        hosts = tuple(machine.node for machine in machines)
        links = tuple(
            HostLink(
                first=hosts[one],
                second=hosts[other],
                latency_s=chance.uniform(40e-6, 200e-6),
                bytes_per_s=chance.choice((1.16e8, 1.17e8, 1.1e9)),
            )
            for one in range(size)
            for other in range(one + 1, size)
        )
        sums = tuple(
            HostAllReduce(
                message_bytes=4**power * 4096,
                time_s=0.0004 + 4**power * 4096 * 2 / 1.16e8,
                cpu_s=tuple(0.0002 * 1.6**power for _ in hosts),
                interrupts_s=tuple(0.00005 * 1.5**power for _ in hosts),
                beside_s=0.0006 + 4**power * 4096 * 2.2 / 1.16e8,
            )
            for power in range(7)
        )
        self.moment += timedelta(minutes=20)
        store.machines.save_links(
            MeasuredLinks(
                hosts=hosts,
                fingerprints=tuple(machine.fingerprint() for machine in machines),
                measured_at=self.moment,
                links=links,
                sums=sums,
            )
        )

    def _write_trainings(self, store: Store) -> None:
        lab, chance = self._lab, self._random
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
            assert record.id is not None
            done = [
                _epoch(chance, count, rate, stored)
                for count in range(1, (23 if is_last else epochs) + 1)
            ]
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
                usage_series=self._usage(names, stored, epochs=len(done), rate=rate),
            )
            if not is_last:
                error = "worker 3 of birch ended by signal 9: out of memory" + lab.text
                store.trainings.end(
                    record.id,
                    state,
                    error=error if state is TrainingStatus.FAILED else None,
                    ended_at=self.moment + timedelta(minutes=len(done) * 2),
                )

    def _usage(
        self, hosts: list[str], stored: StoredPlan, *, epochs: int, rate: float
    ) -> dict[str, HostUsage]:
        """Give the use of each host, as a training stores it."""
        chance = self._random
        times = tuple(float(second) for second in range(2, 2 + 4 * 150, 4))
        machines = {machine.node: machine for machine in self._machines}

        def curve(level: float, spread: float = 0.05, *, dips: bool = True) -> UsageCurve:
            values = []
            for number in range(len(times)):
                dip = 0.3 if dips and number % 37 > 33 else 1.0
                values.append(max(0.0, level * dip * math.exp(chance.gauss(0, spread))))
            mean = tuple(float(f"{value:.4g}") for value in values)
            return UsageCurve(mean=mean, maximum=tuple(1.1 * value for value in mean))

        found = {}
        for number, host in enumerate(hosts):
            machine, is_first = machines[host], number == 0
            cores = machine.cpu.usable_cores
            losses = tuple(1.1 * math.exp(-n / 60) + 0.13 for n in range(len(times)))
            found[host] = HostUsage(
                time_s=times,
                busy_cores=curve(0.93 * cores),
                machine_busy_cores=curve(0.96 * cores),
                io_wait_cores=curve(0.02, 0.9),
                processes=curve(5, 0, dips=False),
                threads=curve(5 * cores, 0, dips=False),
                memory_bytes=curve(4.2 * 2**30, 0.01, dips=False),
                received_bytes_per_s=curve(8.8e7, 0.1),
                sent_bytes_per_s=curve(8.6e7, 0.1),
                input_wait=curve(0.03, 0.5),
                sync_wait=curve(0.11, 0.2) if len(hosts) > 1 else None,
                loss=UsageCurve(mean=losses, maximum=losses) if is_first else None,
                samples_per_s=curve(rate) if is_first else None,
                gpus=tuple(
                    GpuUsage(
                        uuid=gpu.uuid or "",
                        utilisation=curve(0.9),
                        memory_bytes=curve(31 * 2**30, 0.0, dips=False),
                        power_w=curve(240, 0.06),
                    )
                    for gpu in machine.gpus
                ),
            )
        return found

    def _write_sweeps(self, store: Store) -> None:
        """Write a sweep that is done, with points that failed, and one that is not."""
        text = self._lab.text
        for done, batches in ((True, (32, 64, 128, 256)), (False, (16, 32, 64))):
            record = replace(
                sample_record(batches), use_case=_CASES[0][0] + text, node="atlas" + text
            )
            sweep_id = store.sweeps.begin(record, fresh=True).record.id
            assert sweep_id is not None
            for batch in batches if done else batches[:1]:
                for setting in (0, 1):
                    point = sample_point(batch, setting, epoch_s=400 / batch + 4 / (1 + setting))
                    if batch == 256 and setting == 1:
                        point = failed_point(batch, setting, f"loss=inf at step 3 {text}")
                    store.sweeps.add_point(sweep_id, point)

    def _write_jobs(self, store: Store, study_ids: list[int]) -> None:
        lab, chance = self._lab, self._random
        for number in range(lab.jobs):
            kind = (JobKind.TUNE, JobKind.LAUNCH, JobKind.TUNE, JobKind.PROBE)[number % 4]
            left = lab.jobs - number
            self.moment = lab.now - timedelta(hours=5 * left)
            case = _CASES[number % len(_CASES)][0] + lab.text
            job = store.jobs.add(
                JobRecord(
                    kind=kind,
                    created_at=self.moment,
                    machine=lab.machine
                    if left <= 3
                    else self._machines[number % len(self._machines)].node,
                    user="ada" + lab.text,
                    title=f"ddlplan {kind} --use-case={case}"
                    if kind is not JobKind.PROBE
                    else "ddlplan probe",
                    request={"use_case": case},
                    is_detached=True,
                    process=ProcessIdentity.of() if left <= 3 else None,
                )
            )
            assert job.id is not None
            if left == 1:
                continue
            store.jobs.start(job.id, ProcessIdentity.of())
            if left <= 3:
                self.moment = lab.now - timedelta(seconds=4)
                progress: SearchProgress | TrainingProgress
                if kind is JobKind.TUNE:
                    progress = self._race()
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
            states = (JobState.DONE,) * 7 + (
                JobState.FAILED,
                JobState.CANCELLED,
                JobState.INTERRUPTED,
            )
            state = states[number % len(states)]
            store.jobs.end(
                job.id,
                state,
                exit_code={JobState.DONE: 0, JobState.FAILED: 1}.get(state),
                error="worker 1 failed: KeyError: 'lr'" + lab.text
                if state is JobState.FAILED
                else None,
                ended_at=self.moment + timedelta(minutes=chance.uniform(1, 90)),
            )

    def _race(self) -> SearchProgress:
        first = Plan(
            strategy="processes",
            node_batch=256,
            processes=4,
            threads_per_process=2,
            replicas=4,
            memory_format="channels_last",
            allocator="retain",
        )
        plans = [
            (first, 418.2, None, True, None),
            (replace(first, allocator="default"), 402.0, (0.961, 0.944, 0.979), False, None),
            (replace(first, node_batch=128), 409.7, (0.98, 0.951, 1.01), False, None),
            (
                Plan(strategy="threads", node_batch=256, threads_per_process=8),
                311.5,
                (0.745, 0.73, 0.762),
                False,
                "slower than the leader with 97.5 %" + self._lab.text,
            ),
        ]
        return SearchProgress(
            doing="racing 3 plans, round 14",
            budget_s=300.0,
            left_s=112.0,
            trials=31,
            best_samples_per_s=418.2,
            trial=first,
            standings=tuple(
                ContenderStanding(
                    plan=plan,
                    throughput_samples_per_s=rate,
                    speedup=None
                    if ratio is None
                    else Interval(median=ratio[0], low=ratio[1], high=ratio[2], count=14),
                    is_leading=leads,
                    reason=reason,
                )
                for plan, rate, ratio, leads, reason in plans
            ),
        )


def _machine(number: int, text: str) -> Hardware:
    name, model, cores, memory_gib, gflops, bf16, gpus = _MACHINES[number % len(_MACHINES)]
    if number >= len(_MACHINES):
        name = f"{name}-{number // len(_MACHINES) + 1}"
    return Hardware(
        node=name + text,
        cpu=Cpu(
            architecture="x86_64",
            model=model + text,
            logical_cores=2 * cores,
            physical_cores=cores,
            sockets=1,
            numa_nodes=1,
            usable_cores=cores,
            core_ids=tuple(range(cores)),
            limits=(CoreLimit(source="affinity", cores=cores),),
            l1d_bytes=32 * 1024,
            l2_bytes=2**20,
            l3_bytes=2**25,
            instruction_sets=("avx2", "avx512", "avx512_bf16") if bf16 else ("avx2",),
        ),
        memory=Memory(
            total_bytes=memory_gib * 2**30, usable_bytes=memory_gib * 2**30, shm_bytes=2**33
        ),
        gpus=tuple(
            Gpu(
                nvml_index=index,
                cuda_index=index,
                name="NVIDIA RTX 6000 Ada" + text,
                uuid=f"GPU-{number}-{index}",
                memory_bytes=48 * 2**30,
            )
            for index in range(gpus)
        ),
        gpu_reason=None if gpus else "no NVIDIA driver",
        speeds=Speeds(
            fp32_one_core_flop_per_s=gflops * 1e9,
            fp32_all_cores_flop_per_s=0.83 * cores * gflops * 1e9,
            bf16_one_core_flop_per_s=bf16 * 1e9 or None,
            bf16_all_cores_flop_per_s=0.8 * cores * bf16 * 1e9 or None,
            copy_one_core_bytes_per_s=12e9 + 1e8 * number,
            copy_all_cores_bytes_per_s=min(cores * 9e9, 140e9) + 3e9 * number,
            jpeg_one_core_images_per_s=380.0 + 13 * number,
            host_to_device_bytes_per_s=24e9 if gpus else None,
        ),
    )


def _facts(flop: float, parameters: int, samples: int, batch: int, digest: str) -> CaseFacts:
    return CaseFacts(
        default_batch=batch,
        train_samples=samples,
        validation_samples=samples // 8,
        parameter_count=parameters,
        parameter_bytes=4 * parameters,
        flop_per_sample=flop,
        max_stages=6,
        digest=digest,
        has_fused_optimizer=True,
    )


def _speed(machine: Hardware, flop: float) -> float:
    assert machine.speeds is not None
    assert machine.speeds.fp32_one_core_flop_per_s is not None
    return 0.7 * machine.speeds.fp32_one_core_flop_per_s / flop


def _draw(chance: random.Random, cores: int, batch: int, gpus: int) -> Plan:
    """Draw a plan that can be."""
    while True:
        strategy = chance.choice(("threads", "processes", "processes", "pipeline"))
        count = chance.choice([k for k in (1, 2, 4, 8, 16, 32) if k <= cores])
        processes = max(2, min(count, cores)) if strategy != "threads" else 1
        threads = max(1, cores // processes)
        try:
            return Plan(
                strategy=strategy,
                node_batch=batch * chance.choice((1, 2, 4, 8)),
                processes=processes,
                threads_per_process=threads if strategy != "threads" else cores,
                replicas=processes if strategy == "processes" else 1,
                micro_batches=chance.choice((2, 4, 8)) if strategy == "pipeline" else 1,
                memory_format=chance.choice(("contiguous", "channels_last")),
                allocator=chance.choice(("default", "retain")),
                fused_optimizer=chance.random() < 0.5,
                input=chance.choice(("files", "cache")),
            )
        except InvalidPlanError:
            continue


def _factor(plan: Plan, cores: int) -> float:
    """Give the speed of a plan / that of one core with everything as it is by default."""
    factor = min(plan.threads, cores) ** 0.86
    factor *= {"processes": 1.12, "pipeline": 0.7}.get(plan.strategy, 1.0)
    factor *= 1.09 if plan.memory_format == "channels_last" else 1.0
    factor *= 1.06 if plan.allocator == "retain" else 1.0
    factor *= 1.03 if plan.fused_optimizer else 1.0
    factor *= 1.05 if plan.input == "cache" else 1.0
    return factor * plan.node_batch / (plan.node_batch + 6 * plan.replicas)


def _around(value: float, side: float) -> Interval:
    return Interval(median=value, low=value * (1 - side), high=value * (1 + side), count=24)


def _epoch(chance: random.Random, count: int, rate: float, stored: StoredPlan) -> EpochDone:
    loss = 1.1 * math.exp(-count / 14) + 0.12 + chance.gauss(0, 0.008)
    samples = 6003
    measured = rate * math.exp(chance.gauss(-0.03, 0.03))
    return EpochDone(
        epoch=count,
        train_loss=loss,
        validation_loss=loss + 0.05 + 0.002 * count + abs(chance.gauss(0, 0.012)),
        metrics={"accuracy": 1 - 0.6 * math.exp(-count / 11)},
        samples=samples,
        train_time_s=samples / measured,
        validation_time_s=0.1 * samples / measured,
        throughput_samples_per_s=measured,
        learning_rates=(0.01,),
        global_batch=stored.plan.node_batch,
        elapsed_s=count * 1.1 * samples / measured,
    )


def iter_cases() -> Iterator[str]:
    """Give the names of the use cases."""
    return (case[0] for case in _CASES)
