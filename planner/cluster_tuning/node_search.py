"""A node's part of cluster tuning: it searches, or confirms what an equal node found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from queue import SimpleQueue

from launch.plan import Plan
from launch.reports import Report
from launch.workers.fork_server_pool import ForkServerPool
from planner.cluster_tuning.reports import (
    CaseDescribed,
    ConfirmPlans,
    NodeProbed,
    PlansFound,
)
from planner.cluster_tuning.task import NodeTask
from planner.errors import NoPlanError
from planner.trials.reports import TrialEnded, ignore
from planner.trials.result import TrialResult
from planner.trials.runner import TrialRunner
from planner.tuning.choice import find_finalists
from planner.tuning.findings import Findings
from planner.tuning.preparation import prepare
from planner.tuning.study import AddedTrial, EarlierTrials, LaterTrials, Study
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest
from probes.hardware import Hardware
from probes.node import probe

Send = Callable[[Report], None]
LockMachine = Callable[[], AbstractContextManager[None]]
"""Makes the block in which nothing else is timed on this machine."""


class RemoteTrialStore:
    """Keeps trials by telling of them: the database is another machine's.

    What it has of the node's studies is known by their keys.
    """

    def __init__(self, studies: Mapping[str, EarlierTrials], send: Send) -> None:
        self._studies = studies
        self._send = send

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        """Give the trials of the study that were sent; whoever sent them has judged ``fresh``."""
        return self._studies.get(study.key, EarlierTrials(study_id=0))

    def add_trial(self, study_id: int, result: TrialResult) -> AddedTrial:
        """Tell of a finished trial."""
        self._send(TrialEnded(result=result, number=0))  # who stores it gives it its number
        return AddedTrial(id=0, number=0)

    def later_trials(self, study_id: int, after: int) -> LaterTrials:
        """Give none: what other nodes find, directives tell."""
        return LaterTrials(newest=after)


def search_node(
    task: NodeTask,
    request: TuneRequest,
    software: Mapping[str, str],
    directives: SimpleQueue[Report],
    send: Send,
    lock: LockMachine,
    *,
    leads: bool,
) -> None:
    """Search for the best plan of this node, or confirm that of a node with equal hardware.

    Rank 0 is sent reports, and gives directives. The lock is taken for what is timed, and never
    while this node waits for another: that one may wait for a lock that a second job has, and its
    node for this one.

    Raises:
        LaunchError: The use case cannot be tried here.
        PlannerError: No trial succeeded.
    """
    with ForkServerPool() as servers:
        with lock():
            node = find_hardware(task.probe, send)
            runner = TrialRunner(request.workload, node, servers)
            prepared = prepare(
                request,
                node,
                runner,
                needs_all_strategies=False,  # those named may need more cores than this node has
                listener=lambda report, _host=None: send(report),
            )
            send(CaseDescribed(facts=prepared.facts, pixel_bytes=prepared.pixel_bytes))
            trial_store = RemoteTrialStore(task.studies, send)
            findings = Findings(request, prepared.facts, node, software, trial_store)
            tuner = Tuner(findings, runner.start, ignore, checked_s=prepared.checked_s)
            if leads:
                tuner.search()
            else:
                tuner.measure_defaults()
        if leads or not follow(tuner, directives, lock):
            send(PlansFound(plans=_best_plans(findings)))
    if not findings.candidates():
        raise NoPlanError(findings.explain_no_plan())


def follow(tuner: Tuner, directives: SimpleQueue[Report], lock: LockMachine) -> bool:
    """Wait for the plans of an equal node and confirm them; search where it has found none.

    What it waits is no part of its budget.

    Returns:
        Whether there were plans to confirm.
    """
    began = time.monotonic()
    directive = directives.get()
    with lock():
        tuner.extend(time.monotonic() - began)
        if isinstance(directive, ConfirmPlans):
            tuner.confirm(directive.plans)
            return True
        tuner.search()
        return False


def find_hardware(known: Hardware | None, send: Send) -> Hardware:
    """Give this machine as it is today, with the speeds of its last probe.

    They are measured where there are none, or where they are of other hardware.
    """
    speeds = None
    if known is not None and known.fingerprint() == probe(quick=True).fingerprint():
        speeds = known.speeds
    node = probe(known_speeds=speeds)
    send(NodeProbed(hardware=node, is_new=speeds is None))
    return node


def _best_plans(findings: Findings) -> tuple[Plan, ...]:
    """Give the best plan, which will be stored, and after it those that were nearly as fast."""
    candidates = findings.candidates()
    if not candidates:
        return ()
    best = findings.choose(candidates).plan
    others = (c.plan for c in find_finalists(candidates) if c.plan != best)
    return (best, *others)
