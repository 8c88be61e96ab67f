"""What node 0 sends of a model to the others, and what each node keeps."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from torch import nn

from launch.gradient_sync.worker_sync.model_sync import ModelSync


class Link:
    """Carries what node 0 sends to the node behind it, where the models of both differ."""

    def __init__(self) -> None:
        self._sent = deque()

    def is_equal(self, digest):
        return False

    def broadcast_array(self, content, *, is_source):
        if is_source:
            self._sent.append(content.copy())
        else:
            content[:] = self._sent.popleft()


@pytest.mark.parametrize("grown", [0, 1])
def test_buffer_of_another_size_than_at_first_is_left_to_each_node(grown):
    """The story: each node took part in a broadcast of as many bytes as its own cache had."""
    link, models = Link(), [nn.Module(), nn.Module()]
    syncs = [ModelSync(link, is_source=node == 0, local_rank=0) for node in range(2)]
    for node, model in enumerate(models):
        model.register_buffer("cache", torch.ones(2))
        model.register_buffer("mean", torch.full((3,), float(node)))
    for means in (0.0, 2.0):
        models[0].mean = torch.full((3,), means)
        for sync, model in zip(syncs, models, strict=True):
            sync.sync_model(model)
        assert models[1].mean.tolist() == [means] * 3
        assert [model.cache.tolist() for model in models] == [
            [1.0] * model.cache.numel() for model in models
        ]
        models[grown].cache = torch.ones(5)
