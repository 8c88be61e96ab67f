"""Figures of machines: their measured limits side by side."""

from __future__ import annotations

from collections.abc import Sequence

from planner.quantities import format_number
from planner.report.figures.figure import Figure
from planner.report.figures.rows import Mark, bar_plot
from probes.hardware import Hardware

_GIGA = 1e9
_TERA = 1e12
_LIMITS = (
    ("Computing in fp32, all cores", "fp32_all_cores_flop_per_s", "GFLOP/s", _GIGA),
    ("Computing in fp32, one core", "fp32_one_core_flop_per_s", "GFLOP/s", _GIGA),
    ("Computing in bf16, all cores", "bf16_all_cores_flop_per_s", "GFLOP/s", _GIGA),
    ("Copying, all cores", "copy_all_cores_bytes_per_s", "GB/s", _GIGA),
    ("Decoding photos, one core", "jpeg_one_core_images_per_s", "photos/s", 1.0),
    ("Host to GPU", "host_to_device_bytes_per_s", "GB/s", _GIGA),
    ("Computing in fp32, first GPU", "gpu_fp32_flop_per_s", "TFLOP/s", _TERA),
    ("Computing in bf16, first GPU", "gpu_bf16_flop_per_s", "TFLOP/s", _TERA),
    ("Copying, first GPU", "gpu_copy_bytes_per_s", "GB/s", _GIGA),
)


def limit_figures(machines: Sequence[tuple[str, Hardware | None]]) -> list[Figure]:
    """Give a figure of each limit that is known of one machine at least."""
    found = []
    for title, field, unit, size in _LIMITS:
        values = [
            (name, None if node is None or node.speeds is None else getattr(node.speeds, field))
            for name, node in machines
        ]
        known = [(name, value / size) for name, value in values if value]
        if not known:
            continue
        highest = max(value for _, value in known)
        marks = [
            Mark(
                label=name,
                value=value,
                text=format_number(value),
                is_main=value == highest,
            )
            for name, value in known
        ]
        rows = [(name, format_number(v / size) if v else "not known") for name, v in values]
        found.append(
            Figure(
                title=title,
                svg=bar_plot(marks, title=title, unit=unit),
                columns=("machine", unit),
                rows=rows,
            )
        )
    return found
