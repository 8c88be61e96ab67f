"""Endpoints that read: machines, studies, trials, plans, trainings, networks, and what there is."""

from __future__ import annotations

from functools import partial
from typing import Any

from launch.strategies import strategy_summaries
from launch.use_cases import use_case_summaries
from planner.api import machines, plans, studies, sweeps, together, trainings
from planner.api.plans import FoundPlan
from planner.api.together import HostsTogether
from planner.cluster.links import MeasuredLinks
from planner.exports.formats import JSON, TEXT_FORMATS, export_document, find_format, unsaid
from planner.records.machine_record import MachineRecord
from planner.records.study_record import StudyRecord
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.records.usage_record import HostUsage
from planner.report.comparison import PlanComparison
from planner.report.node_choice import choice_json
from planner.report.nodes import links_json
from planner.report.sweeps.tables import record_json, sweep_json
from planner.report.trials import trial_json
from planner.service.endpoints import shapes
from planner.service.endpoints.endpoint import Endpoint, Found, Parameter, Values, in_state
from planner.service.endpoints.paging import MOST_PER_PAGE, PAGED, page
from planner.service.endpoints.shapes import TEXT, both, by_name, fields, many, of
from planner.service.requests.settings import ServiceSettings

_USE_CASE = Parameter(name="use_case", about="only of this use case")
_NODE = Parameter(name="node", about="only of this machine")
_EXPORTED = shapes.either(
    both(shapes.PLAN, fields(commands=by_name(TEXT))),
    fields(id=shapes.WHOLE, format=TEXT, text=TEXT),
)


