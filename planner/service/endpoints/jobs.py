"""Endpoints of jobs: what runs and ran, what it wrote, and what starts and ends it."""

from __future__ import annotations

import platform
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from launch.system.log_part import MOST_LOG_BYTES, LogPart
from launch.use_cases import use_case_names
from planner.api import jobs, plans
from planner.errors import ConflictError, NoDatabaseError, UsageError
from planner.jobs.hosts import Hosts
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.service.endpoints import shapes
from planner.service.endpoints.endpoint import Endpoint, Found, Parameter, Values, in_state
from planner.service.endpoints.job_options import (
    DoctorOptions,
    JobOptions,
    LaunchOptions,
    ProbeOptions,
    SweepOptions,
    TuneOptions,
)
from planner.service.endpoints.paging import PAGED, page
from planner.service.endpoints.repeats import start_once
from planner.service.endpoints.shapes import many, of
from planner.service.requests.documents import RequestError
from planner.service.requests.settings import ServiceSettings
from planner.supervision.options import OPTIONS
from planner.sweeps.sweep_request import BEST
from probes import codec
from probes.errors import InvalidDocumentError

_CHECKPOINTS = Path("checkpoints")
"""Folder of the checkpoints of trainings that were started here, in the working folder."""

_MOST_QUEUED = 32
"""Jobs of this machine that may wait for their turn: each has a process that waits."""

_OPTIONS = {
    JobKind.TUNE: (TuneOptions, "Search for the fastest way to train a use case, as a job."),
    JobKind.LAUNCH: (LaunchOptions, "Train with stored plans, as a job."),
    JobKind.SWEEP: (SweepOptions, "Train with several batches on several devices, as a job."),
    JobKind.PROBE: (ProbeOptions, "Measure what machines can do, as a job."),
    JobKind.DOCTOR: (DoctorOptions, "Check that machines can do a job, as a job."),
}
_OWN_WORDS = ("use_case", "on_hosts", "checkpoint")
"""Options that mean something else here than on the command line."""


def job_endpoints(settings: ServiceSettings) -> list[Endpoint]:
    """Give all endpoints of jobs."""
    db = settings.db
    # Or two requests could resume one training, or both be the last that the queue takes.
    one_at_a_time = threading.Lock()

    def job_list(values: Values) -> Found:
        states = None if values["state"] is None else [JobState(values["state"])]
        return page(values, partial(jobs.find, states=states, db=db))

    def job_log(values: Values) -> Found:
        part = jobs.read_log(
            values["id"],
            offset=values["offset"] or 0,
            most_bytes=values["limit"] or MOST_LOG_BYTES,
            db=db,
        )
        return Found(data=part)

    def resume(values: Values) -> Found:
        with one_at_a_time:
            _check_queue(db)
            started = jobs.resume(
                values["id"],
                use_cases=_use_cases(settings),
                where=settings.access,
                hosts=settings.host_options,
                db=db,
            )
        return _queued(started)

    def starting(kind: JobKind) -> Endpoint:
        options, about = _OPTIONS[kind]

        def start(values: Values) -> Found:
            _check_names(kind, options, values["body"])
            given: JobOptions
            try:
                given = codec.convert(
                    values["body"], options, source=str(kind), allow_unknown_keys=False
                )
            except InvalidDocumentError as error:
                raise RequestError(400, str(error), kind="usage") from error
            request = _make_request(kind, given, settings)
            for plan_id in _named_plans(request):
                plans.get(plan_id, db=db)  # or there is none

            def submit() -> int:
                with one_at_a_time:
                    _check_queue(db)
                    return jobs.submit(kind, request, db=db).id or 0

            said = {"kind": kind, **values["body"]}
            number = start_once(values["key"], said, submit, db=db)
            return _queued(jobs.get(number, db=db))

        return Endpoint(
            path=f"/jobs/{kind}",
            command="jobs show",
            about=about,
            answer=start,
            shape=of(JobRecord),
            body=of(options),
            has_key=True,
            status=202,
        )

    return [
        Endpoint(
            path="/jobs",
            command="jobs list",
            about="Jobs, the newest first.",
            answer=job_list,
            shape=many(of(JobRecord)),
            parameters=(in_state(JobState), *PAGED),
        ),
        Endpoint(
            path="/jobs/{id}",
            command="jobs show",
            about="A job.",
            answer=lambda values: Found(data=jobs.get(values["id"], db=db)),
            shape=of(JobRecord),
        ),
        Endpoint(
            path="/jobs/{id}/log",
            command="jobs logs",
            about="A part of what a job has written; the next one begins at next_offset.",
            answer=job_log,
            shape=of(LogPart),
            parameters=(
                Parameter(
                    name="offset",
                    about="first byte; below 0 it counts from the end",
                    is_number=True,
                    least=None,
                ),
                Parameter(
                    name="limit",
                    about=f"at most so many bytes, {MOST_LOG_BYTES} by default and at most",
                    is_number=True,
                ),
            ),
        ),
        *map(starting, _OPTIONS),
        Endpoint(
            path="/jobs/{id}/cancel",
            command="jobs cancel",
            about="Ask for the end of a job. A training writes a checkpoint before it ends.",
            answer=lambda values: Found(data=jobs.cancel(values["id"], db=db)),
            shape=of(JobRecord),
            body=shapes.NOTHING,
            status=202,
        ),
        Endpoint(
            path="/trainings/{id}/resume",
            command="jobs show",
            about="Go on with a training from its newest checkpoint, as a job.",
            answer=resume,
            shape=of(JobRecord),
            body=shapes.NOTHING,
            status=202,
        ),
    ]


