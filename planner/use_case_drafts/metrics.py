"""Metrics of a script: what it computes of its samples beside the loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from planner.use_case_drafts.code import last_name, names_bound

_NAME = re.compile(r"(^|_)(acc|accuracy|correct|f1|auc|iou|top[15]|perplexity)(_|$)", re.I)
_ACCUMULATION = re.compile("step|grad|accum", re.I)
"""In names such as ``acc_steps``."""


def find_metrics(tree: ast.Module) -> Iterator[str]:
    """Say where a script compares predictions with labels: a draft does not take that over."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign() | ast.AugAssign():
                is_metric = any(
                    _NAME.search(name) and not _ACCUMULATION.search(name)
                    for name in names_bound([node])
                )
            case ast.Call(func=func):
                is_metric = last_name(func) == "argmax"
            case _:
                continue
        if is_metric:
            yield (
                f"line {node.lineno} computes a metric: left out; metrics(output, target) gives "
                "those of a validation batch: see docs/own-model.md"
            )
            return
