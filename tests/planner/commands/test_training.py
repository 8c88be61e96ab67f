"""What a training says of itself: where its files are, how fast it was, where it can go on."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_jobs import VALIDATED, WEIGHTS, WHOLE, ScriptedPlacement, job, sending, step
from training_samples import EPOCH, NOISE
from worth_cases import FACTS

from launch.job import Job
from launch.reports import CheckpointSaved, Described, StepDone, Warned
from planner.api.launching import train
from planner.cancellation import Cancellation
from planner.commands.training import TrainingDisplay, outcome_json, print_training
from planner.errors import TrainingFailedError
from planner.jobs.prepared_launch import PreparedLaunch
from planner.report.output import Output
from probes.timing import Interval

SAVED = CheckpointSaved(path="/far/kept/step-00000020", step=20, time_s=0.1)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(
    program: str,
    what: Job,
    out: Output | None = None,
    *,
    starts_here: bool = True,
    interval: Interval | None = None,
) -> dict[str, Any]:
    """Run a job to its end, say how it went, and give that as values."""
    out = out or Output("launch", as_json=False)
    placement = ScriptedPlacement(program=program, starts_here=starts_here)
    prepared = PreparedLaunch(job=what, placement=placement, plans=())
    with TrainingDisplay(out, epochs=what.epochs) as display:
        display(prepared)
        training = train(prepared, display, Cancellation())
    print_training(training, 8.0, out, verb="expected", remedy="ever", interval=interval)
    return outcome_json(training, 8.0)


def test_epoch_that_was_only_validated_has_neither_loss_nor_speed(capsys):
    data = trained(sending(VALIDATED, VALIDATED, WEIGHTS), job())
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "epoch 1/1  validation loss 1.000"
    assert not any("measured" in line for line in said)
    assert data["measured_throughput_samples_per_s"] is None


def test_an_epoch_shows_its_noise_scale_and_the_first_without_one_says_why(capsys):
    """A plan with one part was silent, and `plans show` said that nothing was measured."""
    with TrainingDisplay(Output("launch", as_json=False), epochs=3) as display:
        display(replace(EPOCH, noise=NOISE))
        for number in (2, 3):
            display(replace(EPOCH, epoch=number, noise_obstacle="a step has one part"))
    said = capsys.readouterr()
    first, *others = said.out.splitlines()
    assert first.endswith("20.0 samples/s  noise scale 312 (250 to 400)")
    assert [line.rpartition("  ")[2] for line in others] == ["20.0 samples/s"] * 2
    assert said.err.splitlines() == ["noise scale not measured: a step has one part"]


def test_why_a_noise_scale_has_a_question_mark_is_said_once(capsys):
    """Of a model with BatchNorm `launch` showed the mark alone, and `runs show` the reason."""
    noise = replace(NOISE, caveat="BatchNorm, whose samples depend on one another")
    with TrainingDisplay(Output("launch", as_json=False), epochs=2) as display:
        for number in (1, 2):
            display(replace(EPOCH, epoch=number, noise=noise))
    said = capsys.readouterr()
    assert said.out.count("noise scale 312 (250 to 400)?") == 2
    assert said.err.splitlines() == [
        "noise scale not reliable with BatchNorm, whose samples depend on one another"
    ]


def test_files_on_another_machine_are_named_with_their_host(capsys, tmp_path):
    """The story: they were named as if they were here, and nobody found them."""
    data = trained(sending(SAVED) + WHOLE, job(folder="/far/kept"), starts_here=False)
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == [
        "weights    node1:/far/runs/1/weights.safetensors",
        "checkpoint node1:/far/kept/step-00000020",
        f"metrics    runs/1/metrics.jsonl, logs in node1:{tmp_path.resolve()}/runs/1",
    ]
    assert data["host"] == "node1"


def test_files_on_this_machine_have_no_host(capsys):
    data = trained(WHOLE, job())
    assert "weights    /far/runs/1/weights.safetensors\n" in capsys.readouterr().out
    assert data["host"] is None


@pytest.mark.parametrize("is_generated", [True, False])
def test_training_with_made_up_data_says_so_with_its_result(capsys, is_generated):
    described = Described(facts=replace(FACTS, is_generated=is_generated))
    data = trained(sending(described) + WHOLE, job())
    said = " ".join(capsys.readouterr().out.split())
    assert ("data generated: the use case made its samples up" in said) is is_generated
    assert data["is_generated"] is is_generated


def test_what_every_node_warns_of_is_said_once(capsys):
    trained(sending(Warned(message="mind the gap"), Warned(message="mind the gap")) + WHOLE, job())
    assert capsys.readouterr().err.count("mind the gap") == 1


def test_training_whose_epochs_were_all_done_gives_its_weights_and_no_speed(capsys):
    data = trained(sending(WEIGHTS), job(resume_from="/kept/step-00000020", done_epochs=1))
    said = capsys.readouterr()
    assert "all epochs were done before" in said.err
    assert "expected" not in said.out
    assert (data["epochs"], data["measured_throughput_samples_per_s"]) == ([], None)
    assert data["weights"] == WEIGHTS.path


@pytest.mark.parametrize(("step_s", "is_judged"), [(1.9, False), (2.0, True)])
def test_training_is_called_slow_only_where_an_epoch_was_long_enough(capsys, step_s, is_judged):
    """The story: an epoch of one step was 38 % too slow, and the network was to blame."""
    slow = StepDone(step=1, epoch=0, time_s=step_s, samples=8, loss=1.0)
    trained(sending(slow, VALIDATED, VALIDATED, WEIGHTS), job())
    assert ("slower than ever" in capsys.readouterr().err) is is_judged


@pytest.mark.parametrize(("low", "is_slow"), [(3.9, False), (4.1, True)])
def test_training_within_the_interval_of_its_plan_is_not_called_slow(capsys, low, is_slow):
    """The story: a launch within the stored interval was blamed on another process."""
    slow = StepDone(step=1, epoch=0, time_s=2.0, samples=8, loss=1.0)
    promised = Interval(median=8.0, low=low, high=12.0, count=4)
    trained(sending(slow, VALIDATED, VALIDATED, WEIGHTS), job(), interval=promised)
    said = capsys.readouterr()
    assert f"8.0 samples/s ({low} to 12.0), measured 4.0" in said.out
    assert ("slower than ever" in said.err) is is_slow


class Interrupted(Output):
    """A Ctrl-C comes when something is kept."""

    def set_partial_data(self, data: Any) -> None:
        super().set_partial_data(data)
        signal.raise_signal(signal.SIGINT)


def test_who_interrupts_a_training_hears_where_it_can_go_on(capsys, tmp_path):
    path = tmp_path.resolve() / "kept" / "step-00000020"
    out = Interrupted("launch", as_json=True)
    saved = CheckpointSaved(path=str(path), step=20, time_s=0.1)
    with pytest.raises(KeyboardInterrupt):
        trained(sending(saved) + "time.sleep(100)", job(folder=str(path.parent)), out)
    out.report_signal(signal.SIGINT)
    said = capsys.readouterr()
    assert (
        "the last checkpoint is kept/step-00000020: go on with --checkpoint kept --resume"
        in said.err
    )
    assert json.loads(said.out)["data"] == {"checkpoint": str(path), "host": None}


def test_who_has_an_accident_hears_where_the_training_can_go_on(capsys, tmp_path):
    """The story: of a folder with a blank in its name, half was named to go on with."""
    path = tmp_path.resolve() / "kept here" / "step-00000020"
    saved = CheckpointSaved(path=str(path), step=20, time_s=0.1)
    made_up = Described(facts=replace(FACTS, is_generated=True))
    program = sending(made_up, step(1), VALIDATED, VALIDATED, saved)
    with pytest.raises(TrainingFailedError):
        trained(program + "os.kill(os.getpid(), signal.SIGKILL)", job(folder="kept here"))
    said = capsys.readouterr().err
    assert "the last checkpoint is kept here/step-00000020: go on with " in said
    assert "go on with --checkpoint 'kept here' --resume" in said
    # An epoch was shown, and the line on its data stands at the end of a whole training.
    assert "data were generated: the use case made its samples up" in said


@pytest.mark.parametrize(("steps", "lost"), [(1, "1 step is lost"), (2, "2 steps are lost")])
def test_who_has_an_accident_without_a_checkpoint_hears_what_is_lost(capsys, steps, lost):
    made = map(step, range(1, steps + 1))
    with pytest.raises(TrainingFailedError):
        trained(sending(*made) + "os.kill(os.getpid(), signal.SIGKILL)", job())
    said = capsys.readouterr().err
    assert f"{lost}, 0 whole epochs among them: neither weights nor a checkpoint" in said


def test_who_interrupts_before_the_first_checkpoint_goes_on_where_the_training_did():
    out = Output("launch", as_json=True)
    program = "os.kill(os.getppid(), signal.SIGINT)\ntime.sleep(100)"
    with pytest.raises(KeyboardInterrupt):
        trained(program, job(resume_from=SAVED.path), out, starts_here=False)
    assert out._partial_data == {"checkpoint": SAVED.path, "host": "node1"}
