"""A transformer that predicts the next token of generated sequences."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from torch.utils.data import Dataset


class Sequences(Dataset[tuple[Tensor, Tensor]]):
    """Sequences that count up, each from a start and by a step of its own.

    Args:
        samples: How many there are.
        length: Tokens of an input; the target is one token later.
        words: Different tokens.
    """

    def __init__(self, samples: int, length: int, words: int) -> None:
        self._samples, self._length, self._words = samples, length, words

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        tokens = (index * 7919 + (1 + index % 13) * torch.arange(self._length + 1)) % self._words
        return tokens[:-1], tokens[1:]


class Decoder(nn.Module):
    """Layers of causal self-attention between an embedding and a projection to the tokens.

    Args:
        width: Of a token's vector.
        layers: Of attention.
        length: Tokens of an input.
        words: Different tokens.
    """

    def __init__(self, width: int, layers: int, length: int, words: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.words = nn.Linear(width, words)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Give the scores of each next token: samples x length x words."""
        found = self.layers(self.tokens(tokens) + self.places, mask=self.mask, is_causal=True)
        scores: Tensor = self.words(found)
        return scores


class Transformer:
    """184 million parameters, trained by AdamW."""

    name = "transformer"
    default_batch = 16
    width = 1024
    depth = 12
    length = 512
    words = 16384
    samples = 2048  # so that fp32, without tensor cores, ends within its part

    def model(self) -> nn.Module:
        return Decoder(self.width, self.depth, self.length, self.words)

    def dataset(self, data: Path | None, *, train: bool) -> Sequences:
        return Sequences(self.samples if train else self.samples // 16, self.length, self.words)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output.flatten(0, 1), target.flatten())

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> AdamW:
        return AdamW(parameters, lr=3e-4)


class Small(Transformer):
    """The same, smaller, for machines without a GPU."""

    name = "transformer-small"
    default_batch = 8
    width = 128
    depth = 2
    length = 64
    words = 256
    samples = 256
