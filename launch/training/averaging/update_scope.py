"""Scope of an optimizer's update: what of the parameters it must see together.

Of most optimizers an element's update depends on that element alone, so that workers may update
parts of a tensor. LAMB needs the norm of a tensor, Prodigy and D-Adaptation need sums over the
model, and so does a hook that clips gradients. Cut into parts these go wrong without an error. So
an optimizer whose class is not known makes a few updates of small tensors like the model's, once
whole and once as workers would.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from enum import Enum

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer

from launch.training.averaging.chunks import Piece
from launch.training.averaging.piece_optimizer import PieceOptimizer, has_hooks


class UpdateScope(Enum):
    """What an optimizer must see together."""

    ELEMENT = "element"
    """Each element by itself: a tensor may be cut anywhere."""

    TENSOR = "tensor"
    """Whole tensors: each may be updated by another worker."""

    MODEL = "model"
    """All parameters: one worker updates them."""


MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]

_ELEMENTWISE = (
    *(optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam),
    *(optim.RMSprop, optim.Rprop, optim.Adagrad, optim.Adadelta, optim.ASGD),
)
_CLASSES = {
    **dict.fromkeys(_ELEMENTWISE, UpdateScope.ELEMENT),
    optim.SparseAdam: UpdateScope.TENSOR,  # which takes gradients of another kind than here
}
"""By exact class: a subclass may do anything."""

_SIZES = (6, 5, 3, 2)
"""Largest size of each dimension of the small tensors."""

_SCALES = (1.0, 30.0, 0.01, 3.0, 1.0)
"""Of the gradients of each step, so that limits of a norm act in some steps and not in others."""

_NOISE = 0.3
"""Share of the gradients that is new in each step. The rest has one direction: estimates of a
distance, as of D-Adaptation, grow along it."""

_TOLERANCES = {torch.float64: 1e-7, torch.float32: 1e-3}
"""Relative difference of what an update has moved."""

Values = list[list[Tensor]]
"""Of each parameter, after each step."""


def scope_of_class(optimizer: Optimizer) -> UpdateScope:
    """Give the scope of an optimizer of a known class; the widest of any other."""
    return _CLASSES.get(type(optimizer), UpdateScope.MODEL)


def find_update_scope(make: MakeOptimizer, model: nn.Module) -> UpdateScope:
    """Find the scope of the optimizer that ``make`` gives for a model's parameters.

    The same on every worker. ``make`` is called several times, with other parameters of the same
    number and dimensions.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            optimizer = make(_make_stand_ins(model, torch.float32))
        except Exception:  # noqa: BLE001 - the user's code, which never saw such small tensors
            return UpdateScope.MODEL
        if type(optimizer) in _CLASSES and not has_hooks(optimizer):
            return scope_of_class(optimizer)
        return _run(make, model)


def _run(make: MakeOptimizer, model: nn.Module) -> UpdateScope:
    for dtype in _TOLERANCES:
        trial = _Trial(make, model, dtype)
        if not trial.is_possible:
            continue
        has_sparse = any(getattr(module, "sparse", False) for module in model.modules())
        if not has_sparse and trial.is_equal(trial.halves(), in_pieces=True):
            return UpdateScope.ELEMENT  # whose pieces have dense gradients
        if all(map(trial.is_equal, trial.whole_tensors())):
            return UpdateScope.TENSOR
        return UpdateScope.MODEL
    return UpdateScope.MODEL


Cut = list[tuple[int, int, int]]
"""A worker's part: number of a parameter, first element, and the one behind the last."""


