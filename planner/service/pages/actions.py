"""Actions: forms that start and end jobs, with the command that does the same without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from launch.use_cases import use_case_summaries
from planner.api.plans import FoundPlan
from planner.errors import ConflictError
from planner.records.job_record import JobRecord
from planner.records.training_record import TrainingRecord
from planner.scripts.naming import command_for
from planner.service.pages.view import Context, data_options
from planner.supervision.resuming import check_resumable


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An input of a form."""

    name: str
    """Of the value in the body of the request."""

    label: str
    kind: str = "text"
    """``text``, ``number``, ``check``, ``choice`` or ``document``."""

    choices: Sequence[str] = ()
    value: str = ""
    hint: str = ""
    is_needed: bool = False
    is_fixed: bool = False
    """Whether it is sent as it is and not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form, which the script of the page sends as JSON."""

    key: str
    title: str
    button: str
    action: str
    """Address of the API."""

    fields: Sequence[Field] = ()
    then: str = "/jobs/{id}"
    """Address to go to; ``{id}`` is the number that the answer holds."""

    confirm: str = ""
    """What to ask before it is sent; nothing where it is empty."""

    command: str
    """What to type without the script."""

    about: str = ""


_PRECISIONS = ("fp32", "bf16", "auto")

_LAUNCH = Form(
    key="launch",
    title="Train",
    button="Launch",
    action="/api/v1/jobs/launch",
    command="ddlplan launch --use-case NAME --detach",
    about="With the best plan of this machine, or the one that you name.",
)
_PROBE = Form(
    key="probe",
    title="Measure this machine",
    button="Probe",
    action="/api/v1/jobs/probe",
    fields=(Field(name="quick", label="quick: only what it is, no speeds", kind="check"),),
    command="ddlplan probe",
)
_DOCTOR = Form(
    key="doctor",
    title="Check this machine",
    button="Doctor",
    action="/api/v1/jobs/doctor",
    command="ddlplan doctor",
)
_IMPORT = Form(
    key="import",
    title="Import a plan",
    button="Import",
    action="/api/v1/plans/import",
    fields=(
        Field(
            name="plan",
            label="Plan as plans export wrote it",
            kind="document",
            is_needed=True,
        ),
    ),
    then="/plans/{id}",
    command="ddlplan plans import FILE",
)


def find_forms(context: Context, *keys: str) -> list[Form]:
    """Give the forms of these names; none where the server only shows."""
    if not context.allows_actions:
        return []
    cases = _offered_use_cases(context)
    use_case = Field(name="use_case", label="Use case", kind="choice", choices=cases)
    epochs = Field(name="epochs", label="Epochs", kind="number", hint="default")
    known: Mapping[str, Form] = {
        "tune": Form(
            key="tune",
            title="Search for the best plan",
            button="Tune",
            action="/api/v1/jobs/tune",
            fields=(
                use_case,
                Field(name="budget", label="Budget", value="5m", hint="90s, 5m, 1h"),
                Field(name="max_batch", label="Largest batch", kind="number"),
                Field(name="precision", label="Precision", kind="choice", choices=_PRECISIONS),
                Field(name="fresh", label="begin afresh", kind="check"),
            ),
            command="ddlplan tune --use-case NAME --detach",
            about="Runs on the machine of this server, one job after another.",
        ),
        "launch": replace(
            _LAUNCH,
            fields=(
                use_case,
                epochs,
                Field(name="plan", label="Plan", kind="number", hint="the best"),
                Field(name="checkpoint", label="with checkpoints", kind="check"),
                Field(name="allow_stale", label="a stale plan too", kind="check"),
            ),
        ),
        "sweep": Form(
            key="sweep",
            title="Sweep batches and devices",
            button="Sweep",
            action="/api/v1/jobs/sweep",
            fields=(
                use_case,
                Field(name="batches", label="Batches", hint="32,64,128", is_needed=True),
                Field(name="devices", label="Devices", hint="1,2,4"),
                epochs,
                Field(name="fresh", label="begin afresh", kind="check"),
            ),
            command="ddlplan sweep --use-case NAME --batches 32,64,128 --detach",
            about="Trains with each batch on each number of devices; where none is named, on 1, 2, "
            "4 and so on up to all, as far as the smallest batch has samples.",
        ),
        "probe": _PROBE,
        "doctor": _DOCTOR,
        "import": _IMPORT,
    }
    return [known[key] for key in keys]


def _offered_use_cases(context: Context) -> list[str]:
    """Give the use cases that the server may tune and train."""
    return list(dict.fromkeys([*context.use_cases, *use_case_summaries()]))


def cancel_form(job: JobRecord, context: Context) -> list[Form]:
    """Give the form that ends a job, where it can be ended from here."""
    if not context.allows_actions or job.state.is_over or not job.is_detached:
        return []
    if job.cancel_requested_at is not None:
        return []
    return [
        Form(
            key="cancel",
            title="",
            button="Cancel this job",
            action=f"/api/v1/jobs/{job.id}/cancel",
            confirm=f"End job {job.id}?",
            command=f"ddlplan jobs cancel {job.id}",
        )
    ]


def resume_form(training: TrainingRecord, command: str, context: Context) -> list[Form]:
    """Give the form that goes on with a training, where it left a checkpoint on this machine."""
    if not context.allows_actions:
        return []
    try:
        check_resumable(training)
    except ConflictError:
        return []
    return [
        Form(
            key="resume",
            title="",
            button="Resume from the checkpoint",
            action=f"/api/v1/trainings/{training.id}/resume",
            command=command,
        )
    ]


def remove_form(plan_id: int, context: Context) -> list[Form]:
    """Give the form that removes a plan."""
    if not context.allows_actions:
        return []
    return [
        Form(
            key="remove",
            title="",
            button="Remove this plan",
            action=f"/api/v1/plans/{plan_id}/remove",
            then="/plans",
            confirm=f"Remove plan {plan_id}? Its trials stay.",
            command=f"ddlplan plans rm {plan_id}",
        )
    ]


def launch_form(found: FoundPlan, context: Context) -> list[Form]:
    """Give the form that trains with one plan, where a job here would train what it was found with.

    Its use case has to be one of the server's, which names the data of jobs.
    """
    use_case, plan_id = found.stored.use_case, found.stored.id
    if not context.allows_actions or use_case not in _offered_use_cases(context):
        return []
    data = context.data if use_case in context.use_cases else None
    is_known = not found.stored.lacks_data
    if not is_known or (found.stored.study_id is not None and found.data != data):
        return []
    options = [*data_options(data), "--plan", str(plan_id)]
    options += ["--allow-stale"] if found.is_stale else []
    return [
        replace(
            _LAUNCH,
            title="Train with this plan",
            fields=(
                Field(name="use_case", label="", value=use_case, is_fixed=True),
                Field(name="plan", label="", kind="number", value=str(plan_id), is_fixed=True),
                Field(name="epochs", label="Epochs", kind="number", value="1"),
                Field(name="checkpoint", label="with checkpoints", kind="check"),
                Field(name="allow_stale", label="though it is stale", kind="check"),
            ),
            about="",
            command=command_for(use_case, "launch", *options, "--detach"),
        )
    ]
