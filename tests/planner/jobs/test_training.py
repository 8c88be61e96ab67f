"""What comes of a job whose ranks end, fall silent, or are asked to end."""

from __future__ import annotations

import errno
import json
import signal
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
from scripted_jobs import VALIDATED, WEIGHTS, WHOLE, ScriptedPlacement, job, sending, step
from usage_samples import used
from worth_cases import FACTS

from launch.errors import HostUnreachableError, UseCaseError
from launch.reports import (
    Alive,
    Described,
    EndRequested,
    Report,
    StepDone,
    Warned,
    make_node_failure,
)
from launch.system.run_directory import RunDirectory
from planner.cancellation import Cancellation
from planner.commands.signals import cancel_on_signals
from planner.errors import CancelledError, RunDirectoryError, TrainingFailedError
from planner.jobs.mpi_run import run_mpi
from planner.jobs.training import LaunchOutcome, next_run_directory, run_job

KILLED = replace(make_node_failure("node2", "rank 1 was killed by signal 9 (SIGKILL)"), signal=9)
WRONG = make_node_failure("node2", "its disk is full")
WAIT = "wait_for_end_signal()\n"


class Heard(list[Report]):
    """What a job has said; with some of its steps comes a Ctrl-C."""

    def __init__(self, *, interrupts_at: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._interrupts_at = interrupts_at

    def __call__(self, report: Report) -> None:
        self.append(report)
        if isinstance(report, StepDone) and report.step in self._interrupts_at:
            signal.raise_signal(signal.SIGINT)

    @property
    def warnings(self) -> list[str]:
        return [report.message for report in self if isinstance(report, Warned)]


def run(program: str, folder, heard: Heard | None = None) -> LaunchOutcome:
    placement, on_report = ScriptedPlacement(program=program), Heard() if heard is None else heard
    with cancel_on_signals(lambda message: on_report(Warned(message=message))) as cancellation:
        return run_job(
            job(),
            folder / "runs",
            placement=placement,
            on_report=on_report,
            cancellation=cancellation,
        )


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let silence be too long after two seconds, once the first word has come."""
    monkeypatch.setattr("planner.jobs.training._SILENCE_LIMIT_S", 2.0)
    monkeypatch.setattr("launch.mpi.job._END_LIMIT_S", 0.2)


def test_job_that_was_asked_to_end_is_not_gone_on_with_after_an_accident(tmp_path):
    """The story: Ctrl-C came, then a rank died, and the training began again."""
    heard = Heard(interrupts_at=(2,))
    with pytest.raises(CancelledError):
        run(sending(step(1), step(2)) + WAIT + sending(KILLED) + "sys.exit(1)", tmp_path, heard)
    assert heard.warnings[1:] == ["node2: rank 1 was killed by signal 9 (SIGKILL)"]


def test_second_interrupt_ends_a_job_that_does_not_come_to_its_end(tmp_path):
    heard = Heard(interrupts_at=(2, 3))
    with pytest.raises(KeyboardInterrupt):
        run(sending(step(1), step(2), step(3), step(4)) + WAIT + "time.sleep(600)", tmp_path, heard)
    assert [report.step for report in heard if isinstance(report, StepDone)] == [1, 2, 3]
    assert heard.warnings == ["stopping after this step: Ctrl-C again ends at once"]


def test_use_case_at_fault_is_told_with_the_host_that_found_it_so(tmp_path):
    fault = replace(make_node_failure("node2", "UseCaseError: no photos in data"), users_fault=True)
    with pytest.raises(UseCaseError, match=r"^node2: no photos in data$"):
        run(sending(fault) + "sys.exit(1)", tmp_path)
    assert list(tmp_path.iterdir()) == []


class Unreachable(ScriptedPlacement):
    """Its first host does not take the job."""

    def deliver(self, directory: RunDirectory) -> Path:
        raise HostUnreachableError("host node1: no answer")


def test_job_of_which_no_rank_was_started_leaves_no_folder_of_a_run(tmp_path):
    """The story: `runs/7` had what was launched, and read as a training that had been cut short."""
    with pytest.raises(HostUnreachableError):
        run_job(
            job(),
            tmp_path / "runs",
            placement=Unreachable(program=""),
            on_report=Heard(),
            cancellation=Cancellation(),
        )
    assert list(tmp_path.iterdir()) == []


def test_what_keeps_a_job_from_ending_in_order_is_the_error(tmp_path):
    program = sending(step(1), step(2)) + WAIT + sending(WRONG) + "sys.exit(1)"
    with pytest.raises(TrainingFailedError, match=r"^node2: its disk is full$"):
        run(program, tmp_path, Heard(interrupts_at=(2,)))


def test_job_that_comes_to_its_end_after_all_is_done(tmp_path):
    heard = Heard(interrupts_at=(2,))
    made_up = Described(facts=replace(FACTS, is_generated=True))
    done = run(sending(made_up, step(1), step(2)) + WAIT + WHOLE, tmp_path, heard)
    (epoch,) = done.epochs
    assert epoch.samples == 24
    assert len(heard.warnings) == 1
    # What another program reads has the mark in it too.
    assert json.loads((done.run_directory / "metrics.jsonl").read_text())["is_generated"] is True


def test_a_removed_folder_of_the_run_does_not_hide_how_the_job_ended(tmp_path):
    """The story: mpirun's log was looked for at the end, and that it was gone was the error."""
    removing = f"import shutil\nshutil.rmtree({str(tmp_path / 'runs')!r})\n"
    assert len(run(removing + WHOLE, tmp_path).epochs) == 1  # its weights are on another host
    with pytest.raises(TrainingFailedError, match=r"^node2: its disk is full$"):
        run(removing + sending(step(1), WRONG) + "sys.exit(1)", tmp_path)


def test_folder_of_runs_that_cannot_be_listed_is_one_line(tmp_path, monkeypatch):
    """Where `runs` was another user's, `launch` ended as a bug of ddlplan."""

    def refuse(folder: Path) -> None:  # root, who may run this, may list every folder
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(RunDirectoryError, match=r"run: permission denied: start in a folder where"):
        next_run_directory(tmp_path)


def test_ranks_that_slurm_has_asked_to_end_end_the_command_likewise(tmp_path):
    """The story: `mpirun ended with exit code 0 before the training was done`."""
    with pytest.raises(CancelledError) as ended:
        run(sending(step(1), EndRequested(signal=signal.SIGTERM)), tmp_path)
    assert ended.value.signal == signal.SIGTERM


def test_job_is_cancelled_from_another_thread_before_its_first_step(tmp_path):
    cancellation = Cancellation()
    Timer(0.5, cancellation.cancel).start()
    with pytest.raises(CancelledError):
        run_job(
            job(),
            tmp_path / "runs",
            placement=ScriptedPlacement(program=sending(Alive()) + "time.sleep(10000)"),
            on_report=Heard(),
            cancellation=cancellation,
        )


def test_checkpoint_is_written_on_request(tmp_path):
    """SIGUSR1 reaches the ranks, and the training continues."""
    cancellation = Cancellation()

    def on_report(report: Report) -> None:
        if isinstance(report, StepDone):
            cancellation.request_checkpoint()

    program = (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        + sending(step(1))
        + "signal.sigwait([signal.SIGUSR1])\n"
        + sending(VALIDATED, VALIDATED, WEIGHTS)
    )
    outcome = run_job(
        job(),
        tmp_path / "runs",
        placement=ScriptedPlacement(program=program),
        on_report=on_report,
        cancellation=cancellation,
    )
    assert len(outcome.epochs) == 1


def test_job_that_ends_well_before_its_work_is_done_has_had_an_accident(tmp_path):
    """The story: the ssh that mpirun had started was killed, and mpirun ended with 0."""
    with pytest.raises(TrainingFailedError, match=r"exit code 0, as where a login to a host") as e:
        run(sending(step(1)), tmp_path)
    assert e.value.is_accident


@pytest.mark.usefixtures("_impatient")
def test_that_no_rank_ever_speaks_is_no_accident(tmp_path, monkeypatch):
    monkeypatch.setitem(run_mpi.__kwdefaults__, "start_limit_s", 0.9)
    with pytest.raises(TrainingFailedError) as error:
        run("time.sleep(100)", tmp_path)
    told = str(error.value)
    assert told.startswith("mpirun: no rank has spoken in 1 s: run ddlplan doctor --hosts FILE, ")
    assert not error.value.is_accident


@pytest.mark.usefixtures("_impatient")
def test_mpirun_that_stands_still_is_named(tmp_path):
    with pytest.raises(TrainingFailedError, match=r"^mpirun: stands still, it is stopped") as error:
        run(sending(Alive()) + "os.kill(os.getpid(), signal.SIGSTOP)", tmp_path)
    assert error.value.is_accident


@pytest.mark.usefixtures("_impatient")
def test_first_host_is_named_where_its_rank_stands_still_and_not_mpirun(tmp_path):
    with pytest.raises(TrainingFailedError, match=r"^node1: its rank does not answer") as error:
        run(sending(Alive()) + "time.sleep(100)", tmp_path)
    assert error.value.is_accident


@pytest.mark.usefixtures("_impatient")
def test_first_host_that_stands_still_is_missed_though_the_other_tells_what_it_uses(tmp_path):
    """The story: each rank reports its own use, which counted as a sign of life of the first."""
    uses = "while True:\n    " + sending(used(rank=1)) + "    time.sleep(0.1)\n"
    with pytest.raises(TrainingFailedError, match=r"^node1: its rank does not answer"):
        run(sending(Alive()) + uses, tmp_path)


@pytest.mark.usefixtures("_impatient")
def test_what_mpirun_knows_of_a_silence_counts_first(tmp_path):
    noticed = "process rank 1 with PID 7 on node node2 exited on signal 9 (Killed)"
    program = f"print({noticed!r}, file=sys.stderr, flush=True)\n" + sending(Alive())
    with pytest.raises(TrainingFailedError, match=r"^node2: rank 1 was killed by signal 9"):
        run(program + "time.sleep(100)", tmp_path)
