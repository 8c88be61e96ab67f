"""What the pages of a job, a training and a study say is true of them."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from datetime import timedelta
from math import nan

import pytest
from markup import Markup, Pages
from sample_plan import NOON
from store_cases import STUDY, trial
from sweep_samples import SETTINGS, sample_point, sample_record
from training_samples import BEGUN, EPOCH, JOB
from worth_cases import FACTS, NODE, STORED, TRIALS

from launch.system.process_identity import ProcessIdentity
from planner.plans.software import current_software
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobKind, JobState
from planner.records.progress import SweepProgress, TrainingProgress
from planner.records.training_record import TrainingStatus
from planner.service.pages import overview
from planner.service.pages.job import JobView
from planner.service.pages.rendering import render
from planner.service.pages.view import Context, View
from planner.supervision.job_folder import JobFolder
from planner.trials.result import Outcome
from probes import codec


@pytest.fixture
def pages(tmp_path):
    return Pages(tmp_path / "planner.db", allows_actions=True)


@pytest.fixture
def page(pages):
    return lambda kind: pages.get(f"/{kind}/1").html


@pytest.fixture
def show(page):
    return lambda kind: " ".join(Markup(page(kind)).text.split())


def add_training(store, state=TrainingStatus.RUNNING, machine=None, checkpoint=None):
    added = store.trainings.add(
        replace(
            BEGUN,
            started_at=utc_now(),
            use_case="simplebig",
            data="/data/my photos",
            epochs=300,
            machine=machine or platform.node(),
            process=ProcessIdentity.of(),
            heartbeat_at=utc_now(),
            checkpoint=checkpoint,
        )
    )
    if state is not TrainingStatus.RUNNING:
        store.trainings.end(added.id, state)


def add_job(store, state=JobState.RUNNING, **changes):
    job = store.jobs.add(
        replace(
            JOB,
            created_at=utc_now(),
            machine=platform.node(),
            state=JobState.RUNNING,
            process=ProcessIdentity.of(),
            heartbeat_at=utc_now(),
            **{"kind": JobKind.LAUNCH, "title": "ddlplan launch"} | changes,
        )
    )
    if job.kind is JobKind.LAUNCH:
        progress = TrainingProgress(doing="training", epochs=300, epoch=15, steps=99, samples=8)
        store.jobs.set_progress(job.id, codec.to_builtins(progress), training_id=1)
    if state is not JobState.RUNNING:
        store.jobs.end(job.id, state)
    return job


def test_training_that_can_be_resumed_says_from_which_folder(store, show, tmp_path):
    newest = tmp_path / "kept here" / "step-00000002"
    newest.mkdir(parents=True)
    add_training(store, TrainingStatus.CANCELLED, checkpoint=str(newest))
    options = f"--data '/data/my photos' --epochs 300 --checkpoint '{newest.parent}' --resume"
    command = f"ddlplan launch --use-case simplebig {options}"
    assert show("trainings").count(command) == 2  # beside the form, for those without JavaScript


def test_training_is_resumed_with_the_options_that_it_was_started_with(store, show, tmp_path):
    newest = tmp_path / "kept" / "step-00000002"
    add_training(store, TrainingStatus.CANCELLED, checkpoint=str(newest))
    request = {"plan": 7, "allow_stale": True, "lr_scaling": "sqrt"}
    add_job(store, JobState.CANCELLED, request=request)
    command = "--epochs 300 --plan 7 --lr-scaling sqrt --allow-stale --checkpoint"
    assert command in show("trainings")


@pytest.mark.parametrize("is_here", [True, False])
def test_plan_and_study_are_used_on_their_machine_with_a_database_that_is_there(
    store, pages, tmp_path, is_here
):
    """The story: on another machine the path of the server's file was to be typed."""
    node = platform.node() if is_here else "atlas"
    number = store.studies.get_or_create(replace(STUDY, node=node, facts=FACTS))
    store.studies.add_trial(number, TRIALS[-1].result)
    store.plans.save(replace(STORED, id=None, node=node, study_id=number), ends_search=True)
    place = node if is_here else f"{node}, with a copy of this database as COPY"
    for path in ("/plans/1", "/studies/1"):
        said = " ".join(Markup(pages.get(path).html).text.split())
        command = said.partition(f"on {place}, type: ")[2]
        name = command.partition(" --db ")[2].split()[0].removesuffix("Copy")  # a button
        assert name == (str(tmp_path / "planner.db") if is_here else "COPY")


