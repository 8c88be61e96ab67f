"""Uses of parameters, found in the graph that autograd records.

A scripted module or an extension in C++ may use a parameter without calling a Python function that
could be watched. The graph still has a node for it. The graph is read before and after each watched
call: nodes that are new after the call are of that call, and nodes that are new before it are of
something that was not watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node

_LEAF = "torch::autograd::AccumulateGrad"


class RecordedUses:
    """Goes through the graph of a step while that grows, each node once.

    Args:
        parameters: Those whose uses are looked for.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = {id(parameter) for parameter in parameters}
        self._known: set[Node] = set()

    def clear(self) -> None:
        """Forget the last step's graph."""
        self._known.clear()

    def new_behind(self, values: Iterable[Any]) -> set[int]:
        """Find what values were computed from, by nodes that are new since the last look.

        Args:
            values: Tensors, in lists and tables too.

        Returns:
            The ``id`` of each parameter.
        """
        used: set[int] = set()
        waiting = [tensor.grad_fn for tensor in tensors_in(values)]
        while waiting:
            node = waiting.pop()
            if node is None or node in self._known:
                continue
            self._known.add(node)
            for source, _ in node.next_functions:
                if source is not None and source.name() == _LEAF:
                    used.add(id(source.variable))  # type: ignore[attr-defined]
                else:
                    waiting.append(source)
        return used & self._parameters


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Give every tensor among some values, in lists and tables too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())
