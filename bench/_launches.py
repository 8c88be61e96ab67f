"""Plans of one use case, which benches find, store and launch by the commands of ddlplan."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from _block import Answer, BenchError, Ddlplan, Output, root_option

from launch.plan import Plan
from planner.report.plan_line import describe_plan
from probes import codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The training steps of one epoch, their input included."""

    train_s: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One whole launch."""

    wall_s: float
    epochs: tuple[Epoch, ...]
    expected_samples_per_s: float
    """What the plan had recorded when it was found."""

    @property
    def steady(self) -> tuple[Epoch, ...]:
        """The epochs from the second on, which find their pictures decoded; one if it is all."""
        return self.epochs[1:] or self.epochs

    @property
    def train_s(self) -> float:
        """Time of the steady epochs."""
        return math.fsum(epoch.train_s for epoch in self.steady)

    @property
    def samples(self) -> int:
        """Samples of the steady epochs."""
        return sum(epoch.samples for epoch in self.steady)

    @property
    def samples_per_s(self) -> float:
        """Throughput of the steady epochs."""
        return self.samples / self.train_s


class Launches:
    """Launches plans of one use case.

    Args:
        ddlplan: The command, with the database that holds the plans.
        use_case: What to train.
        data: Where its data are, if not where it finds them by itself.
    """

    def __init__(self, ddlplan: Ddlplan, use_case: str, data: Path | None) -> None:
        self._ddlplan = ddlplan
        self._case = ["--use-case", use_case]
        self._data = [] if data is None else ["--data", str(data.resolve())]
        self._from_file = False

    def tune(self, budget: str, precision: str, batch_size: int | None = None) -> Answer:
        """Search as a user would."""
        batch = [] if batch_size is None else ["--batch-size", batch_size]
        options = ("--budget", budget, "--precision", precision, *batch)
        return self._ddlplan.run("tune", *self._case, *self._data, *options, show_progress=True)

    def list_trials(self) -> list[dict[str, Any]]:
        """Give every trial, failed ones with their reason and the end of their log."""
        trials: list[dict[str, Any]] = self._ddlplan.run("trials").data
        return trials

    def best_plan(self, precision: str) -> dict[str, Any]:
        """Give the plan that `launch` would use; the fastest one where bf16 is allowed.

        Raises:
            BenchError: There is none.
        """
        if precision == "fp32":
            best: dict[str, Any] = self._ddlplan.run("plans", "best", *self._case).data
            # What it is worth and what its data cost are no parts of a plan, and refused in one.
            del best["worth"], best["input_cost"]
            return _allowed(best, precision)
        plans = [
            plan
            for plan in self._ddlplan.run("plans", "list", *self._case).data
            if not plan["stale"] and (precision == "auto" or plan["precision"].startswith("bf16"))
        ]
        if not plans:
            raise BenchError(f"no plan for --precision {precision}: leave --plan-db out to tune")
        return max(plans, key=lambda plan: float(plan["throughput_samples_per_s"]["median"]))

    def import_plan(self, file: Path, precision: str) -> dict[str, Any]:
        """Store a plan from a file that `plans export` or ``--json`` wrote.

        Raises:
            BenchError: It computes in a precision that is not allowed.
        """
        plan: dict[str, Any] = self._ddlplan.run("plans", "import", file.resolve()).data
        self._from_file = True
        return _allowed(plan, precision)

    def copy_database(self, source: Path) -> None:
        """Copy a database as SQLite does, so that the user's own is only read."""
        if not source.is_file():
            raise BenchError(f"--plan-db {source}: no such file")
        uri = f"{source.resolve().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(uri, uri=True)) as original,
            closing(sqlite3.connect(self._ddlplan.database)) as copy,
        ):
            original.backup(copy)

    def import_baseline(self, best: Mapping[str, Any]) -> int:
        """Store one core, which a plan was compared with, as a plan of its own.

        Raises:
            BenchError: The plan was not compared with it.
        """
        compared = {one["name"]: one for one in best["comparisons"]}.get("one_core")
        if compared is None:
            raise BenchError("the plan was not raced against one core: tune with a larger --budget")
        rate = compared["throughput_samples_per_s"]
        document = {
            **best,
            **compared["plan"],
            "throughput_samples_per_s": {
                "median": rate,
                "ci_low": rate,
                "ci_high": rate,
                "samples": 1,
            },
            "comparisons": [],
            "speedup": None,
            "baseline": None,
            "peak_memory_bytes": None,
        }
        file = self._ddlplan.folder / "baseline.json"
        file.write_text(json.dumps(document))
        return int(self._ddlplan.run("plans", "import", file).data["id"])

    def launch(self, plan_id: int, epochs: int = 1) -> Launched:
        """Train with a plan.

        Raises:
            BenchError: The command failed, or wrote no weights.
        """
        arguments = (*self._case, *self._data, "--epochs", epochs, "--plan", plan_id)
        # Who names a file means that plan, wherever it was found.
        stale = ["--allow-stale"] if self._from_file else []
        answer = self._ddlplan.run("launch", *arguments, *stale, *root_option())
        weights = answer.data["weights"]
        if weights is None or not Path(weights).stat().st_size:
            raise BenchError(f"plan {plan_id} left no weights")
        shutil.rmtree(answer.data["run_directory"])
        return Launched(
            wall_s=answer.wall_s,
            epochs=tuple(
                Epoch(train_s=epoch["train_time_s"], samples=epoch["samples"])
                for epoch in answer.data["epochs"]
            ),
            expected_samples_per_s=answer.data["expected_throughput_samples_per_s"],
        )


def _allowed(plan: dict[str, Any], precision: str) -> dict[str, Any]:
    """Refuse to hold a plan in bf16 to what is required in fp32."""
    if precision == "fp32" and plan["precision"] != "fp32":
        raise BenchError(f"the plan is in {plan['precision']}: say so by --precision auto")
    return plan


def say_plan(out: Output, best: Mapping[str, Any]) -> None:
    """Show a plan, and at which rate it is on record."""
    names = [field.name for field in fields(Plan)]
    settings = {name: best[name] for name in names if best.get(name) is not None}
    plan = codec.convert(settings, Plan, source="plan")
    rate = best["throughput_samples_per_s"]
    out.say(f"best plan: {describe_plan(plan)}")
    out.say(f"recorded:  {rate['median']:.1f} samples/s from {rate['samples']} steps")
    out.say()
