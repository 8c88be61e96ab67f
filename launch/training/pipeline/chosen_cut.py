"""Chosen cut of a model into stages: by measured times, as a paper has it, or as the user says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from launch.data.batch import repeat_samples
from launch.data.samples import Part, count_equal_parts
from launch.local_group.group import LocalGroup
from launch.plan import Plan
from launch.training.pipeline.cut import (
    Cut,
    LayerCost,
    check_cut,
    find_cut,
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

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """Layers of each stage as ``(first, one behind the last)``."""
        return stage_bounds(self.cut, len(self.costs))

    def facts(self, layers: nn.Sequential) -> dict[str, Any]:
        """Give what is stored with a plan of the cut of these layers."""
        return {
            "cut": list(self.cut),
            "layers": [type(layer).__name__ for layer in layers],
            "layer_times_s": [cost.time_s for cost in self.costs] if self.is_timed else None,
            "stage_times_s": stage_times_s(self.costs, self.cut) if self.is_timed else None,
            "sent_bytes": [self.costs[first - 1].output_bytes for first in self.cut],
        }

    def __str__(self) -> str:
        times = [""] * len(self.bounds)
        if self.is_timed:
            times = [f", {1e3 * time_s:.1f} ms" for time_s in stage_times_s(self.costs, self.cut)]
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
    times_s = [0.0] * len(layers)
    if option == _MEASURED:
        times_s = _measure_on_all(layers, example, plan, device, group, micro_batches)
    costs = layer_costs(layers, times_s, specs)
    if option == _MEASURED:
        cut = find_cut(costs, stages)
    elif option == _PUBLISHED:
        cut = published_cut(costs, stages)
    else:
        cut = check_cut(parse_cut(option), costs, stages)
    return ChosenCut(cut=cut, costs=costs, is_timed=option == _MEASURED)


def _measure_on_all(
    layers: nn.Sequential,
    example: Any,
    plan: Plan,
    device: torch.device,
    group: LocalGroup,
    micro_batches: int,
) -> list[float]:
    """Time the layers on all workers at once, as in a step, and return the means."""
    times_s = group.share_bytes(8 * group.size * len(layers)).view(torch.float64)
    times_s = times_s.view(group.size, len(layers))
    group.barrier()
    mine = measure_layers(layers, example, plan, device, micro_batches)
    times_s[group.local_rank] = torch.tensor(mine, dtype=torch.float64)
    group.barrier()
    return times_s.mean(0).tolist()
