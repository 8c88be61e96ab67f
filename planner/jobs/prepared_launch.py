"""Prepared launch: a training that can begin, its hosts, and the rate that it should have."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace

from launch.job import Job
from launch.reports import Report
from launch.system.process_identity import ProcessIdentity
from planner.cluster.links import MeasuredLinks
from planner.cluster.node_choice import NodeChoice
from planner.jobs.making import NodePlan
from planner.jobs.placement import Placement
from planner.plans.stored_plan import utc_now
from planner.records.training_record import TrainingHost, TrainingRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLaunch(Report):
    """A training that can begin. The listener of a launch receives it before the job starts."""

    job: Job
    placement: Placement

    plans: tuple[NodePlan, ...]
    """Of all hosts, those that take no part included."""

    choice: NodeChoice | None = None
    """Which of several hosts take part, and why; ``None`` on this machine alone."""

    links: MeasuredLinks | None = None
    """The network between the hosts, where it was measured."""

    @property
    def host(self) -> str | None:
        """Where weights and checkpoints will be; ``None`` for this machine."""
        return None if self.placement.starts_here else self.job.nodes[0].host

    @property
    def predicted_samples_per_s(self) -> float:
        """Throughput by the plans' evidence; at most so much where the network is not known."""
        if self.choice is not None:
            return self.choice.chosen.throughput_samples_per_s
        return self.plans[0].stored.throughput_samples_per_s.median

    @property
    def expected_samples_per_s(self) -> float | None:
        """Throughput that the training should have; ``None`` where that is not known."""
        if self.choice is not None:
            return self.predicted_samples_per_s if self.choice.knows_network else None
        # Evidence of a plan that the user has changed says nothing of this job.
        (plan,) = self.plans
        found = replace(plan.stored.plan, devices=plan.plan.devices)
        if found != self.job.nodes[0].plan:
            return None
        if plan.input is not None:  # the measured rate will be that of the last epoch
            return 1 / plan.input.sample_s(self.job.epochs - 1)
        return self.predicted_samples_per_s

    def make_record(self) -> TrainingRecord:
        """Give what is recorded of the training as it begins."""
        job, plans = self.job, {plan.host: plan.stored for plan in self.plans}
        hosts = (
            TrainingHost(
                host=node.host,
                plan_id=plans[node.host].id,
                plan=node.plan,
                plan_samples_per_s=plans[node.host].throughput_samples_per_s.median,
                machine=node.machine,
            )
            for node in job.nodes
        )
        return TrainingRecord(
            started_at=utc_now(),
            use_case=job.workload.use_case,
            data=job.workload.data,
            seed=job.workload.seed,
            epochs=job.epochs,
            hosts=tuple(hosts),
            expected_samples_per_s=self.expected_samples_per_s,
            machine=platform.node(),
            run_directory=job.run_directory,
            process=ProcessIdentity.of(),
            checkpoint=job.checkpoint.resume_from,
        )