def reading_endpoints(settings: ServiceSettings) -> list[Endpoint]:
    """Give all endpoints that only read."""
    db = settings.db

    def study_list(values: Values) -> Found:
        return page(values, partial(studies.find, values["use_case"], values["node"], db=db))

    def trial_list(values: Values) -> Found:
        wanted = values.get("id"), values.get("use_case"), values.get("node")
        return page(values, partial(plans.find_latest_trials, *wanted, db=db), trial_json)

    def plan_list(values: Values) -> Found:
        find = partial(plans.find_latest, values["use_case"], values["node"], db=db)
        return page(values, find, _plan_json, number=lambda one: one.stored.id)

    def plan(values: Values) -> Found:
        found = plans.get(values["id"], db=db)
        return Found(data={**_plan_json(found), "worth": found.worth and found.worth.to_json()})

    def plan_export(values: Values) -> Found:
        found = plans.get(values["id"], db=db)
        chosen = find_format(values["format"] or JSON)
        document = export_document(found.stored, chosen, found.stale_reasons)
        return Found(data=document, warnings=unsaid(found.stored, chosen))

    def plan_comparison(values: Values) -> Found:
        first, second = (plans.get(values[name], db=db) for name in ("first", "second"))
        comparison = PlanComparison(first.stored, second.stored)
        return Found(
            data=comparison.to_json(first_stale=first.is_stale, second_stale=second.is_stale),
            warnings=comparison.warnings,
        )

    def training_list(values: Values) -> Found:
        states = None if values["state"] is None else [TrainingStatus(values["state"])]
        return page(values, partial(trainings.find, values["use_case"], states=states, db=db))

    def sweep_list(values: Values) -> Found:
        return page(values, partial(sweeps.find, values["use_case"], db=db), record_json)

    def network_list(values: Values) -> Found:
        found = machines.find_networks(db=db)
        return Found(data=[_network_json(one) for one in found[:MOST_PER_PAGE]])

    def hosts(values: Values) -> Found:
        named = values["hosts"]
        found = together.predict(
            values["use_case"],
            hosts=named.split(",") if named else None,
            global_batch=values["global_batch"],
            db=db,
        )
        return Found(data=found and _together_json(found))

    return [
        Endpoint(
            path="/machines",
            command="machines list",
            about="All machines with what was measured of them, by name; never in parts.",
            answer=lambda _: Found(data=machines.find(db=db)),
            shape=many(of(MachineRecord)),
        ),
        Endpoint(
            path="/machines/{id}",
            command="machines show",
            about="A machine.",
            answer=lambda values: Found(data=machines.get(values["id"], db=db)),
            shape=of(MachineRecord),
        ),
        Endpoint(
            path="/studies",
            command="studies list",
            about="Studies with how many of their trials ended how, the newest first.",
            answer=study_list,
            shape=many(of(StudyRecord)),
            parameters=(_USE_CASE, _NODE, *PAGED),
        ),
        Endpoint(
            path="/studies/{id}",
            command="studies show",
            about="A study.",
            answer=lambda values: Found(data=studies.get_record(values["id"], db=db)),
            shape=of(StudyRecord),
        ),
        Endpoint(
            path="/studies/{id}/trials",
            command="trials",
            about="Trials of a study, the newest first, failed ones with their reason.",
            answer=trial_list,
            shape=many(shapes.TRIAL),
            parameters=PAGED,
        ),
        Endpoint(
            path="/trials",
            command="trials",
            about="Trials of all studies, the newest first.",
            answer=trial_list,
            shape=many(shapes.TRIAL),
            parameters=(_USE_CASE, _NODE, *PAGED),
        ),
        Endpoint(
            path="/plans",
            command="plans list",
            about="Stored plans, the newest first.",
            answer=plan_list,
            shape=many(shapes.PLAN),
            parameters=(_USE_CASE, _NODE, *PAGED),
        ),
        Endpoint(
            path="/plans/compare",
            command="plans compare",
            about="Two plans side by side.",
            answer=plan_comparison,
            shape=shapes.COMPARISON,
            parameters=(
                Parameter(name="first", about="a plan", is_number=True, is_needed=True),
                Parameter(name="second", about="another", is_number=True, is_needed=True),
            ),
        ),
        Endpoint(
            path="/plans/{id}",
            command="plans show",
            about="A plan with what it is worth.",
            answer=plan,
            shape=both(shapes.PLAN, fields(worth=shapes.maybe(shapes.WORTH))),
        ),
        Endpoint(
            path="/plans/{id}/export",
            command="plans export",
            about="A plan as plans import takes it, or as a text that runs without ddlplan.",
            answer=plan_export,
            shape=_EXPORTED,
            parameters=(
                Parameter(
                    name="format",
                    about=f"{JSON} by default",
                    choices=(JSON, *TEXT_FORMATS),
                ),
            ),
        ),
        Endpoint(
            path="/trainings",
            command="runs list",
            about="Trainings, the newest first.",
            answer=training_list,
            shape=many(of(TrainingRecord)),
            parameters=(_USE_CASE, in_state(TrainingStatus), *PAGED),
        ),
        Endpoint(
            path="/trainings/{id}",
            command="runs show",
            about="A training with its epochs.",
            answer=lambda values: Found(data=trainings.get(values["id"], db=db)),
            shape=of(TrainingRecord),
        ),
        Endpoint(
            path="/trainings/{id}/usage",
            command="runs usage",
            about="What each host of a training used over time.",
            answer=lambda values: Found(data=trainings.get_usage(values["id"], db=db)),
            shape=by_name(of(HostUsage)),
        ),
        Endpoint(
            path="/sweeps",
            command="sweep list",
            about="Sweeps without their points, the newest first.",
            answer=sweep_list,
            shape=many(shapes.SWEEP),
            parameters=(_USE_CASE, *PAGED),
        ),
        Endpoint(
            path="/sweeps/{id}",
            command="sweep show",
            about="A sweep with its points and what they show.",
            answer=lambda values: Found(data=sweep_json(sweeps.get(values["id"], db=db))),
            shape=both(
                shapes.SWEEP,
                fields(points=many(shapes.SWEEP_POINT), findings=many(TEXT)),
            ),
        ),
        Endpoint(
            path="/networks",
            command="networks list",
            about=f"The latest {MOST_PER_PAGE} measurements of networks, never in parts.",
            answer=network_list,
            shape=many(shapes.NETWORK),
        ),
        Endpoint(
            path="/hosts",
            command="hosts",
            about="How fast each set of the hosts of a measured network would train together.",
            answer=hosts,
            shape=shapes.maybe(shapes.TOGETHER),
            parameters=(
                _USE_CASE,
                Parameter(name="hosts", about="of a network of just these, with commas"),
                Parameter(name="global_batch", about="samples of a step", is_number=True),
            ),
        ),
        Endpoint(
            path="/use-cases",
            command="use-cases",
            about="Use cases that this server may tune and train.",
            answer=lambda _: Found(data=_use_cases(settings)),
            shape=many(shapes.SUMMARY),
        ),
        Endpoint(
            path="/strategies",
            command="strategies",
            about="Parallel strategies.",
            answer=lambda _: Found(data=_summaries(strategy_summaries())),
            shape=many(shapes.SUMMARY),
        ),
    ]


def _plan_json(found: FoundPlan) -> dict[str, Any]:
    return found.stored.to_json(stale=found.is_stale)


def _network_json(measured: MeasuredLinks) -> dict[str, Any]:
    return {**(links_json(measured) or {}), "measured_at": measured.measured_at}


def _together_json(found: HostsTogether) -> dict[str, Any]:
    return {
        "network": _network_json(found.network),
        "use_case": found.use_case,
        "plans": [{"host": one.host, "plan_id": one.stored.id} for one in found.plans],
        "choice": found.choice and choice_json(found.choice),
        "reason": found.reason,
    }


def _use_cases(settings: ServiceSettings) -> list[dict[str, str]]:
    own = dict.fromkeys(settings.use_cases, "yours, named by --use-case")
    return _summaries({**use_case_summaries(), **own})


def _summaries(found: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "summary": summary} for name, summary in found.items()]
