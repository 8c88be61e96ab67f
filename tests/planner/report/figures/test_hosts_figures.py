"""Figures of hosts together: what they hold against predictions."""

from __future__ import annotations

from dataclasses import replace
from math import nan

from training_samples import EPOCH, TRAINING

from planner.report.figures.hosts_figures import launches_figure


def test_launch_that_was_only_validated_is_not_held_against_its_prediction():
    """The story: it was drawn as one that had trained no sample a second, 100 % too slow."""
    validated = replace(EPOCH, samples=0, train_loss=nan, throughput_samples_per_s=0.0)
    assert launches_figure([replace(TRAINING, epochs_done=(validated,))]) is None
    figure = launches_figure([replace(TRAINING, epochs_done=(EPOCH, replace(validated, epoch=2)))])
    assert [row[3] for row in figure.rows] == ["20.0"]
