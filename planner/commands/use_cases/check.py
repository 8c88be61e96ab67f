"""The command ``ddlplan use-cases check``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from launch.case_facts import CaseFacts
from launch.description.contract_use import METHODS
from launch.use_cases import resolve
from launch.workload import Workload
from planner.api.use_cases import CheckedUseCase, check_use_case
from planner.commands.signals import cancel_on_signals
from planner.quantities import format_bytes, format_count, format_number
from planner.report.output import Output
from planner.use_case_drafts.writing import Todo, todos_of

_OPTIONAL_ALTERNATIVE = {"loss": "step", "step": "loss"}
"""Of these two one is enough."""


def check(workload: Workload, out: Output) -> None:
    """Try a use case on a batch, and show what was found.

    Raises:
        UseCaseError: It cannot be trained.
    """
    with cancel_on_signals(out.warn) as cancellation:
        found = check_use_case(workload, cancellation=cancellation)
    for warning in found.warnings:
        out.warn(warning)
    file = resolve(workload.use_case).source_file
    todos = [] if file is None else todos_of(file.read_text(encoding="utf-8", errors="replace"))
    left = [("left to do", f"{file}:{todo.line}: {todo.text}") for todo in todos]
    out.write_facts([*_lines(workload, found), *left])
    out.finish(_document(workload, found, todos))


def _lines(workload: Workload, found: CheckedUseCase) -> Iterator[tuple[str, str]]:
    facts = found.facts
    yield "use case", workload.use_case
    yield "parameters", f"{facts.parameter_count:,} trained, {format_bytes(facts.parameter_bytes)}"
    yield "samples", f"{facts.train_samples:,} to train, {facts.validation_samples:,} to validate"
    yield "batch", f"{format_count(facts.default_batch, 'sample')} by default"
    kept = format_bytes(facts.kept_bytes_per_sample) or "not known"
    yield "memory", f"{kept} for each sample, kept from the forward to the backward pass"
    if facts.flop_per_sample:
        mega = format_number(facts.flop_per_sample / 1e6)
        yield "computing", f"{mega} MFLOP for each sample, forward and backward"
    yield "its own", ", ".join(facts.own_methods)
    yield "defaults", ", ".join(_defaults(facts)) or "none"
    yield "loss", _explain_loss(facts)
    yield "BatchNorm", "yes: see the warning" if facts.has_batch_norm else "no"
    yield "not saved", ", ".join(facts.unsaved) or "nothing"
    yield "strategies", "on this machine:"
    for name, obstacle in found.obstacles.items():
        yield f"  {name}", "can run it" if obstacle is None else f"no: {obstacle}"


def _defaults(facts: CaseFacts) -> list[str]:
    """Name the methods of the contract that stand in for those that are not there."""
    own = facts.own_methods
    return [
        name
        for name in METHODS
        if name not in own and _OPTIONAL_ALTERNATIVE.get(name, name) not in own
    ]


def _explain_loss(facts: CaseFacts) -> str:
    if facts.has_weights:
        return "a mean over what weight(batch) gives; a batch was compared with its halves"
    return "a mean over samples; a batch was compared with its halves"


def _document(
    workload: Workload, found: CheckedUseCase, todos: Sequence[Todo]
) -> dict[str, object]:
    facts = found.facts
    return {
        "use_case": workload.use_case,
        "data": workload.data,
        "parameter_count": facts.parameter_count,
        "parameter_bytes": facts.parameter_bytes,
        "train_samples": facts.train_samples,
        "validation_samples": facts.validation_samples,
        "default_batch": facts.default_batch,
        "kept_bytes_per_sample": facts.kept_bytes_per_sample,
        "flop_per_sample": facts.flop_per_sample,
        "own_methods": list(facts.own_methods),
        "default_methods": _defaults(facts),
        "has_weight": facts.has_weights,
        "has_batch_norm": facts.has_batch_norm,
        "not_saved": list(facts.unsaved),
        "strategies": [
            {"name": name, "obstacle": obstacle} for name, obstacle in found.obstacles.items()
        ],
        "todo": [{"line": todo.line, "text": todo.text} for todo in todos],
    }
