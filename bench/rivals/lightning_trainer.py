"""AlexNet by PyTorch Lightning: its Trainer, in one process or in several with DDP.

What a Trainer does beside training by default (progress bar, log files, a checkpoint per epoch) is
switched off, which can only make it faster.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from task import make_dataset, make_model, make_optimizer, memory_format, parse, report
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import DataLoader


class AlexNet(LightningModule):
    """The model with its training step."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__()
        self.model = make_model(arguments)
        self._memory_format = memory_format(arguments)

    def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
        """Give the loss of a batch."""
        inputs, targets = batch
        return cross_entropy(self.model(inputs.to(memory_format=self._memory_format)), targets)

    def configure_optimizers(self) -> SGD:
        """Make the optimizer."""
        return make_optimizer(self.model)


class Clock(Callback):
    """Times the epochs."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._started = 0.0
        self._loss = math.nan

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, before the loader starts its workers."""
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the loss."""
        self._loss = outputs["loss"]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop it, after the last step."""
        if trainer.is_global_zero:
            time_s = time.perf_counter() - self._started
            report(
                trainer.current_epoch,
                time_s,
                samples=self._samples,
                processes=trainer.world_size,
                loss=float(self._loss),
            )


def main() -> None:
    """Train."""
    arguments = parse()
    dataset = make_dataset(arguments)
    loader = DataLoader(
        dataset,
        batch_size=arguments.batch_size,
        shuffle=True,
        num_workers=arguments.loader_workers,
    )
    trainer = Trainer(
        accelerator="cpu",
        devices=arguments.processes,
        strategy="ddp" if arguments.processes > 1 else "auto",
        max_epochs=arguments.epochs,
        callbacks=[Clock(len(dataset))],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(AlexNet(arguments), loader)


if __name__ == "__main__":
    main()
