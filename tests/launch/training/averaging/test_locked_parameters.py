"""What a user hears where parameters cannot be locked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.gradient_sync.node_channel.shared_state import SharedStepState
from launch.gradient_sync.worker_sync.reducer import CrossNodeReducer
from launch.local_group.group import LocalThreadGroup
from launch.training.averaging.averaging import GradientAverager


@pytest.mark.parametrize("has_locks", [True, False])
def test_torch_without_what_locks_are_made_of_is_told_of_once(has_locks, monkeypatch):
    """The story: updates were made at the end of each step on several hosts, without a word."""
    if not has_locks:
        monkeypatch.delattr(torch._C, "_set_storage_data_ptr_access_error_msg")
    model, (member,) = nn.Linear(2, 1), LocalThreadGroup.create([()])
    descriptors = SharedDescriptors.create()
    state = SharedStepState(np.zeros(SharedStepState.num_bytes(1, 2), np.uint8), 1, 2)
    averager = GradientAverager(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        member,
        reducer=CrossNodeReducer(state, 0, descriptors, lambda _: 64, model),
        may_defer_update=True,
    )
    warnings = [averager.take_warning(), averager.take_warning()]
    descriptors.close()
    if has_locks:
        assert warnings == [None, None]
    else:
        assert "this PyTorch cannot lock parameters until their update" in warnings[0]
        assert warnings[1] is None
