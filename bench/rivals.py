"""Speedup of the plan that was found over what one would run otherwise.

The rivals are scripts as their users write them, in `rivals/`: plain PyTorch, torchrun with DDP,
Accelerate, Lightning, and Horovod where it is installed. All train AlexNet on the same photos with
the same batch and optimizer; what counts is the time of the training loop, input included, from the
second epoch on. Each rival is tried at its defaults; the fastest of them are then alternated with
`ddlplan launch`, and so is every rival with the batch, memory format and threads of our plan.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _block import (
    BenchError,
    Ddlplan,
    Output,
    Required,
    Result,
    alternate,
    make_parser,
    positive,
    run_bench,
)
from _launches import Launches, say_plan
from _photos import link_photos
from _rivals import RIVALS, Rival, RivalFailedError, Setting

from launch.use_cases import resolve
from probes.timing import paired_ratio

_USE_CASE = "simplebig"
_UNMEASURED = 2
_DEFAULTS, _OURS = "defaults", "ours"
_INSTALL = "pip install -e '.[bench]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Our plan against rivals that are set in one way."""

    name: str
    setting: Setting
    required: Required
    only_fastest: bool
    """Whether being faster than the fastest rival is all that is asked."""


class RivalsBench:
    """Runs our plan and the rivals on the same photos.

    Args:
        out: Is told of every run.
        ddlplan: The command, with a folder for what the runs leave.
        launches: Starts our plans.
        plan_id: The plan.
        num_photos: Training photos of an epoch.
        epochs: Of each run.
    """

    def __init__(
        self,
        out: Output,
        ddlplan: Ddlplan,
        launches: Launches,
        plan_id: int,
        *,
        num_photos: int,
        epochs: int,
    ) -> None:
        self._out = out
        self._ddlplan = ddlplan
        self._launches = launches
        self._plan_id = plan_id
        self._num_photos = num_photos
        self._epochs = epochs
        self.failed: list[str] = []

    def screen(self, comparison: Comparison, rivals: Sequence[Rival], count: int) -> list[Rival]:
        """Run each rival once; give the fastest ones."""
        if len(rivals) <= count:
            return list(rivals)
        self._out.say(f"{comparison.name}: one run each, to find the fastest")
        rates: dict[str, float] = {}
        for rival in rivals:
            with self._failure_noted(comparison, rival):
                rates[rival.name] = self._run(rival, comparison.setting)
        self._out.say()
        ran = [rival for rival in rivals if rival.name in rates]
        return sorted(ran, key=lambda rival: -rates[rival.name])[:count]

    def compare(self, comparison: Comparison, rival: Rival, blocks: int) -> Result | None:
        """Alternate our plan with a rival; ``None`` where the rival failed."""
        self._out.say(f"{comparison.name}: ours and {rival.name} in turn")
        pairs: list[tuple[float, float]] = []
        with self._failure_noted(comparison, rival):
            pairs += alternate(
                self._run_ours, lambda: self._run(rival, comparison.setting), blocks=blocks
            )
        self._out.say()
        if not pairs:
            return None
        return Result(
            figure=f"throughput of ours / {rival.name}, {comparison.name}",
            value=paired_ratio(pairs),
            required=comparison.required,
        )

    @contextmanager
    def _failure_noted(self, comparison: Comparison, rival: Rival) -> Iterator[None]:
        """Go on with the others where one rival cannot be run, but never silently."""
        try:
            yield
        except RivalFailedError as error:
            self.failed.append(f"{rival.name}, {comparison.name}")
            self._out.say(f"  {rival.name} failed: {error}")

    def _run(self, rival: Rival, setting: Setting) -> float:
        rate = rival.train(setting, self._num_photos, self._ddlplan)
        self._out.say(f"  {rival.name:14} {rate:6.1f} samples/s")
        return rate

    def _run_ours(self) -> float:
        launched = self._launches.launch(self._plan_id, self._epochs)
        samples = {epoch.samples for epoch in launched.epochs}
        if samples != {self._num_photos}:
            raise BenchError(f"epochs of {sorted(samples)} samples, not of {self._num_photos}")
        self._out.say(f"  {'ours':14} {launched.samples_per_s:6.1f} samples/s")
        return launched.samples_per_s


