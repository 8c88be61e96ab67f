"""Passes recorded once as a CUDA graph and replayed, without Python or launches between.

Small operators on a fast GPU end before the next one is launched; a graph is launched as a whole.

Source: PyTorch's notes on CUDA semantics, "Whole-network capture",
https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from launch.data.batch import Batch, leaves, map_tensors
from launch.data.split import BatchSize
from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.training.averaging.loss_sum import LossSum
from launch.training.loss import read_async
from launch.training.replica import Replica
from launch.use_cases._base import UseCase

_WARMUP_PASSES = 3


class CudaGraphReplica(Replica):
    """A replica that replays full batches; the rest of an epoch runs operator by operator."""

    _recorded: CapturedPass | None = None

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module, device: str) -> None:
        super().__init__(plan, case, model, device)
        if self._has_weights:
            raise InvalidPlanError(
                "cuda_graph=True and a use case with a weight(batch), which each step reads from "
                "the GPU: use cuda_graph=False"
            )

    def gradients(self, share: Batch | None, size: BatchSize) -> LossSum:
        if share is None or not size.is_full:
            return super().gradients(share, size)
        share = self.place(share)
        if self._recorded is None or not self._recorded.fits(share):
            self._recorded = CapturedPass(
                lambda recorded: self._sum_gradients(recorded, size)[0], self.model, share
            )
        return LossSum(read_async(self._recorded.replay(share)))

    def passes_to_final(self, share: Batch | None) -> None:
        return None  # no hook runs in a replay


class CapturedPass:
    """Forward and backward pass over batches of one shape.

    Args:
        compute: Adds the gradients of a batch to the model's, and returns the loss.
        model: The model.
        share: A batch on the GPU, of the shape of all batches.

    Raises:
        InvalidPlanError: The batch holds more than tensors, or the pass does what cannot be
            recorded, such as reading a value, or what no replay repeats.
    """

    def __init__(self, compute: Callable[[Batch], Tensor], model: nn.Module, share: Batch) -> None:
        if others := {
            type(leaf).__name__ for leaf in leaves(share) if not isinstance(leaf, Tensor)
        }:
            raise InvalidPlanError(
                f"cuda_graph=True and batches that hold {', '.join(sorted(others))}, which a "
                "replay would never change: use cuda_graph=False"
            )
        self._share: Batch = map_tensors(share, torch.clone)
        self._compute = compute
        self._model = model
        self._warm_up()
        self._forget_gradients()  # recorded from none, each replay writes and does not add
        self._graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may use CUDA meanwhile: one copies batches into pinned memory.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._loss = compute(self._share)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if isinstance(error.__context__, torch.OutOfMemoryError):  # the record's end failed too
                raise error.__context__ from None
            reason = " ".join(str(error).split())[:200]
            raise InvalidPlanError(
                f"cuda_graph=True and a step that CUDA cannot record ({reason}): "
                "use cuda_graph=False"
            ) from error
        self._gradients = [(p, p.grad) for p in model.parameters() if p.grad is not None]

    def fits(self, share: Batch) -> bool:
        """Whether a batch has the recorded shape."""
        shapes = [leaf.shape for leaf in leaves(self._share)]
        return [leaf.shape for leaf in leaves(share)] == shapes

    def replay(self, share: Batch) -> Tensor:
        """Set the model's gradients to those of a batch; return the loss.

        The loss is overwritten by the next replay.
        """
        for place, tensor in zip(leaves(self._share), leaves(share), strict=True):
            place.copy_(tensor, non_blocking=True)
        self._graph.replay()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        return self._loss

    def _warm_up(self) -> None:
        """Run passes so that libraries choose and load their kernels, which cannot be recorded.

        Buffers, such as running statistics, and generators are restored afterwards: the first
        replay draws the random numbers of its step.
        """
        buffers = dict(self._model.named_buffers())
        values = {name: buffer.clone() for name, buffer in buffers.items()}
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        devices = [torch.cuda.current_device()]
        with torch.random.fork_rng(devices), torch.cuda.stream(stream):
            for _ in range(_WARMUP_PASSES):
                self._forget_gradients()
                self._compute(self._share)
        torch.cuda.current_stream().wait_stream(stream)
        self._check_buffers(buffers)
        with torch.no_grad():
            for name, buffer in buffers.items():
                buffer.copy_(values[name])

    def _check_buffers(self, before: dict[str, Tensor]) -> None:
        """Check that a step changes buffers in place: a replay reads where the recording read."""
        after = dict(self._model.named_buffers())
        for name in before | after:
            if before.get(name) is not after.get(name):
                raise InvalidPlanError(
                    "cuda_graph=True and a step that puts another tensor in the place of buffer "
                    f"{name!r}, which a replay would not do: use cuda_graph=False"
                )

    def _forget_gradients(self) -> None:
        for parameter in self._model.parameters():  # zero_grad may be the user's
            parameter.grad = None
