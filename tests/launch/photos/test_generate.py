"""Photos are drawn once, all of them or none, the same every time."""

import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from launch.errors import UseCaseError
from launch.photos.draw import CLASSES, draw_photo
from launch.photos.generate import GeneratedPhotos

DRAW = """
import sys
from launch.photos.generate import GeneratedPhotos

class Tell:
    def progress(self, done, total, what):
        print(done, flush=True)

GeneratedPhotos("endless", int(sys.argv[1])).generate(Tell(), cores=2)
"""


def contents(folder):
    return {f"{f.parent.name}/{f.name}": f.read_bytes() for f in folder.glob("*/*")}


def start_drawing(num_photos):
    """Draw in a process of its own, and wait until the first photos are there."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRAW, str(num_photos)], stdout=subprocess.PIPE, text=True
    )
    assert int(process.stdout.readline()) > 0
    return process


def test_two_generations_give_the_same_bytes(report, monkeypatch, tmp_path):
    drawn = []
    for cores in (1, 2):
        monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path / str(cores)))
        photos = GeneratedPhotos("same", 30)
        assert photos.generate(report, cores=cores)
        drawn.append(contents(photos.folder))
    assert len(drawn[0]) == 30
    assert drawn[0] == drawn[1]


def test_classes_are_equally_frequent_and_progress_is_told(report):
    photos = GeneratedPhotos("few", 20)
    photos.generate(report, cores=2)
    kinds = Counter(file.parent.name for file in photos.folder.glob("*/*"))
    assert kinds == {"fire": 7, "none": 7, "smoke": 6}
    assert report.progressed[-1] == (20, 20, "drawing photos for few")
    beside = {path.name for path in photos.folder.parent.iterdir()}
    assert beside == {photos.folder.name, f"{photos.folder.name}.lock"}


def test_sets_differ():
    assert draw_photo(1, 0)[1].tobytes() != draw_photo(2, 0)[1].tobytes()


def test_photos_vary_in_size_and_are_of_the_stated_one():
    sizes = [draw_photo(3, number)[1].size for number in range(12)]
    assert len(set(sizes)) > 6
    assert all(270 <= min(size) <= 330 and 360 <= max(size) <= 440 for size in sizes)


def test_fire_is_brighter_in_red_than_what_does_not_burn():
    heat = dict.fromkeys(CLASSES, 0.0)
    for number in range(60):
        kind, image = draw_photo(4, number)
        red, green, blue = np.asarray(image, dtype=int).transpose(2, 0, 1)
        heat[kind] += float(((red > 200) & (green < 190) & (blue < 90)).mean())
    assert heat["fire"] > 2 * max(heat["none"], heat["smoke"])


def test_set_that_is_there_is_not_drawn_again(report):
    photos = GeneratedPhotos("once", 6)
    assert photos.generate(report, cores=1)
    report.progressed.clear()
    assert not photos.generate(report, cores=1)
    assert report.progressed == []


def test_two_processes_draw_it_once(report):
    photos = GeneratedPhotos("shared", 30)
    with ThreadPoolExecutor(2) as pool:
        drew = list(pool.map(lambda _: photos.generate(report, cores=1), range(2)))
    assert sorted(drew) == [False, True]
    assert len(contents(photos.folder)) == 30


def test_killed_run_leaves_no_half_set_and_the_next_one_completes(report, cache):
    process = start_drawing(100_000)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [p.name for p in (cache / "photos").iterdir() if p.is_dir()] == ["endless-v1.part"]
    photos = GeneratedPhotos("endless", 9)
    assert photos.generate(report, cores=2)
    assert len(contents(photos.folder)) == 9
    assert [p.name for p in (cache / "photos").iterdir() if p.is_dir()] == ["endless-v1"]


def test_interrupted_run_cleans_up(cache):
    process = start_drawing(100_000)
    process.send_signal(signal.SIGINT)
    assert process.wait() != 0
    assert not [p for p in (cache / "photos").iterdir() if p.is_dir()]


def test_cache_that_cannot_be_written_says_how_to_move_it(report, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path / "file"))
    with pytest.raises(UseCaseError, match="set DDLPLAN_CACHE to a folder elsewhere"):
        GeneratedPhotos("nowhere", 3).generate(report, cores=1)


def test_photos_that_cannot_be_saved_leave_nothing(report, cache, monkeypatch):
    monkeypatch.setattr("launch.photos.generate.CLASSES", ("fire",))  # no folder for the others
    photos = GeneratedPhotos("broken", 6)
    with pytest.raises(UseCaseError, match=r"photos cannot be drawn .*No such file"):
        photos.generate(report, cores=2)
    assert [p.name for p in (cache / "photos").iterdir()] == ["broken-v1.lock"]


def test_drawing_loads_no_torch():
    program = (
        "import sys, launch.photos.draw, launch.photos.index; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
