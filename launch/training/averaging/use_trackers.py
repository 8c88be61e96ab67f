"""Trackers of uses: whatever torch is about to call goes through a function that sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class _Tracker:
    """Calls what torch was about to call through a function that sees it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call

    def _handle(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._call(function, args, kwargs or {})


class UseTracker(_Tracker, TorchFunctionMode):
    """Sees what torch's functions are called with."""

    __torch_function__ = _Tracker._handle


class OperatorTracker(_Tracker, TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees what torch's operators are called with, by Python and by C++."""

    supports_higher_order_operators = True
    __torch_dispatch__ = _Tracker._handle