def _make_request(kind: JobKind, given: JobOptions, settings: ServiceSettings) -> dict[str, Any]:
    """Give the options of a command for those of a request.

    Raises:
        UsageError: The server was not started with what they need.
        InvalidPlanError: Hosts cannot search for what is asked.
        HostFileError: The server's host file cannot be read any more.
    """
    request = {name: value for name, value in settings.access.items() if name in OPTIONS[kind]}
    for field in fields(given):
        value = getattr(given, field.name)
        if field.name not in _OWN_WORDS and value is not None and value is not False:
            request[field.name] = value
    if (named := getattr(given, "use_case", None)) is not None:
        use_case = settings.spellings.get(named, named)
        if use_case not in _use_cases(settings):
            raise UsageError(
                "use_case: it is none of those at /api/v1/use-cases: start the server with it as "
                "--use-case"
            )
        request["use_case"] = use_case
        if settings.data is not None and use_case in settings.use_cases:
            request["data"] = str(settings.data.absolute())
    if getattr(given, "on_hosts", False):
        if settings.host_options is None:
            raise UsageError("on_hosts: start the server with --hosts, which names them")
        request |= settings.host_options
        if "objective" in request:
            Hosts.find(settings.hosts).check_objective(request["objective"])
    if getattr(given, "checkpoint", False):
        folder = _CHECKPOINTS / f"training-{secrets.token_hex(4)}"
        request["checkpoint"] = str(folder.absolute())
    return request


def _named_plans(request: Mapping[str, Any]) -> Iterator[int]:
    """Give the numbers of the plans that a command is to take."""
    if "plan" in request:
        yield request["plan"]
    several = request.get("plans", BEST)
    if several != BEST:
        yield from map(int, several.split(","))


def _check_names(kind: JobKind, options: type[Any], body: Mapping[str, Any]) -> None:
    """Refuse unknown options first: a misspelled one would else be reported as missing."""
    known = [option.name for option in fields(options)]
    for name in body:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
            raise RequestError(
                400, f"{kind}: {ascii(name)[1:-1]:.80} is no option: {hint}", kind="usage"
            )


def _check_queue(db: str) -> None:
    try:
        waiting = jobs.find(states=[JobState.QUEUED], db=db)
    except NoDatabaseError:
        return
    here = [job for job in waiting if job.machine == platform.node()]
    if len(here) >= _MOST_QUEUED:
        raise ConflictError(f"{len(here)} jobs wait for their turn already: cancel one, or wait")


def _use_cases(settings: ServiceSettings) -> list[str]:
    return [*use_case_names(), *settings.use_cases]


def _queued(job: JobRecord) -> Found:
    return Found(data=job, address=f"/api/v1/jobs/{job.id}")
