"""Figures of a study: trials with the best so far, strategies, failures, effects of settings."""

from __future__ import annotations

from collections.abc import Sequence

from planner.quantities import format_interval, format_number
from planner.records.progress import SearchProgress
from planner.records.study_record import FailureCount
from planner.report.figures.curves import TrialPoint, trial_plot
from planner.report.figures.figure import Figure
from planner.report.figures.rows import Mark, bar_plot, change_mark, point_plot, rate_mark
from planner.report.plan_line import describe_plan, describe_settings
from planner.report.worth import change
from planner.trials.result import Outcome
from planner.tuning.study import StoredTrial
from planner.worth.setting_effects import SettingEffect
from probes.timing import Interval

_MOST_REASONS, _MOST_EFFECTS = 8, 18


def trials_figure(trials: Sequence[StoredTrial], *, num_trials: int) -> Figure | None:
    """Show samples per second of a study's latest trials in the order in which they ended."""
    if not trials:
        return None
    points, rows, best = [], [], None
    for trial in trials:
        result = trial.result
        rate = result.throughput_samples_per_s()
        if rate is not None and result.role.is_for_choice and result.outcome is Outcome.OK:
            best = max(best or 0.0, rate.median)
        points.append(
            TrialPoint(
                x=trial.number,
                value=None if rate is None else rate.median,
                low=None if rate is None else rate.low,
                high=None if rate is None else rate.high,
                best=best,
                was_ended=result.outcome is Outcome.SLOWER,
            )
        )
        rows.append(
            (
                str(trial.number),
                format_interval(rate) or result.outcome.words,
                "" if best is None else format_number(best),
                describe_settings(result.plan),
            )
        )
    shown = "" if len(trials) == num_trials else f" The latest {len(trials)} of {num_trials}."
    return Figure(
        title="Trials and the best so far",
        svg=trial_plot(
            points,
            title="samples per second of the trials of this study",
            x_title="trial, in the order in which they ended",
            y_title="samples/s",
        ),
        columns=("trial", "samples/s", "best so far", "plan"),
        rows=rows,
        note=f"Dots are medians, bars their 95 % intervals; crosses failed or had no time.{shown}",
    )


def strategies_figure(trials: Sequence[StoredTrial]) -> Figure | None:
    """Show each strategy's fastest plan to choose; ``None`` where there is but one strategy."""
    fastest: dict[str, tuple[Interval, StoredTrial]] = {}
    for trial in trials:
        result = trial.result
        rate = result.throughput_samples_per_s()
        if rate is None or result.outcome is not Outcome.OK or not result.role.is_for_choice:
            continue
        strategy = result.plan.strategy
        if strategy not in fastest or rate.median > fastest[strategy][0].median:
            fastest[strategy] = rate, trial
    if len(fastest) < 2:
        return None
    ranked = sorted(fastest.items(), key=lambda item: -item[1][0].median)
    marks, rows = [], []
    for number, (strategy, (rate, trial)) in enumerate(ranked):
        label = f"{strategy} {describe_settings(trial.result.plan)}"
        marks.append(rate_mark(label, rate, is_main=number == 0))
        rows.append((strategy, describe_plan(trial.result.plan), format_interval(rate)))
    return Figure(
        title="Fastest trial of each strategy",
        svg=bar_plot(marks, title="samples per second by strategy", unit="samples/s"),
        columns=("strategy", "plan", "samples/s"),
        rows=rows,
    )


def failures_figure(failures: Sequence[FailureCount]) -> Figure | None:
    """Show how often trials failed, by reason; ``None`` where none did."""
    if not failures:
        return None
    ranked = sorted(failures, key=lambda one: -one.count)
    marks = [
        Mark(
            label=f"{one.outcome.replace('_', ' ')}: {one.reason or 'no reason given'}",
            value=one.count,
            text=str(one.count),
        )
        for one in ranked[:_MOST_REASONS]
    ]
    return Figure(
        title="Failed trials by reason",
        svg=bar_plot(
            marks, title="number of failed trials by reason", unit="trials", is_counted=True
        ),
        columns=("outcome", "reason", "trials"),
        rows=[(one.outcome.replace("_", " "), one.reason or "", str(one.count)) for one in ranked],
    )


def effects_figure(effects: Sequence[SettingEffect]) -> Figure | None:
    """Show what other values of settings would do to the best plan; ``None`` without any."""
    if not effects:
        return None
    # The surest and largest are what one looks for.
    ranked = sorted(effects, key=lambda one: abs(one.speed.median - 1), reverse=True)
    shown = sorted(ranked[:_MOST_EFFECTS], key=lambda one: (one.setting, -one.speed.median))
    marks = [
        change_mark(f"{one.setting.replace('_', ' ')}: {one.value} → {one.other}", one.speed)
        for one in shown
    ]
    return Figure(
        title="What each setting does to the best plan",
        svg=point_plot(
            marks,
            title="change of samples per second with one setting changed",
            unit="% of samples/s",
        ),
        columns=("setting", "best plan", "other", "samples/s", "trials with it"),
        rows=[
            (one.setting, one.value, one.other, change(one.speed), str(one.speed.count))
            for one in effects
        ],
        note="From a model of all trials at once, those that differ in several settings included, "
        "with the range that holds with 95 %. A plan's page shows the same changes as pairs of "
        "trials measured them: trust those first where there are any.",
    )


def race_figure(progress: SearchProgress) -> Figure | None:
    """Show how the contenders of a race stand; ``None`` before it."""
    known = [one for one in progress.standings if one.throughput_samples_per_s is not None]
    ranked = sorted(
        known, key=lambda one: (one.reason is not None, -(one.throughput_samples_per_s or 0))
    )
    marks = [
        Mark(
            label=describe_plan(one.plan),
            value=one.throughput_samples_per_s or 0.0,
            text=f"{format_number(one.throughput_samples_per_s or 0.0)}"
            + (", leads" if one.is_leading else ", left" if one.reason else ""),
            is_main=one.is_leading,
        )
        for one in ranked[:_MOST_EFFECTS]
    ]
    if not marks:
        return None
    return Figure(
        title="The race now",
        svg=bar_plot(marks, title="samples per second of the contenders", unit="samples/s"),
        columns=("plan", "samples/s", "speed against the leader", "state"),
        rows=[
            (
                describe_plan(one.plan),
                ""
                if one.throughput_samples_per_s is None
                else format_number(one.throughput_samples_per_s),
                "" if one.speedup is None else change(one.speedup),
                "leads"
                if one.is_leading
                else f"left: {one.reason}"
                if one.reason
                else "takes turns",
            )
            for one in progress.standings
        ],
    )
