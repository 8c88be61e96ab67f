"""Use case: a classifier of texts of different lengths, with embeddings and a GRU."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import Dataset

PADDING, TOKENS = 0, 1000


class Texts(Dataset[tuple[Tensor, int]]):
    """Made-up texts: rows of token numbers, whose class is the parity of their largest token."""

    is_generated = True

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(self._numbers[index])
        text = torch.randint(1, TOKENS, (4 + index % 29,), generator=generator)
        return text, int(text.max()) % 2


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 64, padding_idx=PADDING)
        self.recurrent, self.head = nn.GRU(64, 64, batch_first=True), nn.Linear(64, 2)

    def forward(self, ids: Tensor) -> Tensor:
        lengths = (ids != PADDING).sum(1).cpu()
        texts = pack_padded_sequence(self.embedding(ids), lengths, True, enforce_sorted=False)
        return self.head(self.recurrent(texts)[1][-1])


class TextClassifier:
    name = "text classifier"

    def model(self) -> Classifier:
        return Classifier()

    def dataset(self, data: object, *, train: bool) -> Texts:
        return Texts(range(4096) if train else range(4096, 4352))

    def collate(self, samples: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        texts, labels = zip(*samples, strict=True)
        return pad_sequence(list(texts), True, PADDING), torch.tensor(labels)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1e-3)
