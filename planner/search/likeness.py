"""Likeness of machines and use cases: how much trials of one say of another."""

from __future__ import annotations

from dataclasses import dataclass

from planner.trials.result import TrialResult
from probes.hardware import Hardware

SAME_HARDWARE, _OTHER_HARDWARE = 0.8, 0.4
_SAME_NAME, _OTHER_CASE = 0.7, 0.3
_OTHER_INSTRUCTIONS = 0.5

LEAST_LIKENESS = 0.05
"""Below it a study is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarTrials:
    """Trials of another study, of a similar machine or use case."""

    study_id: int
    likeness: float
    """From 0 to 1."""

    results: tuple[TrialResult, ...]


def node_likeness(node: Hardware, other: Hardware) -> float:
    """Tell how alike two machines are, from 0 to 1."""
    from launch.strategies._gpus import usable_gpus  # not to read what is stored

    if node.fingerprint() == other.fingerprint():
        return 1.0 if node.node == other.node else SAME_HARDWARE
    if bool(usable_gpus(node)) != bool(usable_gpus(other)):
        return 0.0
    cores = node.cpu.usable_cores, other.cpu.usable_cores
    alike = _OTHER_HARDWARE * min(cores) / max(cores)
    same_instructions = node.cpu.instruction_sets == other.cpu.instruction_sets
    return alike if same_instructions else alike * _OTHER_INSTRUCTIONS


def case_likeness(name: str, data: str, other_name: str, other_data: str) -> float:
    """Tell how alike two use cases are, from 0 to 1.

    Args:
        name: Name of the one.
        data: Its digest, which changes with its code, model and data.
        other_name: Name of the other.
        other_data: Its digest.
    """
    if data == other_data:
        return 1.0
    return _SAME_NAME if name == other_name else _OTHER_CASE