def main() -> int:
    """Measure and show."""
    arguments = _parse()
    out = Output("rivals", as_json=arguments.json)
    with Ddlplan.in_own_folder(own_cache=True) as ddlplan:
        rivals = _find_rivals(out, ddlplan, arguments.rivals)
        photos = ddlplan.folder / "photos"
        link_photos(_USE_CASE, arguments.data, photos, arguments.photos, out)
        launches = Launches(ddlplan, _USE_CASE, photos)
        best = _find_plan(launches, arguments)
        say_plan(out, best)
        bench = RivalsBench(
            out,
            ddlplan,
            launches,
            best["id"],
            num_photos=arguments.photos,
            epochs=arguments.epochs,
        )
        results: list[Result] = []
        for comparison in _comparisons(best, photos / "train", arguments):
            chosen = rivals
            if comparison.only_fastest:
                chosen = bench.screen(comparison, rivals, arguments.fastest)
            compared = [bench.compare(comparison, rival, arguments.blocks) for rival in chosen]
            results += [result for result in compared if result is not None]
    for failed in bench.failed:
        out.say(f"failed: {failed}")
    return out.conclude(results) or (_UNMEASURED if bench.failed else 0)


def _find_rivals(out: Output, ddlplan: Ddlplan, names: str | None) -> list[Rival]:
    """Give the rivals that can run; name their versions, and those that are missing."""
    known = {rival.name: rival for rival in RIVALS}
    wanted = list(known) if names is None else [name.strip() for name in names.split(",")]
    if unknown := set(wanted) - set(known):
        raise BenchError(f"--rivals {', '.join(sorted(unknown))}: choose of {', '.join(known)}")
    problems = {name: known[name].find_problem(ddlplan) for name in wanted}
    out.machine["versions"] |= {
        known[name].distribution: known[name].version or "missing" for name in wanted
    }
    out.introduce()
    for name, problem in problems.items():
        if problem is not None:
            remedy = "see bench/README.md" if name == "Horovod" else f"run {_INSTALL}"
            out.say(f"missing: {name} ({problem}): {remedy}")
    found = [known[name] for name in wanted if problems[name] is None]
    if not found:
        raise BenchError(f"none of {', '.join(wanted)} can be imported: {_INSTALL}")
    return found


def _find_plan(launches: Launches, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.plan is not None:
        return launches.import_plan(arguments.plan, arguments.precision)
    if arguments.plan_db is not None:
        launches.copy_database(arguments.plan_db)
        return launches.best_plan(arguments.precision)
    tuned = launches.tune(arguments.budget, arguments.precision, arguments.batch_size)
    best: dict[str, Any] = tuned.data["plan"]
    return best


def _comparisons(
    best: Mapping[str, Any], data: Path, arguments: argparse.Namespace
) -> list[Comparison]:
    """Give what our plan is held against: defaults with both batches, then its own settings."""
    is_fp32 = arguments.precision == "fp32"
    ours, usual = int(best["node_batch"]), resolve(_USE_CASE).load().default_batch
    plain = Setting(
        data=data,
        epochs=arguments.epochs,
        node_batch=ours,
        loader_workers=arguments.loader_workers,
    )
    comparisons = [
        Comparison(
            name=f"{whose} batch of {batch} at its defaults",
            setting=replace(plain, node_batch=batch),
            required=Required(low=1.3 if is_fp32 else 2.2),
            only_fastest=True,
        )
        for batch, whose in ({ours: "our"} | {usual: "the usual"}).items()
    ]
    own = Comparison(
        name="with our batch, memory format and threads",
        setting=replace(
            plain,
            processes=best["processes"] if best["processes"] > 1 else None,
            threads=best["processes"] * best["threads_per_process"],
            channels_last=best["memory_format"] == "channels_last",
        ),
        required=Required(low=1.1),
        only_fastest=False,
    )
    chosen = {_DEFAULTS: comparisons, _OURS: [own]}
    if arguments.settings is not None:
        return chosen[arguments.settings]
    # In bf16 a rival with our settings in fp32 would not have our settings.
    return [*comparisons, own] if is_fp32 else comparisons


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder of photos, else those of simplebig")
    parser.add_argument("--photos", type=positive, default=768, help="training photos (768)")
    parser.add_argument(
        "--epochs", type=positive, default=3, help="of a run (3); the first is left"
    )
    parser.add_argument(
        "--precision", choices=["fp32", "bf16", "auto"], default="fp32", help="allowed us (fp32)"
    )
    parser.add_argument("--budget", default="3m", help="time to tune (3m)")
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--plan-db", type=Path, help="take the plan from a copy of this database")
    known.add_argument("--plan", type=Path, help="take the plan that `plans export` wrote here")
    known.add_argument("--batch-size", type=positive, help="the only node batch to tune for")
    parser.add_argument("--rivals", help=f"only these: {', '.join(r.name for r in RIVALS)}")
    parser.add_argument(
        "--settings", choices=[_DEFAULTS, _OURS], help="of the rivals (both; defaults for bf16)"
    )
    parser.add_argument("--fastest", type=positive, default=2, help="rivals to pair (2)")
    parser.add_argument(
        "--loader-workers", type=positive, default=2, help="of each process of a rival (2)"
    )
    parser.add_argument("--blocks", type=positive, default=1, help="of four runs each (1)")
    return parser.parse_args()


if __name__ == "__main__":
    run_bench(main)
