"""Measurement of layers with real samples: what each takes, gives and costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from launch.errors import UseCaseError
from launch.plan import Plan
from launch.training.autocast import autocast
from launch.training.pipeline.cut import LayerCost
from launch.training.pipeline.deferred_weight_gradients import DeferredWeightGradients
from launch.training.pipeline.pytree import flatten, unflatten

_MIN_MEASURED_S = 0.25  # for one layer: what takes long varies little
_MAX_REPEATS = 5


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One of the tensors that go from a layer to the next."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    is_channels_last: bool

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        """Describe a tensor."""
        return cls(
            tuple(tensor.shape),
            tensor.dtype,
            tensor.requires_grad,
            tensor.dim() == 4
            and tensor.is_contiguous(memory_format=torch.channels_last)
            and not tensor.is_contiguous(),
        )

    def wire(self, tensor: Tensor) -> Tensor:
        """Return the tensor contiguous in the order of its memory, as it is sent."""
        return (tensor.permute(0, 2, 3, 1) if self.is_channels_last else tensor).contiguous()

    def unwire(self, tensor: Tensor) -> Tensor:
        """Return the argument of `wire`.

        A copy, because a layer may work in place, which autograd refuses on received tensors.
        """
        return (tensor.permute(0, 3, 1, 2) if self.is_channels_last else tensor).clone()

    def on_wire(self) -> Tensor:
        """Return a tensor without memory in the shape that is sent."""
        empty = torch.empty(self.shape, dtype=self.dtype, device="meta")
        return self.wire(empty).requires_grad_(self.requires_grad)


@dataclass(frozen=True, slots=True)
class ActivationSpec:
    """Pytree that goes from a layer to the next, for one size of the micro-batch."""

    structure: Any
    tensors: tuple[TensorSpec, ...]

    @property
    def num_bytes(self) -> int:
        """Size on the wire."""
        return sum(torch.Size(t.shape).numel() * t.dtype.itemsize for t in self.tensors)

    def wire(self, value: Any) -> tuple[Tensor, ...]:
        """Flatten a value into the tensors that are sent."""
        _, tensors = flatten(value, _SENT_AS)
        return tuple(spec.wire(tensor) for spec, tensor in zip(self.tensors, tensors, strict=True))

    def unwire(self, tensors: Sequence[Tensor]) -> Any:
        """Rebuild a value from received tensors."""
        parts = [spec.unwire(t) for spec, t in zip(self.tensors, tensors, strict=True)]
        return unflatten(self.structure, parts)


_SENT_AS = "outputs of a layer"


def boundary_specs(
    layers: Iterable[nn.Module], inputs: Any, plan: Plan, device: torch.device
) -> list[ActivationSpec | None]:
    """Find the inputs of each layer but the first.

    Args:
        layers: Consecutive layers, on any device. Their buffers and torch's random numbers are left
            as they are.
        inputs: A micro-batch, on ``device``.
        plan: For its precision.
        device: Where the layers run.

    Returns:
        ``None`` where something else than tensors, numbers and texts goes from layer to layer.
    """
    specs: list[ActivationSpec | None] = []
    for _, output in _run(layers, inputs, plan, device):
        try:
            structure, tensors = flatten(output, _SENT_AS)
        except UseCaseError:
            specs.append(None)
        else:
            specs.append(ActivationSpec(structure, tuple(map(TensorSpec.of, tensors))))
    return specs[:-1]


def measure_layers(
    layers: Iterable[nn.Module], inputs: Any, plan: Plan, device: torch.device, count: int
) -> list[float]:
    """Time forward and backward pass of each layer in seconds, see `boundary_specs`.

    Gradients are added to those of an earlier micro-batch, as they are in all but the first; those
    that wait for all micro-batches of a step, ``count``, count for their share of that time.
    """
    return [_measure(run, device, count) for run, _ in _run(layers, inputs, plan, device)]


def layer_costs(
    layers: Iterable[nn.Module], times_s: Sequence[float], specs: Sequence[ActivationSpec | None]
) -> list[LayerCost]:
    """Return the costs that a cut is chosen by, of `measure_layers` and `boundary_specs`."""
    layers = list(layers)
    shared_until = _shared_until(layers)
    return [
        LayerCost(
            time_s=time_s,
            output_bytes=spec.num_bytes if spec else 0,
            is_trained=any(p.requires_grad for p in layer.parameters()),
            may_end_stage=spec is not None and shared_until[index] <= index,
            is_convolution=isinstance(layer, nn.Conv2d),
        )
        for index, (layer, time_s, spec) in enumerate(
            zip(layers, times_s, (*specs, None), strict=True)
        )
    ]


def _shared_until(layers: Sequence[nn.Module]) -> list[int]:
    """Return, for each layer, the last one that shares a tensor with it or with one before."""
    last = {id(tensor): index for index, layer in enumerate(layers) for tensor in _state(layer)}
    reach = -1
    found = []
    for index, layer in enumerate(layers):
        reach = max([reach, index, *(last[id(tensor)] for tensor in _state(layer))])
        found.append(reach)
    return found


def _state(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


class _Run:
    """One layer with its input, ready to run forward and backward."""

    def __init__(self, layer: nn.Module, inputs: Any, plan: Plan, device: torch.device) -> None:
        self._deferred = DeferredWeightGradients([layer])
        self._structure, self._inputs = flatten(inputs)
        self._plan = plan
        self._device = device

    def inputs(self) -> Any:
        """Make a fresh input without a graph; a copy, because a layer may work in place."""
        fresh = [
            tensor.detach().requires_grad_(tensor.requires_grad).clone() for tensor in self._inputs
        ]
        return unflatten(self._structure, fresh)

    def forward(self, inputs: Any) -> Any:
        """Run the layer forward."""
        with torch.enable_grad(), autocast(self._plan, self._device.type):
            return self._deferred(inputs)

    def backward(self, output: Any) -> None:
        """Run the layer backward, from a gradient of ones."""
        _, tensors = flatten(output)
        outputs = [tensor for tensor in tensors if tensor.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(tensor) for tensor in outputs])

    def finish(self, count: int) -> None:
        """Complete the gradients of so many micro-batches."""
        self._deferred.repeat(count)
        self._deferred.finish()


def _run(
    layers: Iterable[nn.Module], inputs: Any, plan: Plan, device: torch.device
) -> Iterator[tuple[_Run, Any]]:
    """Send a micro-batch through the layers, one at a time on the device."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        for layer in layers:
            with _moved_to(layer, device):
                run = _Run(layer, inputs, plan, device)
                output = run.forward(run.inputs())
                yield run, output
            inputs = _detached(output)


