"""Recognition: steps by what optimizers and data loaders did, as drawn."""

from __future__ import annotations

import pytest

from launch.errors import ScriptRefusedError
from launch.scripts.recognition import (
    MOST_EVENTS,
    Fetch,
    OptimizerEvent,
    RecognisedSteps,
    check_batch,
    find_round,
    recognise,
)


def events(drawing: str, size: int = 32) -> list[OptimizerEvent]:
    """One letter for each optimizer's step, a dot for each batch read before it, v: validated."""
    found, fetches = [], []
    for letter in drawing:
        if letter in ".v":
            fetches.append(Fetch(loader=0, size=size, count=1, is_training=letter == "."))
        else:
            number = ord(letter) - ord("a")
            found.append(
                OptimizerEvent(optimizer=number, time_s=1.0, fetches=tuple(fetches), backwards=1)
            )
            fetches = []
    return found


def seen(drawing: str, ranks: int = 1, **names: str) -> RecognisedSteps:
    classes = names or {"a": "SGD", "b": "Adam", "c": "Adam"}
    by_number = {ord(name) - ord("a"): value for name, value in classes.items() if name in drawing}
    found = recognise(events(drawing), by_number, ranks=ranks)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("drawing", "ranks", "line", "samples"),
    [
        (".a.a.a", 1, "optimizer SGD, 1 step per batch of 32", 32),
        ("..a..a..a", 1, "optimizer SGD, 1 step per 2 batches of 32", 64),
        ("vv.a.a.a", 2, "optimizer SGD, 1 step per batch of 32 on each of 2 ranks", 64),
        ("..a.a.a", 1, "optimizer SGD, 1 step per batch of 32", 32),
        ("aaa", 1, "optimizer SGD, 1 step, batches not seen", None),
    ],
)
def test_steps_of_one_optimizer(drawing, ranks, line, samples):
    found = seen(drawing, ranks)
    assert (str(found), found.samples_per_step) == (line, samples)


def test_round_of_a_gan_ends_before_its_next_batch():
    found = seen(".ab.ab.ab")
    assert (found.round, found.boundary) == ((0, 1), 1)
    assert str(found) == (
        "optimizers SGD and Adam: a step is 1 of SGD, 1 of Adam, 1 step per batch of 32"
    )


def test_critic_that_steps_more_often_is_a_part_of_the_step():
    found = seen(".a.a.ab.a.a.ab.a.a.ab")
    assert found.boundary == 1
    assert found.samples_per_step == 96


def test_parameters_with_an_optimizer_each_are_told_in_few_words():
    """As where each steps in the backward pass: the line named every one of them, twice."""
    each = [OptimizerEvent(optimizer=number, time_s=1.0) for number in range(60)]
    names = {number: "SGD" if number else "Adam" for number in range(60)}
    found = recognise(each * 3, names, ranks=1)
    assert str(found) == (
        "optimizers Adam and SGD: a step is 1 of Adam, 1 of each of 59 SGD, 1 step, "
        "batches not seen"
    )


def read_of_two(first: int, second: int) -> list[OptimizerEvent]:
    """Three steps, each of a batch of two data loaders."""
    fetches = tuple(Fetch(loader=at, size=size, count=1) for at, size in enumerate((first, second)))
    return [OptimizerEvent(optimizer=0, time_s=1.0, fetches=fetches)] * 3


def test_data_loaders_may_have_batches_of_their_own_sizes():
    """The story: with few labels and many pictures without, a script was said not to follow 64, and
    a step to have twice the larger batch."""
    found = recognise(read_of_two(64, 448), {0: "SGD"}, ranks=1)
    assert found is not None
    assert str(found) == "optimizer SGD, 1 step per 2 batches of 64 and 448"
    assert (found.whole_samples, found.samples_per_step) == (512, 512)
    check_batch(found, 64)
    with pytest.raises(ScriptRefusedError, match="reads batches of 64 and 448: it does not follow"):
        check_batch(found, 96)


def test_small_last_batch_of_an_epoch_is_not_that_of_another_data_loader():
    whole = OptimizerEvent(optimizer=0, time_s=1.0, fetches=(Fetch(loader=1, size=32, count=2),))
    found = recognise([*read_of_two(5, 32)[1:], whole], {0: "SGD"}, ranks=1)
    assert found is not None
    assert (found.batch_size, found.whole_samples) == (32, 64)


def test_batches_that_one_rank_reads_for_all_count_once():
    """As Accelerate reads an iterable data set: with two ranks a step had twice its samples."""
    found = recognise(events("..a..a..a"), {0: "SGD"}, ranks=2, readers=1)
    assert found is not None
    assert str(found) == "optimizer SGD, 1 step per 2 batches of 32, read by 1 of 2 ranks"
    assert (found.whole_samples, found.samples_per_step) == (64, 64)


def test_optimizer_that_has_not_stepped_yet_is_waited_for_up_to_a_number_of_steps():
    """A critic was taken for the whole training, and its generator for another one."""
    assert recognise(events("." + "a" * 6), {0: "SGD"}, ranks=1, idle=1) is None
    assert recognise(events(".aaaaab" * 2), {0: "SGD", 1: "SGD"}, ranks=1, idle=1) is None
    found = recognise(events(".aaaaab" * 3), {0: "SGD", 1: "SGD"}, ranks=1, idle=1)
    assert found is not None
    assert found.boundary == 1
    assert recognise(events(".a" * 12), {0: "SGD"}, ranks=1, idle=1) is not None


def test_more_steps_are_needed_until_a_pattern_shows():
    assert recognise(events(".a.a"), {0: "SGD"}, ranks=1) is None
    assert recognise(events(".aaab.a"), {0: "SGD", 1: "Adam"}, ranks=1) is None


def test_optimizers_without_a_pattern_are_refused():
    drawing = "".join("ab"[n * n % 7 % 2] + "ab"[(n // 5) % 2] for n in range(MOST_EVENTS))
    assert find_round([e.optimizer for e in events(drawing)][:-1]) is None
    with pytest.raises(ScriptRefusedError, match="without a pattern"):
        recognise(events(drawing)[:-1] * 2, {0: "SGD", 1: "Adam"}, ranks=1)


def test_optimizers_that_both_step_several_times_are_refused():
    with pytest.raises(ScriptRefusedError, match="2 of SGD, 2 of Adam in a round"):
        seen("aabb" * 3)


@pytest.mark.parametrize(
    ("drawing", "ranks", "batch"),
    [
        (".a.a.a", 1, 32),
        (".a.a.a", 2, 64),
        ("..a..a..a", 1, 64),
        ("..a..a..a", 2, 128),
    ],
)
def test_batch_may_be_that_of_a_process_or_of_all(drawing, ranks, batch):
    check_batch(seen(drawing, ranks), batch)


def test_another_batch_is_refused():
    with pytest.raises(ScriptRefusedError, match="batch=48 and the script reads batches of 32"):
        check_batch(seen(".a.a.a"), 48)