class _Trial:
    """Updates of the same small tensors by the same gradients, in different parts."""

    def __init__(self, make: MakeOptimizer, model: nn.Module, dtype: torch.dtype) -> None:
        self._make = make
        self._model = model
        self._dtype = dtype
        generator = torch.Generator().manual_seed(0)
        stand_ins = _make_stand_ins(model, dtype)
        self._start = [p.detach().clone() for p in stand_ins if p.requires_grad]

        def draw(like: Tensor) -> Tensor:
            return torch.randn(like.shape, generator=generator, dtype=dtype)

        directions = [draw(value) for value in self._start]
        self._gradients = [
            [scale * (direction + _NOISE * draw(direction)) for direction in directions]
            for scale in _SCALES
        ]
        self._whole = self._update([None], in_pieces=False)

    @property
    def is_possible(self) -> bool:
        """Whether the optimizer takes such tensors."""
        return self._whole is not None

    def is_equal(self, cuts: Sequence[Cut], *, in_pieces: bool = False) -> bool:
        """Whether workers that update parts move every tensor as one process does.

        Args:
            cuts: The part of each worker.
            in_pieces: Whether the optimizer sees flat pieces, some at a time.
        """
        found, tolerance = self._update(cuts, in_pieces=in_pieces), _TOLERANCES[self._dtype]
        if found is None or self._whole is None:
            return False
        norm = torch.linalg.vector_norm
        return all(
            bool(norm(ours - theirs) <= tolerance * norm(theirs - start))
            for step, expected in zip(found, self._whole, strict=True)
            for ours, theirs, start in zip(step, expected, self._start, strict=True)
        )

    def halves(self) -> list[Cut]:
        """Cut every tensor in two, for two workers."""
        sizes = [value.numel() for value in self._start]
        first = [(index, 0, size // 2) for index, size in enumerate(sizes)]
        second = [(index, size // 2, size) for index, size in enumerate(sizes)]
        return [first, second]

    def whole_tensors(self) -> list[list[Cut]]:
        """List ways to give whole tensors to two workers: every second, and every second pair."""
        every = [(index, 0, value.numel()) for index, value in enumerate(self._start)]
        return [
            [[each for each in every if each[0] // run % 2 == worker] for worker in (0, 1)]
            for run in (1, 2)
        ]

    def _update(self, cuts: Sequence[Cut | None], *, in_pieces: bool) -> Values | None:
        """Make all updates, each worker those of its part; ``None`` is everything.

        Returns:
            ``None`` where the optimizer fails.
        """
        values = [[value.clone() for value in self._start] for _ in _SCALES]
        try:
            for cut in cuts:
                self._update_part(cut, values, in_pieces=in_pieces)
        except Exception:  # noqa: BLE001 - the user's code, called as it was not made for
            return None
        return values

    def _update_part(self, cut: Cut | None, values: Values, *, in_pieces: bool) -> None:
        torch.manual_seed(0)
        every = _make_stand_ins(self._model, self._dtype)
        optimizer = self._make(every)
        trained = [parameter for parameter in every if parameter.requires_grad]
        for group in optimizer.param_groups:
            if group.get("lr") == 0:  # a schedule will raise it
                group["lr"] = 0.01
        is_whole = cut is None
        cut = [
            (index, start, stop)
            for index, start, stop in cut or [(i, 0, p.numel()) for i, p in enumerate(trained)]
            if stop > start or not in_pieces
        ]
        if not cut:
            return
        owned: list[Tensor] = [
            nn.Parameter(trained[index].detach().view(-1)[start:stop])
            if in_pieces
            else trained[index]
            for index, start, stop in cut
        ]
        pieces = [
            Piece(index=index, start=start, owned=one, gradient=one)
            for (index, start, _), one in zip(cut, owned, strict=True)
        ]
        parts = None if is_whole else PieceOptimizer(optimizer, trained, pieces)
        for gradients, after in zip(self._gradients, values, strict=True):
            for (index, start, stop), one in zip(cut, owned, strict=True):
                one.grad = gradients[index].view(-1)[start:stop].view(one.shape).clone()
            if parts is None or not in_pieces:
                optimizer.step()
            else:
                with parts.in_parts() as step:
                    for chunk in filter(None, (pieces[::2], pieces[1::2])):
                        step(chunk)
            for index, start, stop in cut:
                after[index].view(-1)[start:stop] = trained[index].detach().view(-1)[start:stop]


def _make_stand_ins(model: nn.Module, dtype: torch.dtype) -> list[nn.Parameter]:
    """Make small parameters of the dimensions of the model's, the same each time."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for parameter in model.parameters():
        limits = (*_SIZES, *[_SIZES[-1]] * parameter.dim())
        shape = [min(size, most) for size, most in zip(parameter.shape, limits, strict=False)]
        value = torch.randn(shape, generator=generator, dtype=dtype)
        made.append(nn.Parameter(value, requires_grad=parameter.requires_grad))
    return made