def _detached(value: Any) -> Any:
    structure, tensors = flatten(value)
    return unflatten(structure, [t.detach().requires_grad_(t.requires_grad) for t in tensors])


def _measure(run: _Run, device: torch.device, count: int) -> float:
    def once() -> None:
        run.backward(run.forward(inputs))

    times_s: list[float] = []
    while len(times_s) <= _MAX_REPEATS and sum(times_s) < _MIN_MEASURED_S:
        inputs = run.inputs()
        times_s.append(_time(once, device))
    # The first time gradients are made and not added to, and memory is new. Of the others the
    # shortest, since whatever else runs on the machine only ever adds to a time.
    time_s = min(times_s[1:], default=times_s[0])
    return time_s + _time(lambda: run.finish(count), device) / count


def _time(work: Callable[[], None], device: torch.device) -> float:
    _wait_for(device)
    started = time.perf_counter()
    work()
    _wait_for(device)
    return time.perf_counter() - started


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _moved_to(layer: nn.Module, device: torch.device) -> Iterator[None]:
    """Move a layer to a device in this context; restore it afterwards, without gradients."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in layer.buffers()]
    homes = [(tensor, tensor.data) for tensor in _state(layer)]
    for tensor, home in homes:
        tensor.data = home.to(device)
    try:
        yield
    finally:
        for tensor, home in homes:
            tensor.data = home
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for parameter in layer.parameters():
            parameter.grad = None
