"""Where a model is cut into stages. Pictures: a number is a layer's time, a bar a cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from launch.errors import InvalidPlanError
from launch.training.pipeline.cut import (
    LayerCost,
    check_cut,
    find_cut,
    find_slowness,
    parse_cut,
    published_cut,
    stage_bounds,
    stage_times_s,
)


def costs(text: str) -> list[LayerCost]:
    """Read layers: a time, ``+`` where it may not be cut behind, ``f`` where nothing is trained."""
    return [
        LayerCost(
            time_s=float(word.rstrip("+f")),
            output_bytes=1,
            is_trained="f" not in word,
            may_end_stage="+" not in word,
        )
        for word in text.split()
    ]


def draw(text: str, cut: tuple[int, ...]) -> str:
    words = text.split()
    return " | ".join(" ".join(words[a:b]) for a, b in stage_bounds(cut, len(words)))


@pytest.mark.parametrize(
    ("picture", "stages"),
    [
        ("1 1 | 1 1", 2),
        ("4 | 1 1 1 1", 2),
        ("1 1 1 1 | 4", 2),
        ("1 2 | 3 | 2 1", 3),
        ("3 | 2 1 | 1 1 1", 3),
        ("1 | 1 | 1 | 1", 4),
        # The best of two halves, each cut again, would be 5 5 | 5, 1 1 1 1 | 5.
        ("5 | 5 | 5 1 1 | 1 1 5", 4),
        # Layers that share a weight stay together, and so does what is between them.
        ("2+ 2+ 2 | 1 1", 2),
        # What is frozen cannot be a stage of its own.
        ("3f 1 | 2 2", 2),
    ],
)
def test_the_slowest_stage_is_as_quick_as_can_be(picture, stages):
    layers = picture.replace("| ", "")
    assert draw(layers, find_cut(costs(layers), stages)) == picture


@pytest.mark.parametrize(
    ("picture", "slowness"),
    [("1 1 1 | 1", (1.0, 3.0)), ("1 | 1 1 1", (3.0, 1.0)), ("1 1 | 1 1", (2.0, 2.0))],
)
def test_a_slow_device_gets_fewer_layers(picture, slowness):
    """The story: of two GPUs, one three times as fast, each had half of the work."""
    layers = picture.replace("| ", "")
    cut = find_cut(costs(layers), 2, slowness)
    assert draw(layers, cut) == picture
    parts = picture.split("|")
    times_s = [factor * len(part.split()) for part, factor in zip(parts, slowness, strict=True)]
    assert stage_times_s(costs(layers), cut, slowness) == times_s


@pytest.mark.parametrize(
    ("times_s", "slowness"),
    [
        ((1.0, 3.0), (0.5, 1.5)),
        ((1.0, 1.0, 3.0, 1.0), (2.0, 2 / 3)),  # two replicas
        ((1.0, 1.09, 1.05, 1.0), (1.0, 1.0)),
    ],
)
def test_a_stage_is_as_slow_as_its_slowest_device(times_s, slowness):
    assert find_slowness(times_s, 2) == pytest.approx(list(slowness))


def test_no_cut_of_many_random_models_is_better():
    random = Random(0)
    for _ in range(200):
        layers = costs(" ".join(str(random.randint(1, 30)) for _ in range(random.randint(3, 9))))
        stages = random.randint(2, 3)
        every = combinations(range(1, len(layers)), stages - 1)
        best_s = min(max(stage_times_s(layers, cut)) for cut in every)
        assert max(stage_times_s(layers, find_cut(layers, stages))) <= 1.02 * best_s


def test_the_fewest_bytes_decide_where_times_tie_within_their_noise():
    def cut(times: str) -> tuple[int, ...]:
        sizes = (100, 10, 5, 100)
        layers = zip(costs(times), sizes, strict=True)
        return find_cut([replace(cost, output_bytes=size) for cost, size in layers], 2)

    assert cut("100 1 1 100") == (3,)
    assert cut("100 5 1 94") == (1,)


@pytest.mark.parametrize(
    ("layers", "stages", "places"), [("1 1", 3, 1), ("1+ 1+ 1", 2, 0), ("1 1f", 2, 1)]
)
def test_a_model_that_cannot_be_cut_so_often_is_refused(layers, stages, places):
    with pytest.raises(InvalidPlanError, match=f"stages={stages} and {places} places .*: use"):
        find_cut(costs(layers), stages)


@pytest.mark.parametrize(("convolutions", "after"), [(5, 4), (13, 8)])
def test_the_paper_cuts_after_the_fourth_and_the_eighth_convolution(convolutions, after):
    layer, other = costs("1 1")
    layers = [replace(layer, is_convolution=True), other] * convolutions + [other] * 3
    (first,) = published_cut(layers, 2)
    assert sum(cost.is_convolution for cost in layers[:first]) == after
    assert layers[first - 1].is_convolution


@pytest.mark.parametrize(("convolutions", "stages"), [(4, 2), (5, 3)])
def test_the_paper_has_cut_nothing_else(convolutions, stages):
    layers = [replace(cost, is_convolution=True) for cost in costs("1 " * convolutions)]
    with pytest.raises(InvalidPlanError, match=f"stages={stages} and convolutions={convolutions}"):
        published_cut(layers, stages)


def test_a_cut_is_read_as_the_first_layers_of_the_later_stages():
    assert parse_cut("3,6") == (3, 6)


@pytest.mark.parametrize("text", ["", "a", "3,", "-1", "0", "6,3", "3,3", "middle"])
def test_what_is_no_cut_is_refused(text):
    with pytest.raises(InvalidPlanError, match=r"^cut=.*: use "):
        parse_cut(text)


@pytest.mark.parametrize(
    ("layers", "cut", "reason"),
    [
        ("1 1 1", (1, 2), "cut=1,2 and stages=2: name 1"),
        ("1 1 1", (3,), "cut=3 and layers=3"),
        ("1+ 1 1", (1,), "cut=1: no stage may begin at layer 1, .*: choose of 2"),
        ("1f 1 1", (1,), "cut=1: each stage must have a parameter to train"),
    ],
)
def test_a_cut_that_cannot_be_made_is_refused(layers, cut, reason):
    with pytest.raises(InvalidPlanError, match=reason):
        check_cut(cut, costs(layers), 2)
