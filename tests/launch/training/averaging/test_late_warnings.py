"""What a user hears where updates are not left to the next step."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn

from launch.local_group.group import LocalThreadGroup
from launch.training.averaging.averaging import GradientAverager
from tests.launch.training.averaging.late_training import QuietReducer


def test_the_reason_is_that_of_a_worker_whose_wish_all_know_of():
    """The story: the first worker with a wish was named, also where that was for a step that had
    not begun. Its reason need not have arrived by then, and to have none was an error."""

    def work(member: LocalThreadGroup) -> str | None:
        model = nn.Linear(2, 1)
        reducer: Any = QuietReducer()
        averager = GradientAverager(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            member,
            reducer=reducer,
            may_defer_update=True,
        )
        averager.start_step(0)
        if member.local_rank == 1:
            with averager.track_uses():
                model.bias.data_ptr()
        averager.step(0.0)
        if member.local_rank == 0:  # in the next step, which is not agreed on
            with averager.track_uses():
                model.weight.data_ptr()
        return averager.take_warning()

    with ThreadPoolExecutor(2) as pool:
        said, nothing = pool.map(work, LocalThreadGroup.create([(), ()]))
    assert said is not None
    assert "gives the memory of parameter 'bias'" in said
    assert nothing is None
