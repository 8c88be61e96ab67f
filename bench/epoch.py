"""Speedup of the plan that was found, from photo files to stored weights.

Tunes (or takes a plan that was found before), then alternates whole `ddlplan launch` commands of
the baseline and of the best plan. Of a launch of one epoch counts the time from the start of the
command to its exit; of one of several epochs the training time of those from the second on, in
which pictures that were decoded before need not be decoded again.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _block import (
    Answer,
    BenchError,
    Ddlplan,
    Output,
    Result,
    alternate,
    begin,
    make_parser,
    positive,
    run_bench,
    stated_interval,
)
from _launches import Launched, Launches, say_plan
from _photos import link_photos

from probes.timing import paired_ratio

_STEADY = {
    ("simplebig", "fp32"): 2.4,
    ("simplebig", "bf16"): 4.5,
    ("complexsmall", "fp32"): 1.95,
    ("complexsmall", "bf16"): 3.4,
}
"""Required time of baseline / best plan, epochs from the second on, by the precision allowed."""

_EPOCHS = 3

Pairs = Sequence[tuple[Launched, Launched]]
"""A launch of the baseline and one of the best plan."""


def main() -> int:
    """Measure and show."""
    arguments, out = begin(_parser())
    arguments.epochs = arguments.epochs or (1 if arguments.photos is None else _EPOCHS)
    with Ddlplan.in_own_folder(own_cache=arguments.photos is not None) as ddlplan:
        data = arguments.data
        if arguments.photos is not None:
            folder = ddlplan.folder / "photos"
            data = link_photos(arguments.use_case, data, folder, arguments.photos)
        launches = Launches(ddlplan, arguments.use_case, data)
        best, tuned = _find_plan(launches, arguments)
        say_plan(out, best)
        baseline_id = launches.import_baseline(best)
        if tuned is None and arguments.epochs == 1:
            launches.launch(best["id"])  # reads the files once, which tuning has done otherwise
        pairs = _measure(out, launches, baseline_id, best["id"], arguments)
    results = [*_ratios(pairs, arguments), *_kept(pairs, best, arguments)]
    return out.conclude(results if tuned is None else [*results, _share(tuned)])


def _find_plan(
    launches: Launches, arguments: argparse.Namespace
) -> tuple[dict[str, Any], Answer | None]:
    """Give the plan to judge, and what tune said where it was not known before."""
    if arguments.plan is not None:
        return launches.import_plan(arguments.plan, arguments.precision), None
    if arguments.plan_db is not None:
        launches.copy_database(arguments.plan_db)
        return launches.best_plan(arguments.precision), None
    tuned = launches.tune(arguments.budget, arguments.precision)
    return tuned.data["plan"], tuned


def _measure(
    out: Output, launches: Launches, baseline_id: int, best_id: int, arguments: argparse.Namespace
) -> Pairs:
    def launch(name: str, plan_id: int) -> Launched:
        done = launches.launch(plan_id, arguments.epochs)
        counted = "" if arguments.epochs == 1 else " of the epochs from the 2nd on"
        out.say(
            f"{name:9} {done.wall_s:7.1f} s in all, {done.train_s:7.1f} s in training "
            f"steps{counted}, {done.samples_per_s:.1f} samples/s"
        )
        return done

    pairs = alternate(
        lambda: launch("baseline", baseline_id),
        lambda: launch("best plan", best_id),
        blocks=arguments.blocks,
    )
    samples = {launched.samples for pair in pairs for launched in pair}
    if len(samples) != 1:
        raise BenchError(f"epochs of {sorted(samples)} samples: unequal work cannot be compared")
    out.say()
    return pairs


def _ratios(pairs: Pairs, arguments: argparse.Namespace) -> list[Result]:
    whole = paired_ratio([(a.wall_s, b.wall_s) for a, b in pairs])
    steps = paired_ratio([(a.train_s, b.train_s) for a, b in pairs])
    said = "time of baseline / best plan"
    if arguments.epochs == 1:
        # With few photos it is the start of Python that is compared.
        low = 2.0 if arguments.photos is None else None
        return [
            Result(f"whole launch, {said}", whole, low=low),
            Result(f"training steps, {said}", steps),
        ]
    allowed = "fp32" if arguments.precision == "fp32" else "bf16"
    low = _STEADY.get((arguments.use_case, allowed))
    return [
        Result(f"training epochs from the 2nd on, {said}", steps, low=low),
        Result(f"whole launch, {said}", whole),
    ]


def _kept(pairs: Pairs, best: Mapping[str, Any], arguments: argparse.Namespace) -> list[Result]:
    """Hold launches against what was recorded when the plans were found."""
    launched = [(b.samples_per_s, b.expected_samples_per_s) for _, b in pairs]
    baselines = [(a.samples_per_s, a.expected_samples_per_s) for a, _ in pairs]
    results = [
        Result(
            "best plan, launched / recorded throughput",
            paired_ratio(launched),
            # In short epochs the first and the last step weigh too much.
            low=0.95 if arguments.photos is None else None,
            high=1.05 if arguments.photos is None else None,
        ),
        Result("baseline, launched / recorded throughput", paired_ratio(baselines)),
    ]
    if best["speedup"] is not None:
        count = best["throughput_samples_per_s"]["samples"]
        claimed = stated_interval(best["speedup"], count)
        results.insert(0, Result("speedup that tune claimed", claimed))
    return results


def _share(tuned: Answer) -> Result:
    """Give how much of the whole tune command was spent in training steps.

    The rest starts Python, loads torch, probes a new machine, looks through the photos or draws
    them, and starts and ends the trials.
    """
    share = tuned.data["stepping_share"] * tuned.data["elapsed_s"] / tuned.wall_s
    return Result("share of the tune command in training steps", 100 * share, "%", low=85)


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(__doc__, blocks=(1, "of four launches each"))
    add = parser.add_argument
    add("--use-case", default="simplebig", help="what to train (simplebig)")
    add("--data", type=Path, help="folder of photos, smaller ones for a first try")
    add("--photos", type=positive, help="train on so many of them (all)")
    add("--epochs", type=positive, help=f"of a launch ({_EPOCHS} with --photos, else 1)")
    add("--precision", choices=["fp32", "bf16", "auto"], default="fp32", help="allowed (fp32)")
    add("--budget", default="3m", help="time to tune (3m)")
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--plan-db", type=Path, help="take the plan from a copy of this database")
    known.add_argument("--plan", type=Path, help="take the plan that `plans export` wrote here")
    return parser


if __name__ == "__main__":
    run_bench(main)
