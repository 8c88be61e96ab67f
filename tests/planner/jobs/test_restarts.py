"""What becomes of a training that an accident has ended."""

from __future__ import annotations

import re

import pytest

from launch.errors import HostFileError, HostUnreachableError, InvalidPlanError
from launch.job import CheckpointConfig
from launch.workload import Workload
from planner.errors import NoPlanError, TrainingFailedError, UsageError
from planner.jobs.launch_request import LaunchRequest
from planner.jobs.restarts import run_with_restarts

AWAY = HostUnreachableError("host node1: ssh: no answer")


class Attempts:
    """Trainings that end as they are told to, one after the other."""

    def __init__(self, *endings: Exception | None) -> None:
        self._endings = list(endings)
        self.hosts: list[object] = []

    def __call__(self, request: LaunchRequest, hosts: object) -> None:
        self.hosts.append(hosts)
        if (ending := self._endings.pop(0)) is not None:
            raise ending


def accident(message: str = "node2 does not answer") -> TrainingFailedError:
    return TrainingFailedError(message, is_accident=True)


def train(attempts: Attempts, folder, restarts: int = 2, find_hosts=lambda: ["node1"]) -> list[str]:
    heard: list[str] = []
    checkpoint = CheckpointConfig(folder=None if folder is None else str(folder))
    request = LaunchRequest(
        workload=Workload(use_case="tiny"), checkpoint=checkpoint, max_restarts=restarts
    )
    run_with_restarts(
        request,
        attempts,
        find_hosts,
        heard.append,
        pause=lambda s: heard.append(f"after {s:.0f} s"),
    )
    return heard


def test_training_goes_on_with_the_hosts_that_are_left(tmp_path):
    attempts = Attempts(accident(), accident(), None)
    heard = train(attempts, tmp_path)
    assert attempts.hosts == [None, ["node1"], ["node1"]]
    assert [line.rpartition(", ")[2] for line in heard] == [
        "2 of 2 restarts left",
        "1 of 2 restarts left",
    ]


def test_one_accident_too_many_is_the_error(tmp_path):
    with pytest.raises(TrainingFailedError, match=r"^the third$"):
        train(Attempts(accident(), accident(), accident("the third")), tmp_path)


def test_an_error_of_the_users_code_is_not_tried_again(tmp_path):
    attempts = Attempts(TrainingFailedError("ZeroDivisionError"))
    with pytest.raises(TrainingFailedError):
        train(attempts, tmp_path)
    assert len(attempts.hosts) == 1


@pytest.mark.parametrize(
    "later",
    [
        [InvalidPlanError("global_batch=128 and max_batches=64: use at most 64 samples")],
        [NoPlanError("no plan on node3")],
        [AWAY, AWAY],
    ],
)
def test_what_keeps_a_training_from_going_on_is_told_with_its_accident(tmp_path, later):
    """The story: the last host could not take the global batch, and that was all one read."""
    says = rf"^node2 does not answer; .* {re.escape(str(later[-1]))}$"
    with pytest.raises(TrainingFailedError, match=says):
        train(Attempts(accident(), *later), tmp_path)


def test_hosts_that_cannot_be_found_any_more_are_told_with_the_accident(tmp_path):
    """The story: the host file was gone, which was all that one read, with exit code 2."""

    def find_none() -> list[str]:
        raise HostFileError("hosts: no such file")

    with pytest.raises(TrainingFailedError, match=r"^node2 does not answer; .* no such file$"):
        train(Attempts(accident()), tmp_path, find_hosts=find_none)


def test_a_folder_that_cannot_be_listed_is_told_with_the_accident(tmp_path):
    file = tmp_path / "kept"
    file.write_text("")
    with pytest.raises(TrainingFailedError, match=r"^node2 does not answer; .*cannot be listed"):
        train(Attempts(accident()), file)


def test_a_training_whose_checkpoint_is_on_another_machine_does_not_begin_anew(tmp_path):
    """The story: the first host kept it, another had launched, and all began from the start."""
    lost = accident()
    lost.checkpoint = tmp_path / "kept" / "step-00000400"
    with pytest.raises(
        TrainingFailedError, match=r"^node2 does not answer; .*step-00000400 is not"
    ):
        train(Attempts(lost), tmp_path / "kept")


def test_a_moment_in_which_no_host_is_well_takes_one_restart_and_a_pause(tmp_path):
    """The story: a switch was away for some seconds, and the training gave up at once."""
    attempts = Attempts(accident(), AWAY, None)
    _, failed, pause = train(attempts, tmp_path)
    assert failed == "host node1: ssh: no answer: trying again in 10 s, 1 of 2 restarts left"
    assert pause == "after 10 s"
    assert len(attempts.hosts) == 3


def test_hosts_that_fail_before_any_accident_are_the_error(tmp_path):
    with pytest.raises(HostUnreachableError):
        train(Attempts(AWAY), tmp_path)


def test_restarts_without_a_checkpoint_are_refused():
    request = LaunchRequest(workload=Workload(use_case="tiny"), max_restarts=1)
    with pytest.raises(UsageError, match="name a folder"):
        run_with_restarts(request, Attempts(None), list, lambda _: None)
