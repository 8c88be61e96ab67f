"""Chosen cut of a model into stages: by measured times, as a paper has it, or as the user says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from launch.data.batch import repeat_samples
from launch.data.samples import Part, count_equal_parts
from launch.local_group.group import LocalGroup
from launch.plan import Plan
from launch.training.pipeline.cut import (
    Cut,
    LayerCost,
    check_cut,
    find_cut,
    find_slowness,
    parse_cut,
    published_cut,
    stage_bounds,
    stage_times_s,
)
from launch.training.pipeline.layers import boundary_specs, layer_costs, measure_layers

_MEASURED, _PUBLISHED = "measured", "paper"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCut:
    """A cut, with the costs of the layers that it was chosen by."""

    cut: Cut
    costs: Sequence[LayerCost]
    is_timed: bool
    """Whether the times of the layers are known."""

    slowness: Sequence[float] = ()
    """Of each stage's devices, see `find_slowness`; empty where none is known."""

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Layers of each stage as ``(first, one behind the last)``."""
        return stage_bounds(self.cut, len(self.costs))

    @property
    def stage_times_s(self) -> list[float]:
        """Time of each stage for a micro-batch, where the times of the layers are known."""
        return stage_times_s(self.costs, self.cut, self.slowness)

    def facts(self, layers: nn.Sequential) -> dict[str, Any]:
        """Give what is stored with a plan of the cut of these layers."""
        return {
            "cut": list(self.cut),
            "layers": [type(layer).__name__ for layer in layers],
            "layer_times_s": [cost.time_s for cost in self.costs] if self.is_timed else None,
            "stage_times_s": self.stage_times_s if self.is_timed else None,
            "sent_bytes": [self.costs[first - 1].output_bytes for first in self.cut],
        }

    def __str__(self) -> str:
        times = [""] * len(self.bounds)
        if self.is_timed:
            times = [f", {1e3 * time_s:.1f} ms" for time_s in self.stage_times_s]
        return "; ".join(
            f"stage {number}: layers {first} to {end - 1}{time}"
            for number, ((first, end), time) in enumerate(zip(self.bounds, times, strict=True))
        )


def choose_cut(
    layers: nn.Sequential, example: Any, plan: Plan, device: torch.device, group: LocalGroup
) -> ChosenCut:
    """Choose a cut as the option ``cut`` of a plan says. Collective.

    Raises:
        InvalidPlanError: The model cannot be cut so.
    """
    option = str(plan.options.get("cut", _MEASURED))
    stages = plan.processes // plan.replicas
    size = Part(0, plan.replicas).size_of(plan.node_batch)
    micro_batches = count_equal_parts(size, plan.micro_batches)
    example = repeat_samples(example, size // micro_batches)
    specs = boundary_specs(layers, example, plan, device)
    times_s, slowness = [0.0] * len(layers), list[float]()
    if option == _MEASURED:
        measured_s = _measure_on_all(layers, example, plan, device, group, micro_batches)
        times_s = measured_s.mean(0).tolist()
        if device.type == "cuda":  # on cores, times differ by what else runs
            slowness = find_slowness(measured_s.sum(1).tolist(), stages)
    costs = layer_costs(layers, times_s, specs)
    if option == _MEASURED:
        cut = find_cut(costs, stages, slowness)
    elif option == _PUBLISHED:
        cut = published_cut(costs, stages)
    else:
        cut = check_cut(parse_cut(option), costs, stages)
    return ChosenCut(cut=cut, costs=costs, is_timed=option == _MEASURED, slowness=slowness)


def _measure_on_all(
    layers: nn.Sequential,
    example: Any,
    plan: Plan,
    device: torch.device,
    group: LocalGroup,
    micro_batches: int,
) -> Tensor:
    """Time the layers on all workers at once, as in a step; a row for each worker."""
    times_s = group.share_bytes(8 * group.size * len(layers)).view(torch.float64)
    times_s = times_s.view(group.size, len(layers))
    group.barrier()
    mine = measure_layers(layers, example, plan, device, micro_batches)
    times_s[group.local_rank] = torch.tensor(mine, dtype=torch.float64)
    group.barrier()
    return times_s
