"""LightningModules small enough to train in a blink, and such as are refused."""

from __future__ import annotations

import lightning
import torch
from tiny_cases import Pictures, Sentences
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, WeightedRandomSampler


class Net(lightning.LightningModule):
    """A classifier with its own loaders; one step at rate 1 moves it by exactly its gradient."""

    def __init__(self, lr: float = 1.0) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(216, 3)

    def forward(self, pictures):
        return self.head(self.body(pictures))

    def training_step(self, batch, batch_idx):
        pictures, target = batch
        loss = functional.cross_entropy(self(pictures), target)
        self.log("train_loss", loss)
        return {"loss": loss, "more": 1}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

    def train_dataloader(self):
        return DataLoader(Pictures(16), batch_size=8, shuffle=True)


class NamedLayer(Net):
    def __init__(self, lr: float = 1.0) -> None:
        super().__init__(lr)
        self.weight = nn.Linear(216, 3)

    def forward(self, pictures):
        return self.weight(self.body(pictures))


def padded(samples):
    return {"tokens": nn.utils.rnn.pad_sequence(list(samples), batch_first=True)}


class TextData(lightning.LightningDataModule):
    """Padded text; of the batches of 8 the last has 5."""

    def __init__(self, texts: int = 45) -> None:
        super().__init__()
        self.texts = texts

    def prepare_data(self):
        pass

    def setup(self, stage):
        assert stage == "fit"
        self.train = Sentences(self.texts)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, shuffle=True, collate_fn=padded)

    def val_dataloader(self):
        return [DataLoader(Sentences(10), batch_size=8, collate_fn=padded)]


class SameFormData(TextData):
    """As many samples of the same form."""


class Text(lightning.LightningModule):
    """A mean over tokens, with an AdamW of two groups and a schedule that changes at each step."""

    interval = "step"

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.layers = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 11))

    def training_step(self, batch):
        tokens = batch["tokens"]
        output = self.layers(self.embedding(tokens))
        return functional.cross_entropy(
            output.flatten(0, 1), (tokens * 7 % 11).flatten(), ignore_index=0
        )

    def weight(self, batch):
        return (batch["tokens"] != 0).sum()

    def configure_optimizers(self):
        groups = [
            {"params": self.embedding.parameters(), "weight_decay": 0.0, "lr": 0.01},
            {"params": self.layers.parameters(), "weight_decay": 0.1},
        ]
        optimizer = torch.optim.AdamW(groups, lr=0.02)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": self.interval},
        }


class TextGradient(Text):
    """The same, of which one step moves the weights by exactly their gradient."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


class TextByEpoch(Text):
    interval = "epoch"


class Manual(Net):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class TwoOptimizers(Net):
    def configure_optimizers(self):
        return [torch.optim.SGD(self.body.parameters()), torch.optim.SGD(self.head.parameters())]


class Plateau(Net):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)]


class AsksTrainer(Net):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx)["loss"] / self.trainer.max_epochs


class AsksTrainerForSteps(Net):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1 / self.trainer.estimated_stepping_batches)


class AsksForTheEpoch(Net):
    """Lightning itself answers 0, where there is no Trainer."""

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx)["loss"] * 0.5**self.current_epoch


class Plots(Net):
    """Does with some batches what it does not with the others."""

    plots = 0

    def training_step(self, batch, number):
        self.plots += number % 100 == 0
        return super().training_step(batch, None)


class Nested(Net):
    """With a LightningModule inside, which logs as well."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Net()

    def training_step(self, batch, batch_idx):
        return self.inner.training_step(batch, batch_idx)["loss"] / 2


class Split(Net):
    """Draws by itself which samples are for training."""

    def setup(self, stage):
        self.parts = torch.utils.data.random_split(Pictures(16), [12, 4])

    def train_dataloader(self):
        return DataLoader(self.parts[0], batch_size=4)

    def val_dataloader(self):
        return DataLoader(self.parts[1], batch_size=4)


class SplitData(TextData):
    def setup(self, stage):
        self.train, _ = torch.utils.data.random_split(Sentences(self.texts), [40, 5])


class Silent(Net):
    def training_step(self, batch, batch_idx):
        self.log("train_loss", 1.0)


class Hooked(Net):
    def on_before_optimizer_step(self, optimizer):
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)


class HookedData(TextData):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        return {"tokens": batch["tokens"].flip(1)}


def make_text(width: int = 16, limit: float = 0.5):
    text = Text(width)
    text.max_gradient_norm = limit
    return text


class Sampled(Net):
    def train_dataloader(self):
        sampler = WeightedRandomSampler([1.0, 2.0] * 8, 16)
        return DataLoader(Pictures(16), batch_size=8, sampler=sampler)


class OwnBatches(Net):
    def train_dataloader(self):
        return DataLoader(Pictures(16), batch_sampler=[[0, 2], [1, 3]])


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(3, 8, 8), 0)] * 16)


class Streamed(Net):
    def train_dataloader(self):
        return DataLoader(Stream(), batch_size=8)


class Unequal(Net):
    """Validation makes its batches in another way."""

    def val_dataloader(self):
        return DataLoader(Pictures(16), batch_size=8, collate_fn=padded)


class NoLoader(Net):
    train_dataloader = lightning.LightningModule.train_dataloader


made = Net()
