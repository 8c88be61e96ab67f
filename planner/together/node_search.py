"""What does one node do when all tune together? It searches, or confirms what its equal found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import SimpleQueue

from launch.plan import Plan
from launch.workers.fork_servers import ForkServers
from launch.workers.reports import Report, Warned
from planner.choice import contenders
from planner.errors import NoPlanError
from planner.findings import Findings
from planner.preparation import prepare
from planner.result import Role, TrialResult
from planner.study import EarlierTrials, Study
from planner.together.reports import (
    CaseLearnt,
    Confirm,
    NodeProbed,
    Noted,
    PlansFound,
    TrialEnded,
)
from planner.together.task import NodeTask
from planner.trial import TrialProgress, TrialRunner
from planner.tune import Tuner
from planner.tune_request import TuneRequest
from probes.hardware import Hardware
from probes.node import probe

Tell = Callable[[Report], None]


class TellingKeeper:
    """Keeps trials by telling of them: the database is another machine's.

    Args:
        studies: What is known of the node's studies, by their keys.
        tell: Takes what the starting process should hear.
    """

    def __init__(self, studies: Mapping[str, EarlierTrials], tell: Tell) -> None:
        self._studies = studies
        self._tell = tell

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        """Give the study that goes on, or one that begins afresh, with the trials it has."""
        begun = EarlierTrials(study_id=0)
        return begun if fresh else self._studies.get(study.key, begun)

    def add_trial(self, study_id: int, result: TrialResult) -> int:
        """Tell of a finished trial."""
        self._tell(TrialEnded(result=result.to_json()))
        return 0


class _Silent:
    """Hears how a search gets on, and tells nobody: what counts are its trials."""

    def trial_started(self, plan: Plan, role: Role, left_s: float) -> None:
        pass

    def step(self, progress: TrialProgress) -> None:
        pass

    def trial_ended(self, result: TrialResult, *, is_best: bool) -> None:
        pass


def search_here(
    task: NodeTask,
    request: TuneRequest,
    software: Mapping[str, str],
    orders: SimpleQueue[Report],
    tell: Tell,
    *,
    leads: bool,
) -> None:
    """Search for the best plan of this node, or confirm that of a node with equal hardware.

    Args:
        task: What is known of this node.
        request: What the user asks.
        software: Versions that the measurements depend on.
        orders: What rank 0 tells this node.
        tell: Takes what rank 0 should hear.
        leads: Whether this node searches.

    Raises:
        LaunchError: The use case cannot be tried here.
        PlannerError: No trial succeeded.
    """
    node = find_hardware(task.probe, tell)
    with ForkServers() as servers:
        runner = TrialRunner(request.use_case, request.data, node, servers, seed=request.seed)
        prepared = prepare(
            request,
            node,
            runner,
            on_progress=tell,
            warn=lambda message: tell(Warned(message=message)),
            note=lambda message: tell(Noted(message=message)),
        )
        tell(CaseLearnt(facts=prepared.facts.to_json(), pixel_bytes=prepared.pixel_bytes))
        keeper = TellingKeeper(task.studies, tell)
        findings = Findings(request, prepared.facts, node, software, keeper)
        tuner = Tuner(findings, runner.run, _Silent(), checked_s=prepared.checked_s)
        if not leads:
            tuner.measure_baseline()
            match orders.get():
                case Confirm() as confirm:
                    tuner.confirm(confirm.values())
                case _:
                    leads = True
        if leads:
            tuner.search()
            tell(PlansFound(plans=[plan.to_json() for plan in _best_plans(findings)]))
    if not findings.candidates():
        raise NoPlanError(findings.why_none())


def find_hardware(known: Hardware | None, tell: Tell) -> Hardware:
    """Give this machine's last probe; measure it where there is none, or of other hardware."""
    found = probe(quick=True)
    is_known = known is not None and known.fingerprint() == found.fingerprint()
    node = known if known is not None and is_known else probe()
    tell(NodeProbed(hardware=node.to_json(), is_new=not is_known))
    return node


def _best_plans(findings: Findings) -> list[Plan]:
    """Give the plan that will be stored, and after it those that came near."""
    candidates = findings.candidates()
    if not candidates:
        return []
    best = findings.choose(candidates).plan
    others = [c.plan for c in contenders(candidates) if c.plan != best]
    return [best, *others]
