"""Use case: ratings from embeddings of users and things, whose gradients are sparse."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset


class Ratings(Dataset[tuple[Tensor, Tensor]]):
    """Made-up ratings: pairs of a user and a thing, rated by tastes that nobody is told."""

    is_generated = True

    def __init__(self, count: int, users: int, things: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._pairs = torch.stack(
            [torch.randint(most, (count,), generator=generator) for most in (users, things)], 1
        )
        self._ratings = (self._pairs * torch.tensor([0.7, 1.3])).sin().sum(1)

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._pairs[index], self._ratings[index]


class Factors(nn.Module):
    def __init__(self, users: int, things: int, width: int) -> None:
        super().__init__()
        self.users = nn.Embedding(users, width, sparse=True)
        self.things = nn.Embedding(things, width, sparse=True)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, pairs: Tensor) -> Tensor:
        user, thing = self.users(pairs[:, 0]), self.things(pairs[:, 1])
        return self.head(torch.cat([user, thing], 1))[:, 0] + (user * thing).sum(1)


class Recommender:
    name, default_batch = "recommender", 256

    def __init__(self, users: int = 20_000, things: int = 5_000, width: int = 32) -> None:
        self.users, self.things, self.width = users, things, width

    def model(self) -> Factors:
        return Factors(self.users, self.things, self.width)

    def dataset(self, data: Path | None, *, train: bool) -> Ratings:
        count, seed = (50_000, 0) if train else (2_000, 1)
        return Ratings(count, self.users, self.things, seed)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.mse_loss(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)  # as Adagrad, it takes both kinds of gradients
