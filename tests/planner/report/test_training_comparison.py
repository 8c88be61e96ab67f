"""Two trainings are compared fact by fact, and a speed is called faster only where that shows."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import replace

from training_samples import EPOCH, TRAINING, usage_of

from planner.report.figures.axes import WIDTH
from planner.report.figures.training_figures import compared_figures, rate_figure
from planner.report.figures.usage_figures import learning_figures
from planner.report.runs import runs_csv
from planner.report.table import Terminal
from planner.report.training_comparison import (
    TrainingComparison,
    TrainingSide,
    compared_trainings_csv,
    compared_trainings_text,
    training_facts,
)


def side(number, rate, **changes):
    steady = [rate, 1.01 * rate, 0.99 * rate, rate, rate] * 10
    usage = {"vm": usage_of(samples_per_s=steady, busy_cores=[1.5] * 50)}
    return TrainingSide(record=replace(TRAINING, id=number, **changes), usage=usage)


def test_the_faster_training_is_named_with_its_interval():
    compared = TrainingComparison(first=side(1, 40.0), second=side(2, 20.0))
    assert compared.conclusion.startswith("training 1 is 2.00 ±0.5")
    assert compared.conclusion.endswith("times as fast as training 2")


def test_a_difference_that_the_machine_makes_by_itself_is_none():
    said = TrainingComparison(first=side(1, 20.0), second=side(2, 23.0)).conclusion
    assert said.startswith("no difference of speed shown: training 2 is 1.15")


def test_short_trainings_show_no_difference():
    first, second = (
        TrainingSide(record=replace(TRAINING, id=n), usage={"vm": usage_of(samples_per_s=[r] * 4)})
        for n, r in ((1, 20.0), (2, 25.0))
    )
    said = TrainingComparison(first=first, second=second).conclusion
    assert said.startswith("no difference of speed shown")


def test_other_use_cases_and_machines_are_warned_of():
    other = side(2, 20.0, use_case="complexsmall", machine="node2")
    warnings = TrainingComparison(first=side(1, 20.0), second=other).warnings
    assert [warning.split(":")[0] for warning in warnings] == [
        "training 1 is of simplebig and training 2 of complexsmall",
        "trainings 1 and 2 were started on different machines",
    ]


def test_text_fits_80_columns_and_csv_holds_every_fact():
    compared = TrainingComparison(first=side(1, 40.0), second=side(2, 20.0, seed=7))
    text = compared_trainings_text(compared, Terminal(width=80))
    assert max(map(len, text.splitlines()[:-1])) <= 80
    assert "*" in next(line for line in text.splitlines() if line.startswith("seed"))
    table = csv.DictReader(compared_trainings_csv(compared).splitlines())
    rows = {row["field"]: row for row in table}
    assert (rows["seed"]["differs"], rows["seed"]["second"]) == ("true", "7")
    assert rows["cores in use"]["first"] == "1.50"
    assert compared.to_json()["differences"] == ["seed", "samples/s"]


def test_of_scripts_only_what_is_known_is_compared():
    """The story: a loss of nan, a seed and epochs stood there of scripts that nobody looks into."""
    run = replace(EPOCH, train_loss=math.nan, validation_loss=None, metrics={})
    name = "script:python train.py --data hf:me/mine '{batch}'"
    script = replace(TRAINING, use_case=name, epochs_done=(run,))
    sides = [TrainingSide(record=replace(script, id=number)) for number in (1, 2)]
    text = compared_trainings_text(TrainingComparison(first=sides[0], second=sides[1]), Terminal())
    command = "python train.py --data hf:me/mine {batch}"
    assert command in text
    assert compared_figures([script])[0].columns == ("epoch", f"1: {command}")
    assert [word for word in ("nan", "script:", "seed", "epoch", "loss") if word in text] == []
    assert "nan" not in runs_csv([script])


def test_epochs_of_a_training_that_went_on_count_those_before_and_its_loss_is_of_one_that_trained():
    only_validated = replace(
        EPOCH, epoch=5, samples=0, train_loss=math.nan, throughput_samples_per_s=0.0
    )
    trained = replace(TRAINING, epochs=6, epochs_done=(only_validated, replace(EPOCH, epoch=6)))
    assert training_facts(trained, {})["epochs"] == "6 of 6"
    for figure in compared_figures([trained]):  # those of later epochs lay outside
        assert max(float(x) for x in re.findall(r"M([\d.]+) ", figure.svg)) <= WIDTH
    assert [row[1] for row in rate_figure(trained).rows] == ["", "20.0"]
    assert rate_figure(replace(trained, epochs_done=(only_validated,))).svg == ""
    ended = replace(trained, epochs_done=(replace(EPOCH, epoch=4), only_validated))
    assert training_facts(ended, {})["loss, last epoch"] == "0.7"


def test_figures_show_every_training_that_is_compared():
    figures = compared_figures([replace(TRAINING, id=number) for number in range(1, 9)])
    assert figures
    for figure in figures:
        assert [name.partition(":")[0] for name in figure.columns[1:]] == list("12345678")


def test_large_losses_have_no_power_of_ten():
    epoch = replace(EPOCH, train_loss=12345.6, validation_loss=23456.7, metrics={"error": 34567.8})
    facts = training_facts(replace(TRAINING, epochs_done=(epoch,)), {})
    assert facts["loss, last epoch"] == "12346"
    assert facts["validation loss, best epoch"] == "23457"
    assert facts["error"] == "34568"


def test_tables_of_figures_show_large_rates_as_they_are():
    """The story: 11090 samples/s were "1.109e+04" in the tables of two figures of a training."""
    epoch = replace(EPOCH, throughput_samples_per_s=11090.4)
    *_, rates = compared_figures([replace(TRAINING, epochs_done=(epoch,))])
    assert [list(row) for row in rates.rows] == [["1", "11090"]]
    (figure,) = learning_figures({"vm": usage_of(samples_per_s=[11090.4] * 3)})
    assert {cell for row in figure.rows for cell in row[1:]} == {"11090"}
