"""Photos are painted once, all of them or none, the same every time."""

import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from launch.errors import UseCaseError
from launch.use_cases._painted.photo import CLASSES, paint_photo
from launch.use_cases._painted.photo_set import VERSION, PhotoSet

pytestmark = pytest.mark.usefixtures("cache")
PAINT = """
import sys
from launch.use_cases._painted.photo_set import PhotoSet

class Tell:
    def progress(self, done, total, what):
        print(done, flush=True)

PhotoSet("endless", int(sys.argv[1])).paint(Tell(), cores=2)
"""


def contents(folder):
    return {f"{f.parent.name}/{f.name}": f.read_bytes() for f in folder.glob("*/*")}


def start_painting(num_photos):
    """Paint in a process of its own, and wait until the first photos are there."""
    process = subprocess.Popen(
        [sys.executable, "-c", PAINT, str(num_photos)], stdout=subprocess.PIPE, text=True
    )
    assert int(process.stdout.readline()) > 0
    return process


def test_two_generations_give_the_same_bytes(report, monkeypatch, tmp_path):
    painted = []
    for cores in (1, 2):
        monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path / str(cores)))
        photos = PhotoSet("same", 30)
        assert photos.paint(report, cores=cores)
        painted.append(contents(photos.folder))
    assert len(painted[0]) == 30
    assert painted[0] == painted[1]


def test_classes_are_equally_frequent_and_progress_is_told(report):
    photos = PhotoSet("few", 20)
    photos.paint(report, cores=2)
    kinds = Counter(file.parent.name for file in photos.folder.glob("*/*"))
    assert kinds == {"fire": 7, "none": 7, "smoke": 6}
    assert report.progressed[-1] == (20, 20, "drawing photos for few")
    beside = {path.name for path in photos.folder.parent.iterdir()}
    assert beside == {photos.folder.name, f"{photos.folder.name}.lock"}


def test_sets_differ():
    assert paint_photo(1, 0)[1].tobytes() != paint_photo(2, 0)[1].tobytes()


def test_photos_vary_in_size_and_are_of_the_stated_one():
    sizes = [paint_photo(3, number)[1].size for number in range(12)]
    assert len(set(sizes)) > 6
    assert all(270 <= min(size) <= 330 and 360 <= max(size) <= 440 for size in sizes)


def test_fire_is_brighter_in_red_than_what_does_not_burn():
    heat = dict.fromkeys(CLASSES, 0.0)
    for number in range(60):
        kind, image = paint_photo(4, number)
        red, green, blue = np.asarray(image, dtype=int).transpose(2, 0, 1)
        heat[kind] += float(((red > 200) & (green < 190) & (blue < 90)).mean())
    assert heat["fire"] > 2 * max(heat["none"], heat["smoke"])


def test_set_that_is_there_is_not_painted_again(report):
    photos = PhotoSet("once", 6)
    assert photos.paint(report, cores=1)
    report.progressed.clear()
    assert not photos.paint(report, cores=1)
    assert report.progressed == []


def test_two_processes_paint_it_once(report):
    photos = PhotoSet("shared", 30)
    with ThreadPoolExecutor(2) as pool:
        painted = list(pool.map(lambda _: photos.paint(report, cores=1), range(2)))
    assert sorted(painted) == [False, True]
    assert len(contents(photos.folder)) == 30


def test_killed_run_leaves_no_half_set_and_the_next_one_completes(report, cache):
    process = start_painting(100_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [p.name for p in (cache / "photos").iterdir() if p.is_dir()] == [
        f"endless-v{VERSION}.part"
    ]
    photos = PhotoSet("endless", 9)
    assert photos.paint(report, cores=2)
    assert len(contents(photos.folder)) == 9
    assert [p.name for p in (cache / "photos").iterdir() if p.is_dir()] == [f"endless-v{VERSION}"]


def test_interrupted_run_cleans_up(cache):
    process = start_painting(100_000)
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    assert not [p for p in (cache / "photos").iterdir() if p.is_dir()]


def test_cache_that_cannot_be_written_says_how_to_move_it(report, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path / "file"))
    with pytest.raises(UseCaseError, match="set DDLPLAN_CACHE to a folder elsewhere"):
        PhotoSet("nowhere", 3).paint(report, cores=1)


def test_photos_that_cannot_be_saved_leave_nothing(report, cache, monkeypatch):
    monkeypatch.setattr(
        "launch.use_cases._painted.photo_set.CLASSES", ("fire",)
    )  # no folder for the others
    photos = PhotoSet("broken", 6)
    with pytest.raises(UseCaseError, match=r"photos cannot be drawn .*No such file"):
        photos.paint(report, cores=2)
    assert [p.name for p in (cache / "photos").iterdir()] == [f"broken-v{VERSION}.lock"]


def test_painting_loads_no_torch():
    program = (
        "import sys, launch.use_cases._painted.photo; import launch.data.images.index; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