def test_training_of_another_machine_is_resumed_there(store, show, tmp_path):
    newest = tmp_path / "kept" / "step-00000002"
    add_training(store, TrainingStatus.CANCELLED, machine="atlas", checkpoint=str(newest))
    text = show("trainings")
    place = "on atlas, which has it, with a copy of this database as COPY"
    assert f"To go on from its checkpoint {place}, type:" in text
    assert "--resume --db COPY" in text
    assert "Resume from the checkpoint" not in text


def test_training_without_checkpoint_offers_no_resuming(store, show):
    add_training(store, TrainingStatus.CANCELLED)
    assert "--resume" not in show("trainings")


def test_running_training_has_the_epochs_that_its_job_tells_of(store, show):
    add_training(store)
    add_job(store)
    text = show("trainings")
    assert "14 of 300" in text
    assert "No epoch has ended" not in text


@pytest.mark.parametrize(
    "told", [{"request": {"checkpoint": "kept"}}, {"title": "ddlplan launch --checkpoint kept"}]
)
def test_training_that_was_told_to_write_checkpoints_has_none_yet(store, show, told):
    add_training(store)
    add_job(store, **told)
    text = show("trainings")
    assert "It has written no checkpoint yet." in text
    assert "It writes no checkpoint" not in text


def test_resumed_training_has_the_epochs_before_its_own_done_too(store, page, pages):
    """The story: one that went on after its 200th epoch was done with 100 of 300."""
    add_training(store)
    store.trainings.update(1, epochs_done=[replace(EPOCH, epoch=n) for n in range(201, 301)])
    store.trainings.end(1, TrainingStatus.DONE)
    assert '<dd>300 <span class="unit">of 300</span></dd>' in page("trainings")
    assert ">300 of 300</td>" in pages.get("/trainings").html


def test_training_that_only_validated_has_neither_loss_nor_speed(store, page):
    """The story: it had a loss that was nan, at 0 samples/s."""
    add_training(store)
    validated = replace(EPOCH, epoch=300, samples=0, train_loss=nan, throughput_samples_per_s=0.0)
    store.trainings.update(1, epochs_done=[validated])
    html = page("trainings")
    assert "<dt>Validation</dt><dd>0.6000</dd>" in html
    assert not re.search("<dt>(Loss|Samples/s)</dt>|>nan<", html)


def test_loss_that_is_not_finite_is_said_so(store, page):
    add_training(store)
    store.trainings.update(1, epochs_done=[replace(EPOCH, train_loss=nan)])
    assert "<dt>Loss</dt><dd>not finite</dd>" in page("trainings")


def test_script_has_neither_losses_nor_epochs_nor_checkpoints(store, page):
    """The story: its loss was nan, and --checkpoint was advised, which no script may have."""
    store.trainings.add(replace(BEGUN, started_at=utc_now(), use_case="script:python train.py"))
    run = replace(EPOCH, train_loss=nan, validation_loss=None, metrics={})
    store.trainings.update(1, epochs_done=[run], steps=20)
    store.trainings.end(1, TrainingStatus.DONE)
    html = page("trainings")
    assert "<dt>Samples/s</dt><dd>20.0</dd>" in html
    assert not re.search("Loss|Epochs|--checkpoint|>nan<", html)


def test_job_that_is_over_does_not_go_on(store, show):
    add_training(store, TrainingStatus.DONE)
    add_job(store, JobState.DONE)
    assert "a supervisor, without a terminal" in show("jobs")
    assert "goes on" not in show("jobs")


