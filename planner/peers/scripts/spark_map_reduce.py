"""Map and reduce on Spark: shares of a batch to gradients, gradients to their mean, once a step.

The driver has the optimizer and sends the parameters to all tasks of a step.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import RandomSampler

from planner.peers.scripts._spark_session import add_spark_options, open_session
from planner.peers.scripts._task import PeerTask, StepClock, make_parser, parse

_HERE: dict[str, Any] = {}
"""Model and data of a process of Spark, which many tasks use one after another."""


@dataclass(frozen=True, kw_only=True)
class ShareDone:
    """What one task gives back; two of them add up."""

    gradient: NDArray[np.float32]
    loss: float
    samples: int
    loading_s: float
    busy_s: float

    def __add__(self, other: ShareDone) -> ShareDone:
        return ShareDone(
            gradient=self.gradient + other.gradient,
            loss=self.loss + other.loss,
            samples=self.samples + other.samples,
            loading_s=max(self.loading_s, other.loading_s),
            busy_s=max(self.busy_s, other.busy_s),
        )


def join(tensors: Iterable[Tensor]) -> NDArray[np.float32]:
    """Join tensors to one vector, whatever their memory format."""
    # parameters_to_vector takes no channels_last.
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors]).numpy()


def split(vector: NDArray[np.float32], like: Iterable[Tensor]) -> Iterator[Tensor]:
    """Split a vector that `join` made into tensors of the shapes that they had."""
    shapes = [tensor.shape for tensor in like]
    parts = torch.split(torch.from_numpy(vector), [shape.numel() for shape in shapes])
    return (part.view(shape) for part, shape in zip(parts, shapes, strict=True))


def compute(arguments: dict[str, Any], parameters: Any, share: list[int]) -> ShareDone:
    """Compute the gradient of a share, in a process of Spark: the map."""
    began = time.perf_counter()
    if not _HERE:
        task = PeerTask(arguments)
        _HERE.update(task=task, model=task.make_model(), dataset=task.make_dataset())
    task, model, dataset = _HERE["task"], _HERE["model"], _HERE["dataset"]
    sent = split(parameters.value.copy(), model.parameters())
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), sent, strict=True):
            parameter.copy_(values)
    loading = time.perf_counter()
    batch = task.collate([dataset[index] for index in share])
    loaded = time.perf_counter()
    model.zero_grad()
    loss = task.loss(model, batch)
    loss.backward()
    gradient = join(
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in model.parameters()
    )
    count = len(share)
    return ShareDone(
        gradient=gradient * count,
        loss=loss.item() * count,
        samples=count,
        loading_s=loaded - loading,
        busy_s=time.perf_counter() - began,
    )


def global_batches(samples: int, size: int) -> Iterator[list[int]]:
    """Give the samples of each step, in a new order in each epoch."""
    while True:
        order = list(RandomSampler(range(samples)))
        yield from (order[start : start + size] for start in range(0, samples, size))


def main() -> None:
    """Train."""
    parser = make_parser()
    add_spark_options(parser)
    arguments = parse(parser)
    processes = arguments["processes"]
    task = PeerTask(arguments)
    model = task.make_model()
    optimizer = task.case.optimizer(model.parameters())
    samples = len(task.make_dataset())  # type: ignore[arg-type]
    with open_session(arguments) as session:
        context = session.sparkContext
        clock = StepClock(task, processes=processes, is_first=True)
        for batch in global_batches(samples, task.batch_size * processes):
            shares = [batch[number::processes] for number in range(processes)]
            began = time.perf_counter()
            parameters = context.broadcast(join(model.parameters()))
            total = (
                context.parallelize([share for share in shares if share], processes)
                .map(lambda share, sent=parameters: compute(arguments, sent, share))
                .reduce(lambda one, other: one + other)
            )
            parameters.destroy()
            exchange_s = max(0.0, time.perf_counter() - began - total.busy_s)
            mean = split(total.gradient / total.samples, model.parameters())
            for parameter, gradient in zip(model.parameters(), mean, strict=True):
                parameter.grad = gradient
            clock.note_loading(total.loading_s)
            clock.note_exchange(exchange_s)
            clock.note_backward()
            optimizer.step()
            count = total.samples
            clock.note_step(total.loss / count, len(shares[0]), all_samples=count)


if __name__ == "__main__":
    main()
