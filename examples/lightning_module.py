"""A LightningModule with its data, and a script that trains it with Lightning's Trainer."""

from argparse import ArgumentParser
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self, batch_size: int = 32, workers: int = 0, lr: float = 1e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        inputs, targets = batch
        return nn.functional.cross_entropy(self(inputs), targets)

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        self.log("val_loss", self.training_step(batch, index))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(samples=2048, seed=0)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader(samples=256, seed=1)

    def _loader(self, samples: int, seed: int) -> DataLoader[Any]:
        inputs = torch.randn(samples, 64, generator=torch.Generator().manual_seed(seed))
        dataset = TensorDataset(inputs, inputs[:, :4].argmax(1))
        size, workers = self.hparams["batch_size"], self.hparams["workers"]
        return DataLoader(dataset, size, shuffle=seed == 0, num_workers=workers)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(accelerator="cpu", max_steps=args.steps, **silent)
    trainer.fit(Classifier(args.batch_size, args.workers))
    (validation,) = trainer.validate(trainer.model, verbose=False)
    print(f"step {trainer.global_step}: validation loss {validation['val_loss']:.4f}")


if __name__ == "__main__":
    main()
