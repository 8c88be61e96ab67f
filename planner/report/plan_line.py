"""One-line descriptions of a plan: its differences from the plainest plan of its strategy."""

from __future__ import annotations

import shlex
from dataclasses import fields

from launch.plan import Plan
from launch.scripts.environment import NO_PYTHON, OWN_SETTINGS
from launch.scripts.program import BATCH
from planner.scripts.naming import STEP_REGEX, STRATEGY, WHOLE_RUNS

_IN_LAYOUT = ("processes", "threads_per_process", "replicas")

_TEXTS = {
    "micro_batches": "in {}",
    "memory_format": "{}",
    "input": "{}",
    "input=device": "data on the GPU",
    "loader_workers": "{} loaders",
    "loader_workers=1": "1 loader",
    "allocator": "{}",
    "fused_optimizer": "fused",
    "precision": "{}",
    "onednn_linear": "onednn",
    "compile": "compiled",
    "cuda_graph": "graph",
}
"""Texts of settings that are not the default, or of one value of a setting. Settings that are not
here are named with their value."""


def describe_plan(plan: Plan) -> str:
    """Describe a plan in one line.

    >>> describe_plan(Plan(strategy="processes", node_batch=64, processes=2, replicas=2))
    'processes 2x1 batch 64'
    """
    return f"{plan.strategy} {describe_settings(plan)}"


def describe_settings(plan: Plan) -> str:
    """Describe a plan where its strategy is said beside it.

    >>> describe_settings(Plan(strategy="processes", node_batch=64, processes=2, precision="bf16"))
    '2x1 batch 64 bf16'
    """
    parts = max(plan.processes, plan.replicas)
    # The layout shows no replicas where several processes share one.
    replicas = [f"in {plan.replicas} replicas"] if 1 < plan.replicas < plan.processes else []
    batch = [] if _names_batch(plan) else [f"batch {plan.node_batch}"]
    return " ".join([f"{parts}x{plan.threads // parts}", *replicas, *batch, *_changed(plan)])


def _changed(plan: Plan) -> list[str]:
    texts = dict(_TEXTS)
    if plan.strategy == STRATEGY:
        # As the user's placeholder.
        texts["loader_workers"] = texts["loader_workers=1"] = "workers={}"
    plain = Plan(strategy=plan.strategy, node_batch=plan.node_batch)
    names = [setting.name for setting in fields(Plan) if setting.name not in _IN_LAYOUT]
    changed = {name for name in names if getattr(plan, name) != getattr(plain, name)}
    known = [name for name in texts if name in changed]
    others = [name for name in names if name in changed - {*known, "devices", "options"}]
    said = []
    for name in (*known, *others):
        value = getattr(plan, name)
        said.append(texts.get(f"{name}={value}", texts.get(name, f"{name}={value}")).format(value))
    if plan.gpus:
        said.append(",".join(plan.devices))
    options = {**plan.options}
    if options.pop(OWN_SETTINGS, False):
        said.append("as it is")
    batch = [f"batch={options.pop(BATCH)}"] if _names_batch(plan) else []
    if options.pop(WHOLE_RUNS, False):
        said.append("whole runs")
    if options.pop(NO_PYTHON, False):
        said.append("--no-python")
    if (regex := options.pop(STEP_REGEX, None)) is not None:
        said.append(f"--step-regex {shlex.quote(str(regex))}")
    return batch + said + [f"{name}={value}" for name, value in sorted(options.items())]


def _names_batch(plan: Plan) -> bool:
    """Whether a script's plan says its batch as the user does: of a data loader, not of a step."""
    return plan.strategy == STRATEGY and BATCH in plan.options
