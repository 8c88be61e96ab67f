"""A small GPT on the characters of a text file, or of a made-up text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.optim import AdamW
from torch.utils.data import Dataset

from launch.errors import UseCaseError
from launch.use_cases._base import UseCase

_PADDING = 0
"""The byte that fills short pieces up; texts have none of it."""

_NUM_TOKENS = 256
_VALIDATION_SHARE = 0.1
_WORDS, _FOLLOWERS, _MADE_UP_WORDS = 400, 4, 200_000


class Pieces(Dataset[Tensor]):
    """Pieces of a text as the numbers of its bytes, of different lengths.

    A piece is a paragraph, or a part of one that is longer than the context.

    Attributes:
        is_generated: Whether the text is made up.
    """

    def __init__(self, text: bytes, longest: int, *, train: bool, is_generated: bool) -> None:
        self.is_generated = is_generated
        self._text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        cuts = _cut(text, longest)
        held_out = max(1, int(len(cuts) * _VALIDATION_SHARE))
        self._cuts = cuts[:-held_out] if train else cuts[-held_out:]

    def __len__(self) -> int:
        return len(self._cuts)

    def __getitem__(self, index: int) -> Tensor:
        low, high = self._cuts[index]
        return self._text[low:high].long()


class _Embedding(nn.Module):
    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(_NUM_TOKENS, width)
        self.place = nn.Parameter(torch.zeros(context, width))

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.token(tokens) + self.place[: tokens.size(1)]
        return embedded


class _AttentionBlock(nn.Module):
    """Attention to what came before, then two linear layers, each on what is normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        qkv = self.qkv(self.norm1(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        # Padding is at the end, where nothing before it looks: it needs no mask of its own.
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        changed: Tensor = hidden + self.mlp(self.norm2(hidden))
        return changed


class Transformer(UseCase):
    """Predicts each character of a text from those before it.

    Pieces of text differ in length and are padded; the loss is the mean over the characters of a
    batch that are no padding. Characters are the bytes of the file.

    Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.

    Args:
        lr: Learning rate of AdamW.
        layers: Blocks.
        width: Numbers for each character.
        heads: Of attention; they divide the width.
        context: Characters that a prediction may see.
    """

    name = "transformer"
    default_batch = 32

    def __init__(
        self,
        lr: float = 1e-3,
        layers: int = 4,
        width: int = 128,
        heads: int = 4,
        context: int = 128,
    ) -> None:
        if min(layers, width, heads, context) < 1 or width % heads:
            raise UseCaseError(
                f"layers={layers}, width={width}, heads={heads}, context={context}: use numbers of "
                "at least 1, and a width that the heads divide"
            )
        self._lr, self._layers, self._width = lr, layers, width
        self._heads, self._context = heads, context

    def model(self) -> nn.Sequential:
        model = nn.Sequential(
            _Embedding(self._context, self._width),
            *(_AttentionBlock(self._width, self._heads) for _ in range(self._layers)),
            nn.LayerNorm(self._width),
            nn.Linear(self._width, _NUM_TOKENS),
        )
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        return model

    def dataset(self, data: Path | None, *, train: bool) -> Pieces:
        text = make_up_text() if data is None else _read(data)
        pieces = Pieces(text, self._context + 1, train=train, is_generated=data is None)
        if not len(pieces):
            raise UseCaseError(f"text file {data} is too short: give one with several paragraphs")
        return pieces

    def collate(self, samples: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Pad all to the context, so that pipelines know the shape: inputs, and what comes next."""
        padded = torch.full((len(samples), self._context + 1), _PADDING)
        for row, piece in zip(padded, samples, strict=True):
            row[: len(piece)] = piece
        return padded[:, :-1].contiguous(), padded[:, 1:].contiguous()

    def weight(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return (batch[1] != _PADDING).sum()

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=_PADDING)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> AdamW:
        return AdamW(parameters, lr=self._lr)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, float]:
        """Give the share of characters that are predicted, a mean over the pieces."""
        counts = target != _PADDING
        right = ((output.argmax(2) == target) & counts).sum(1)
        return {"accuracy": (right / counts.sum(1).clamp(min=1)).mean().item()}


def make_up_text() -> bytes:
    """Make up a text, the same every time: words that follow one another by rules of chance.

    Each word is followed by one of a few, the first of them most often, so that a model learns how
    words are spelled, and then which come next.
    """
    rng = RandomState(0)
    syllables = [a + b for a in "bdfgklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er")]
    words = [
        "".join(syllables[number] for number in rng.randint(0, len(syllables), length))
        for length in rng.randint(1, 4, _WORDS)
    ]
    followers = rng.randint(0, _WORDS, (_WORDS, _FOLLOWERS)).tolist()
    # Of several numbers the smallest: the first follower comes most often.
    choices = rng.randint(0, _FOLLOWERS, (2, _MADE_UP_WORDS)).min(0).tolist()
    ends = rng.randint(0, 60, _MADE_UP_WORDS).tolist()
    word, parts = 0, []
    for choice, end in zip(choices, ends, strict=True):
        word = followers[word][choice]
        parts.append(words[word])
        parts.append(".\n\n" if end == 0 else ". " if end < 6 else " ")
    return "".join(parts).encode()


def _read(file: Path) -> bytes:
    try:
        text = file.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UseCaseError(f"text file {file}: {reason}: name a text file") from error
    if len(text) < 2:
        raise UseCaseError(f"text file {file} is too short: give one with several paragraphs")
    if bytes([_PADDING]) in text:
        raise UseCaseError(f"text file {file} has NUL characters: name a text file, as UTF-8")
    return text


def _cut(text: bytes, longest: int) -> list[tuple[int, int]]:
    """Find the pieces of a text: first and last position of each, at least two characters."""
    array = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero((array[:-1] == ord("\n")) & (array[1:] == ord("\n"))) + 1
    bounds = [0, *breaks.tolist(), len(text)]
    return [
        (low, high)
        for start, end in pairwise(bounds)
        for low in range(start, end, longest)
        if (high := min(low + longest, end)) - low > 1
    ]