def test_a_search_and_its_plan_go_on_with_their_data(store, show):
    """The story: without them the commands trained with samples that the use case makes up."""
    same = {"node": NODE.node, "fingerprint": NODE.fingerprint(), "software": current_software()}
    facts = replace(FACTS, data="/data/my photos")
    study = replace(STUDY, precision="auto", facts=facts, **same)
    number = store.studies.get_or_create(study)
    store.studies.add_trial(number, TRIALS[-1].result)
    command = "--use-case simplebig --data '/data/my photos'"
    assert f"ddlplan tune {command} --precision auto" in show("studies")
    plan = replace(STORED, id=None, use_case="simplebig", study_id=number, **same)
    store.plans.save(plan, ends_search=True)
    assert f"ddlplan launch {command} --plan 1" in show("studies")
    assert f"ddlplan launch {command} --plan 1" in show("plans")


@pytest.mark.parametrize("is_generated", [True, False])
def test_results_of_made_up_data_are_marked_on_their_pages_and_in_lists(store, pages, is_generated):
    same = {"node": NODE.node, "fingerprint": NODE.fingerprint(), "software": current_software()}
    study = replace(STUDY, facts=replace(FACTS, is_generated=is_generated), **same)
    number = store.studies.get_or_create(study)
    store.studies.add_trial(number, TRIALS[-1].result)
    plan = replace(STORED, id=None, study_id=number, is_generated=is_generated, **same)
    store.plans.save(plan, ends_search=True)
    store.trainings.add(replace(BEGUN, started_at=utc_now(), is_generated=is_generated))
    store.sweeps.begin(replace(sample_record([8]), is_generated=is_generated), fresh=False)
    for kind in ("studies", "plans", "trainings", "sweeps"):
        for path in (f"/{kind}", f"/{kind}/1"):
            said = Markup(pages.get(path).html).text
            assert ("generated data" in said) is is_generated, path


def test_first_page_leads_to_the_sweep_that_runs(store, pages):
    sweep = store.sweeps.begin(sample_record([8, 16]), fresh=False).record
    job = add_job(store, kind=JobKind.SWEEP, title="ddlplan sweep")
    progress = SweepProgress(doing="batch 64", points=18, done=5, is_generated=True)
    store.jobs.set_progress(job.id, codec.to_builtins(progress), sweep_id=sweep.id)
    page = Markup(pages.get("/").html)
    assert "batch 64; 5 of 18 points" in " ".join(page.text.split())
    assert "ddlplan sweep generated data" in " ".join(page.text.split())
    assert ("a", {"href": f"/sweeps/{sweep.id}"}) in page.elements
    jobs = Markup(pages.get("/jobs").html)
    assert ("a", {"href": f"/sweeps/{sweep.id}"}) in jobs.elements


def test_machine_elsewhere_is_measured_from_the_one_that_has_the_database(store, show):
    """The story: the server's path was to be typed on that machine, which has no such file."""
    store.studies.get_or_create(replace(STUDY, node="atlas"))
    text = show("machines")
    place = f"On {platform.node()}, which has this database"
    assert f"{place}, and with a line for atlas in hosts.txt, type:" in text
    assert "ddlplan probe --hosts hosts.txt --db " in text
    assert "ddlplan tune --hosts hosts.txt --use-case simplebig --db " in text


def test_machine_that_has_the_database_is_measured_there(store, show):
    store.studies.get_or_create(replace(STUDY, node=platform.node()))
    text = show("machines")
    assert "On it, type:ddlplan probe --db " in text
    assert "hosts.txt" not in text


def test_commands_for_a_database_on_a_server_are_for_every_machine():
    context = Context(db="postgresql+psycopg://lab@host/plans")
    page = render(overview.show_nothing(context), "/", context, 0)
    assert "On the machine that is to train, with this database:" in page
    assert "<code>ddlplan probe --db postgresql+psycopg://lab@host/plans</code>" in page
    assert "which has this database" not in page


def test_log_on_another_machine_is_no_command_where_this_one_alone_has_the_database(store, show):
    """The story: the command was to be typed here, where it said that the log is elsewhere."""
    store.jobs.add(replace(JOB, machine="atlas", folder="/home/ada/jobs/1"))
    text = show("jobs")
    assert "The log of job 1 is not in /home/ada/jobs/1 here: see atlas." in text
    assert "ddlplan jobs logs" not in text


