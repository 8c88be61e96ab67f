"""What a final leaves out first where time is short."""

from __future__ import annotations

from launch.plan import Plan
from planner.trials.result import Role
from planner.tuning.final import _finals


def test_what_is_only_compared_with_is_left_out_before_a_finalist():
    """The story: the second finalist had to go for a small batch of the first one.

    The plan with the own batch goes last, after the second start.
    """
    roles = (Role.OWN_BATCH, Role.BASELINE, Role.SHARE)
    rare = [(Plan(strategy="sequential", node_batch=n), role) for n, role in enumerate(roles, 1)]
    finals = _finals([range(2, 0, -1)], rare, needed=0, preferred=1)
    tried = [(starts, len(compared), finalists) for starts, compared, finalists in finals]
    twice = [(2, 3, 2), (2, 2, 2), (2, 1, 2), (2, 3, 1), (2, 2, 1), (2, 1, 1)]
    once = [(1, compared, finalists) for _, compared, finalists in twice]
    assert tried == [*twice, *once, (2, 0, 2), (2, 0, 1), (1, 0, 2), (1, 0, 1)]
