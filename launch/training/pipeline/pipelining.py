"""Micro-batches that follow one another through the stages, by torch.distributed.pipelining.

The one module that imports it. It is given the shapes: by default it runs a step to find them, and
sends them as pickles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from launch.training.connections import translate_lost_workers
from launch.training.pipeline.deferred_weight_gradients import DeferredWeightGradients
from launch.training.pipeline.layers import ActivationSpec

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class StageModule(nn.Module):
    """The layers of one stage, between received and sent tensors.

    Args:
        layers: Of this stage.
        incoming: Values from the stage before, ``None`` for the first stage.
        outgoing: Values to the next stage, ``None`` for the last one.
        precision: Makes the context in which they run.
        loss: Of output and target.

    Attributes:
        inputs: Each micro-batch of the current step, on the first stage.
        targets: Likewise, on the last one.
    """

    def __init__(
        self,
        layers: nn.Sequential,
        incoming: ActivationSpec | None,
        outgoing: ActivationSpec | None,
        precision: Callable[[], torch.autocast],
        loss: Callable[[Any, Any], Tensor],
    ) -> None:
        super().__init__()
        self._layers = layers
        self._deferred = DeferredWeightGradients(layers)
        self.incoming = incoming
        self.outgoing = outgoing
        self._precision = precision
        self._loss = loss
        self._output: Any = None
        self.inputs: Sequence[Any] = ()
        self.targets: Sequence[Any] = ()

    def forward(self, *wired: Tensor) -> tuple[Tensor, ...]:
        """Run the layers on received tensors, or on the input of that number.

        The last stage stores the output for `loss`.
        """
        value = self.incoming.unwire(wired) if self.incoming else self.inputs[int(wired[0])]
        with self._precision():
            value = self._deferred(value)
        if self.outgoing:
            return self.outgoing.wire(value)
        self._output = value
        return ()

    def finish(self) -> None:
        """Complete the gradients when every micro-batch has gone back."""
        self._deferred.finish()

    def loss(self, number: Tensor) -> Tensor:
        """Compute the loss of the last forward pass's output and the target of that number."""
        output, self._output = self._output, None
        with self._precision():
            return self._loss(output, self.targets[int(number)])


class MicroBatchPipeline:
    """One stage of a pipeline for one number of micro-batches of one size.

    Collective: every stage of ``group`` makes it with the same numbers, and calls `run` together.

    Args:
        module: This stage.
        stage: Its number.
        group: The stages, in their order.
        device: Of this stage.
        micro_batches: Their number.
        schedule: ``gpipe`` or ``1f1b``.
    """

    def __init__(
        self,
        module: StageModule,
        *,
        stage: int,
        group: ProcessGroup,
        device: torch.device,
        micro_batches: int,
        schedule: str,
    ) -> None:
        self._module = module
        # torch cuts its inputs into micro-batches, which have to be tensors for that: so it is
        # given the numbers of the micro-batches.
        self._numbers = torch.arange(micro_batches)
        self._is_first, self._is_last = stage == 0, stage == group.size() - 1
        kind = SCHEDULES[schedule] if micro_batches >= group.size() else ScheduleGPipe
        self._schedule = kind(
            PipelineStage(
                module,
                stage,
                group.size(),
                device,
                input_args=_metas(module.incoming),
                output_args=_metas(module.outgoing),
                group=group,
            ),
            n_microbatches=micro_batches,
            loss_fn=lambda _, number: module.loss(number),
            scale_grads=False,
        )

    def run(self, inputs: Sequence[Any], targets: Sequence[Any]) -> float:
        """Send the micro-batches forward and backward.

        Args:
            inputs: Of each micro-batch; empty on all stages but the first.
            targets: Likewise, on all but the last.

        Returns:
            The sum of all losses on the last stage, 0 elsewhere.

        Raises:
            LostWorkerError: The worker of another stage is gone.
        """
        self._module.inputs, self._module.targets = inputs, targets
        losses: list[Tensor] = []
        try:
            with translate_lost_workers():
                self._schedule.step(
                    *((self._numbers,) if self._is_first else ()),
                    target=self._numbers if self._is_last else None,
                    losses=losses if self._is_last else None,
                    return_outputs=False,
                )
        except RuntimeError as error:
            # torch hides what a layer raised behind a text about its tensors.
            if error.__cause__ is not None and str(error).lstrip().startswith(_WRAPPED):
                raise error.__cause__ from None
            raise
        finally:
            self._module.inputs = self._module.targets = ()
        self._module.finish()
        return sum(loss.item() for loss in losses)


_WRAPPED = ("[Stage ", "Failed to run stage backward")


def _metas(spec: ActivationSpec | None) -> tuple[Tensor, ...]:
    """Return tensors without memory in the shape that is sent; a number where nothing is."""
    if spec is None:
        return (torch.empty(1, dtype=torch.int64, device="meta"),)
    return tuple(tensor.on_wire() for tensor in spec.tensors)
