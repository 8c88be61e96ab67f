"""PyTorch Lightning: its Trainer, in one process or in several with DDP.

What a Trainer does beside training by default (progress bar, log files, a checkpoint per epoch) is
switched off, which can only make it faster.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from planner.peers.scripts._task import PeerTask, StepClock, make_parser, parse

_ENDLESS = -1


class TaskModule(LightningModule):
    """The model of the task with its training step."""

    def __init__(self, task: PeerTask) -> None:
        super().__init__()
        self._task = task
        self.model = task.make_model()

    def training_step(self, batch: Any, _index: int) -> Tensor:
        """Give the loss of a batch."""
        return self._task.loss(self.model, batch)

    def configure_optimizers(self) -> Optimizer:
        """Make the optimizer."""
        return self._task.case.optimizer(self.model.parameters())


class ClockCallback(Callback):
    """Times the steps."""

    def __init__(self, task: PeerTask) -> None:
        self._task = task
        self._clock: StepClock | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, when everything is set up."""
        self._clock = StepClock(
            self._task,
            processes=trainer.world_size,
            is_first=trainer.is_global_zero,
            waits_for=pl_module if trainer.world_size > 1 else None,
        )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note that the batch is there."""
        if self._clock is not None:
            self._clock.note_loaded()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the end of the backward pass."""
        if self._clock is not None:
            self._clock.note_backward()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the end of the step."""
        if self._clock is not None:
            self._clock.note_step(outputs["loss"], self._task.case.size(batch))


def main() -> None:
    """Train."""
    parser = make_parser()
    parser.add_argument("--processes", type=int, required=True, help="on each host")
    parser.add_argument("--nodes", type=int, required=True)
    arguments = parse(parser)
    task = PeerTask(arguments)
    is_alone = arguments["processes"] * arguments["nodes"] == 1
    trainer = Trainer(
        accelerator="cpu",
        devices=arguments["processes"],
        num_nodes=arguments["nodes"],
        strategy="auto" if is_alone else "ddp",
        max_epochs=_ENDLESS,
        callbacks=[ClockCallback(task)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(TaskModule(task), task.make_loader(task.make_dataset()))


if __name__ == "__main__":
    main()
