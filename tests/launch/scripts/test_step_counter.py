"""Step counter: steps of a launched script, which never waits and never ends because of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from counted_scripts import run_counted, run_watched
from torch_stand_in import write_torch

from launch.scripts.shim import VARIABLE
from launch.scripts.step_counter import CountedSteps, StepCounter

HEAD = "import os, time\nfrom torch.optim.optimizer import SGD\noptimizer = SGD()\n"
STEPS = "for _ in range(50):\n    time.sleep(0.01)\n    optimizer.step()\n"
END = "open('end', 'w').close()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_torch(tmp_path)
    return tmp_path


def launch(folder: Path, source: str) -> tuple[int, CountedSteps | None]:
    (folder / "train.py").write_text(source)
    return run_counted(folder, "train.py")


def test_steps_after_the_warm_up_are_counted_with_all_of_their_time(folder):
    code, counted = launch(folder, HEAD + STEPS)
    assert code == 0
    assert counted is not None
    # The first one has no begin: it is in the time of the start.
    assert (counted.made, counted.counted) == (50, 42)
    assert counted.time_s >= 42 * 0.01


def test_samples_of_a_step_are_those_that_a_process_reads(folder):
    loop = (
        "for number, _ in enumerate(DataLoader([32] * 40)):\n    number % 2 and optimizer.step()\n"
    )
    loader = "from torch.utils.data.dataloader import DataLoader\n"
    code, counted = launch(folder, HEAD + loader + loop)
    assert code == 0
    assert counted is not None
    assert (counted.made, counted.samples, counted.ranks) == (20, 2 * 32, 1)


@pytest.mark.parametrize(
    ("shapes", "samples", "last", "read"),
    [
        ([(7, 32)] * 39 + [(9, 5)], 32, 5, 39 * 32 + 5),  # time comes first, and differs
        ([(32, 32)] * 39 + [(5, 32)], 32, 5, 39 * 32 + 5),  # as many features as samples
        ([(10, 32)], 10, 10, 10),  # as many features as a whole batch has samples
    ],
)
def test_samples_may_be_the_second_dimension_of_a_batch(folder, shapes, samples, last, read):
    """Ten samples of 32 features were 32 where no batch is whole: they are all of the data."""
    loop = (
        "from torch.utils.data.dataloader import DataLoader\n"
        f"loader = DataLoader({shapes})\n"
        f"loader.batch_size, loader.sampler = 32, range({read})\n"
        f"for _ in range({40 // len(shapes)}):\n"
        "    for _ in loader: optimizer.step()\n"
    )
    code, counted = launch(folder, HEAD + loop)
    assert code == 0
    assert counted is not None
    assert (counted.samples, counted.counted) == (samples, 32)
    assert counted.whole_share == pytest.approx((31 * samples + last) / (32 * samples))


def test_batches_that_the_first_rank_reads_for_all_count_once(folder):
    """As Accelerate reads an iterable data set: on two ranks a launch had twice its rate."""
    place = "os.environ.update(RANK='{}', WORLD_SIZE='2')\n"
    loader = "from torch.utils.data.dataloader import DataLoader\n"
    loop = "for number, _ in enumerate({}):\n    number % 2 and optimizer.step()\n"
    (folder / "first.py").write_text(
        HEAD + place.format(0) + loader + loop.format("DataLoader([32] * 80)")
    )
    (folder / "second.py").write_text(HEAD + place.format(1) + loop.format("range(80)"))
    with StepCounter() as counter:
        codes = [run_watched(counter, folder, name) for name in ("first.py", "second.py")]
    counted = counter.result()
    assert codes == [0, 0]
    assert counted is not None
    assert (counted.made, counted.samples, counted.ranks) == (40, 32, 2)
    assert counted.whole_share == pytest.approx(1.0)


def test_script_that_has_no_file_left_runs_on(folder):
    """The story: the socket could not be made, and that ended the training."""
    few = "import resource, socket, sys\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
    assert launch(folder, HEAD + few + STEPS + "sys.exit(7)") == (7, None)


def test_script_that_closes_all_its_files_runs_on(folder):
    code, _ = launch(folder, HEAD + STEPS + "os.closerange(3, 256)\n" + STEPS + END)
    assert code == 0
    assert (folder / "end").exists()


@pytest.mark.parametrize(
    ("end", "said"), [("raise SystemExit", ""), ("raise SystemExit('no job')", "no job\n")]
)
def test_child_that_was_forked_ends_without_a_word_of_ours(folder, capfd, end, said):
    """One that ended with words counted as another rank, and the launch had no rate."""
    child = f"pid = os.fork()\nif not pid: {end}\nos.waitpid(pid, 0)\n"
    code, counted = launch(folder, HEAD + STEPS + child + STEPS)
    assert (code, capfd.readouterr().err) == (0, said)
    assert counted is not None
    assert counted.made == 100


def test_error_that_ends_a_script_has_its_words(folder):
    (folder / "train.py").write_text(HEAD + STEPS + "raise ValueError('no\\nlabels')\n")
    with StepCounter() as counter:
        code = run_watched(counter, folder, "train.py")
    assert (code, counter.ended_by) == (1, "ValueError: no\nlabels\n")


def test_words_of_an_error_are_told_where_the_steps_of_another_process_cannot_be(folder):
    """The story: what others had told was left unread once there was a process whose steps have no
    pattern, and was kept until the end."""
    odd = "two = SGD(), SGD()\nfor number in range(1000): two[number.bit_count() % 2].step()\n"
    (folder / "odd.py").write_text(HEAD + odd)
    second = "os.environ['RANK'] = '1'\n"
    (folder / "train.py").write_text(HEAD + second + STEPS + "raise ValueError('no labels')\n")
    with StepCounter() as counter:
        codes = [run_watched(counter, folder, name) for name in ("odd.py", "train.py")]
    assert (codes, counter.ended_by) == ([0, 1], "ValueError: no labels\n")
    assert counter.result() is None


def test_settings_of_the_counter_are_not_left_to_what_a_script_starts_and_none_is_no_rate(folder):
    source = f"import os, sys\nsys.exit({VARIABLE!r} in os.environ)\n"
    assert launch(folder, source) == (0, None)
