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
