"""A database with something of every kind, every text of which may be a hostile one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sample_plan import FOUND, NOON, SOFTWARE
from store_cases import STUDY
from sweep_samples import failed_point, sample_point, sample_record
from training_samples import BEGUN, EPOCH, HOST, JOB
from usage_samples import steps, used
from worth_cases import FACTS, NODE, TRIALS

from launch.reports import EpochDone
from planner.cluster.links import HostAllReduce, HostLink, MeasuredLinks
from planner.records.job_record import JobKind, JobState
from planner.records.training_record import TrainingStatus
from planner.store import Store
from planner.trainings.series import UsageSeries
from planner.trials.result import Outcome

CHECKPOINT = "/data/checkpoints/step-00000400"


def fill(db: Path, text: str = "", *, machine: str = "elsewhere") -> None:
    """Store something of every kind.

    Args:
        db: The database, made here.
        text: Is put into every text that a user or a job can have chosen.
        machine: Started the trainings and jobs.
    """
    case = f"simplebig{text}"
    hardware = replace(NODE, node=f"vm{text}")
    where = {"use_case": case, "node": hardware.node, "fingerprint": hardware.fingerprint()}
    study = replace(STUDY, software=SOFTWARE, facts=FACTS, **where)
    found = replace(FOUND, plan=replace(FOUND.plan, replicas=2), **where)
    with Store.open(str(db)) as store:
        store.machines.save_probe(hardware)
        study_id = store.studies.get_or_create(study)
        for trial in TRIALS:
            store.studies.add_trial(study_id, trial.result)
        failed = replace(
            TRIALS[0].result,
            outcome=Outcome.CRASH,
            measurement=None,
            reason=f"it fell{text}",
            log_tail=f"Traceback{text}",
        )
        store.studies.add_trial(study_id, failed)
        for stored in (found, replace(found, study_id=study_id)):
            store.plans.save(stored)
        hosts = (f"n1{text}", f"n2{text}")
        store.machines.save_links(
            MeasuredLinks(
                hosts=hosts,
                fingerprints=("sha256:a", "sha256:b"),
                measured_at=NOON,
                links=(HostLink(first=hosts[0], second=hosts[1], latency_s=1e-4, bytes_per_s=1e9),),
                sums=(
                    HostAllReduce(
                        message_bytes=4096, time_s=1e-3, cpu_s=(1e-3, 0), interrupts_s=(0, 0)
                    ),
                ),
            )
        )
        usage = UsageSeries(is_first=True, has_syncs=False)
        for second in (1.0, 2.0):
            usage.add(second, used(busy_cores=second, steps=steps()))
        begun = replace(
            BEGUN,
            use_case=case,
            data=f"/data/photos{text}",
            epochs=9,
            hosts=(replace(HOST, host=f"n1{text}"),),
            expected_samples_per_s=20.0,
            machine=machine,
            run_directory=f"/data/runs/1{text}",
        )
        for state in TrainingStatus:
            training = store.trainings.add(begun)
            store.trainings.update(
                training.id,
                epochs_done=[_epoch(1, 0.9), _epoch(2, float("nan"))],
                steps=800,
                checkpoint=CHECKPOINT,
                usage_series={hosts[0]: usage.values()},
            )
            if state is not TrainingStatus.RUNNING:
                store.trainings.end(training.id, state, error=f"it ended{text}")
        record = replace(sample_record([32, 64]), use_case=case, node=hardware.node)
        sweep_id = store.sweeps.begin(record, fresh=False).record.id
        for point in (
            sample_point(32, 0),
            sample_point(32, 1, epoch_s=6),
            failed_point(64, 0, f"it failed{text}"),
        ):
            store.sweeps.add_points(sweep_id, point)
        for kind in JobKind:
            job = store.jobs.add(
                replace(
                    JOB,
                    kind=kind,
                    machine=machine,
                    user=f"ada{text}",
                    title=f"ddlplan {kind} --use-case={case}",
                    request={"use_case": case},
                )
            )
            store.jobs.end(job.id, JobState.FAILED, exit_code=1, error=f"it failed{text}")


def _epoch(number: int, loss: float) -> EpochDone:
    losses = {"train_loss": loss, "validation_loss": loss, "metrics": {"accuracy": loss}}
    return replace(EPOCH, epoch=number, elapsed_s=None, **losses)
