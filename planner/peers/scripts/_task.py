"""What all training scripts have in common: options, use case, batches, and the clock of steps.

Everything else in a script is what a user of its library writes.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from launch.data.batch import map_tensors
from launch.reports import Report
from launch.training.averaging.aliases import order_pictures
from launch.use_cases import resolve
from launch.use_cases._base import UseCase, is_own
from planner.peers._reports import PeerBegun, PeerStepDone


def make_parser() -> argparse.ArgumentParser:
    """Make a parser of the options that all scripts have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--use-case", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, required=True, help="samples of one process")
    parser.add_argument("--loader-workers", type=int, default=2, help="of one process")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--reports", type=Path, required=True, help="folder of the pipe for them")
    return parser


class PeerTask:
    """The use case that a script trains, by what `make_parser` reads."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.case: UseCase = resolve(arguments["use_case"]).load(arguments["data"])
        self.batch_size: int = arguments["batch_size"]
        self.reports: Path = arguments["reports"]
        self._loader_workers: int = arguments["loader_workers"]
        self._data: Path | None = arguments["data"]
        self._is_channels_last: bool = arguments["channels_last"]
        self._has_step = is_own(self.case, "step")
        torch.manual_seed(arguments["seed"])

    def make_model(self) -> nn.Module:
        """Make the model; one that gives its loss, where the use case has a step of its own."""
        model = self.case.model()
        if self._is_channels_last:
            order_pictures(model)
        return StepModule(self.case, model) if self._has_step else model

    def loss(self, model: Callable[[Any], Any], batch: Any) -> Tensor:
        """Compute the mean loss over a batch with what `make_model` gave, wrapped or not."""
        if self._has_step:
            loss: Tensor = model(map_tensors(batch, self._place))
            return loss
        inputs, targets = batch
        return self.case.loss(model(self._place(inputs)), targets)

    def make_dataset(self) -> Dataset[Any]:
        """Open the training samples."""
        return self.case.dataset(self._data, train=True)

    def make_loader(
        self, dataset: Dataset[Any], sampler: Sampler[int] | None = None
    ) -> DataLoader[Any]:
        """Make a loader as PyTorch's guides have it."""
        return DataLoader(
            dataset,
            batch_size=self.batch_size,
            shuffle=sampler is None,
            sampler=sampler,
            num_workers=self._loader_workers,
            collate_fn=self.collate,
        )

    @property
    def collate(self) -> Callable[[list[Any]], Any]:
        """What makes a batch of samples."""
        return self.case.collate if is_own(self.case, "collate") else default_collate

    def _place(self, inputs: Any) -> Any:
        """Give inputs the memory format of the model, where that is another one."""
        if self._is_channels_last and isinstance(inputs, Tensor) and inputs.dim() == 4:
            return inputs.to(memory_format=torch.channels_last)
        return inputs


class StepModule(nn.Module):
    """A use case's own step as a model, because libraries wrap what is called."""

    def __init__(self, case: UseCase, model: nn.Module) -> None:
        super().__init__()
        self._case = case
        self.model = model

    def forward(self, batch: Any) -> Tensor:
        """Give the mean loss over a batch."""
        return self._case.step(self.model, batch)


class StepClock:
    """Times the steps of one process, and reports them if it is the first one.

    Args:
        task: What is trained.
        processes: That train together, on all hosts.
        is_first: Whether this is the first of them.
        waits_for: Model whose backward pass ends when the gradients of all processes are summed.
    """

    def __init__(
        self,
        task: PeerTask,
        *,
        processes: int,
        is_first: bool,
        waits_for: nn.Module | None = None,
    ) -> None:
        self._processes = processes
        self._pipe: int | None = None
        self._gradient_at_s: float | None = None
        self._backward_s: float | None = None
        self._exchange_s: float | None = None
        self._loading_s: float | None = None
        for parameter in () if waits_for is None else waits_for.parameters():
            parameter.register_post_accumulate_grad_hook(self._note_gradient)
        if is_first:
            self._pipe = os.open(task.reports / platform.node(), os.O_WRONLY)
        self._send(PeerBegun(processes=processes, threads=torch.get_num_threads()))
        self._ended_s = time.perf_counter()

    def epochs(self) -> Iterator[int]:
        """Count epochs without end: the process that started this one ends it."""
        return count()

    def timed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Give batches, and time the waiting for each."""
        for batch in batches:
            self.note_loaded()
            yield batch

    def note_loaded(self) -> None:
        """Note that the batch of this step is there."""
        self._loading_s = time.perf_counter() - self._ended_s

    def note_backward(self) -> None:
        """Note that the backward pass is done, with the exchange that is part of it."""
        self._backward_s = time.perf_counter()
        if self._gradient_at_s is not None:
            self._exchange_s = max(0.0, self._backward_s - self._gradient_at_s)

    def note_exchange(self, time_s: float) -> None:
        """Note for how long the gradients were exchanged, where that is no part of the pass."""
        if self._backward_s is not None:
            self._backward_s += time_s  # it came after the pass, and is no update
        self._exchange_s = time_s

    def note_loading(self, time_s: float) -> None:
        """Note for how long a batch was loaded elsewhere."""
        self._loading_s = time_s

    def note_step(self, loss: Any, samples: int, *, all_samples: int | None = None) -> None:
        """Note the end of a step, and report it: loss and samples are those of this process.

        ``all_samples`` are of all of them, where that is not as many for each.
        """
        value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        now = time.perf_counter()
        self._send(
            PeerStepDone(
                time_s=now - self._ended_s,
                samples=all_samples or samples * self._processes,
                loss=value,
                loading_s=self._loading_s,
                exchange_s=self._exchange_s,
                update_s=None if self._backward_s is None else now - self._backward_s,
            )
        )
        self._ended_s = now
        self._loading_s = self._backward_s = self._exchange_s = None

    def _note_gradient(self, _: Tensor) -> None:
        self._gradient_at_s = time.perf_counter()

    def _send(self, report: Report) -> None:
        if self._pipe is not None:
            os.write(self._pipe, report.encode())


def parse(parser: argparse.ArgumentParser | None = None) -> dict[str, Any]:
    """Read the options of this process."""
    return vars((parser or make_parser()).parse_args())
