"""Replicas on threads of one process share the use case's code too, which knows of no threads."""

from __future__ import annotations

import tiny_cases
from one_process import TOLERANCE, largest_error, trained_alone

from launch.plan import Plan

PLAN = Plan(strategy="threads", node_batch=8, replicas=2, threads_per_process=2)


def test_optimizers_of_replicas_are_made_one_after_the_other(training):
    """The story: each was made on its replica's thread, all at once. A LightningModule lends its
    place for parameters to that, so an optimizer could be given those of another replica."""
    alone = trained_alone(tiny_cases.Sgd(), node_batch=8)
    assert largest_error(training.run(PLAN, "MadeInTurn"), alone) < TOLERANCE