def test_log_is_read_on_the_machine_of_its_job_where_all_reach_the_database():
    db, job = "postgresql+psycopg://lab@host/plans", replace(JOB, id=1, folder="/home/ada/jobs/1")
    values = {"job": JobView(record=job), "log": None, "why_no_log": "it is on vm", "forms": []}
    view = View(template="job.html", title="Job 1", values=values)
    text = " ".join(Markup(render(view, "/jobs/1", Context(db=db), 0)).text.split())
    assert f"The whole log, on {JOB.machine}: ddlplan jobs logs 1 --db {db}" in text


def test_part_of_a_log_is_told_in_bytes(store, show, tmp_path):
    """The story: it was said to be the last 4000 of 15000 bytes, by its 4000 characters."""
    job = store.jobs.add(replace(JOB, created_at=utc_now(), machine=platform.node()))
    folder = JobFolder.create(job, tmp_path / "jobs")
    store.jobs.set_folder(job.id, str(folder.path))
    folder.log.write_text("\u2026" * 5000, encoding="utf-8")
    assert "the last 12000 of 15000 bytes" in show("jobs")


def test_a_trial_that_had_no_time_is_not_shown_as_failed(store, page):
    untimed = replace(trial(0), outcome=Outcome.NO_TIME, measurement=None, reason="no turn")
    store.studies.add_trial(store.studies.get_or_create(STUDY), untimed)
    html = page("studies")
    assert "<dt>Failed</dt><dd>0</dd>" in html
    assert "<dt>Had no time</dt><dd>1</dd>" in html
    assert 'class="bad"' not in html


def test_a_trial_has_the_number_that_commands_give_it(store, page):
    """The story: it was one more in the list than in the plot above it and in the terminal."""
    stored = store.studies.add_trial(store.studies.get_or_create(STUDY), trial(0))
    assert f'<th scope="row" class="num">{stored.number}</th>' in page("studies")


def test_long_error_of_a_job_is_shown_to_its_end(store, show):
    """The story: what to type was cut off, as it comes last."""
    add_training(store)
    job = add_job(store)
    hosts = ", ".join(f"node{number:02}" for number in range(64))
    error = f"no plan for simplebig on {hosts}: run ddlplan tune --hosts hosts"
    store.jobs.end(job.id, JobState.FAILED, exit_code=3, error=error)
    assert error in show("jobs")


def test_job_of_a_machine_that_fell_silent_took_until_it_was_last_heard_of(store, show, pages):
    """The story: such a job took a day longer with each day that the list was looked at."""
    begun, minute = utc_now() - timedelta(days=2), timedelta(minutes=1)
    silent = replace(JOB, machine="atlas", state=JobState.RUNNING, created_at=begun)
    store.jobs.add(replace(silent, started_at=begun, heartbeat_at=begun + 5 * minute))
    html = pages.get("/jobs").html
    assert "interrupted" in html
    assert '<td data-label="Took" class="num">5m 0s</td>' in html
    assert "last heard of" in show("jobs")


def test_job_that_never_began_ended_without_a_time(store, show):
    """The story: it "ended 20 Nov 2026, 12:00:00 UTC, after" and then nothing."""
    job = store.jobs.add(JOB)
    store.jobs.end(job.id, JobState.CANCELLED, ended_at=NOON)
    assert "20 Nov 2026, 12:00:00 UTC" in show("jobs")
    assert ", after" not in show("jobs")


def test_sweep_of_plans_that_was_cut_short_goes_on_with_them(store, show):
    """The story: "To go on, type:" led to a command that only shows the sweep."""
    planned = replace(SETTINGS[1], label="plan 7", plan_id=7)
    store.sweeps.begin(sample_record([8, 16], [*SETTINGS, planned]), fresh=False)
    store.sweeps.add_points(1, sample_point(8))
    command = "ddlplan sweep --use-case digits --batches 8,16 --devices 1,2 --plans 7 --epochs 2"
    assert f"To go on, type: {command}" in show("sweeps")
