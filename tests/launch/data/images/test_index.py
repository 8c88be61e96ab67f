"""Every file is decoded once; what is no sound picture is named and left out."""

import os
import shutil

import pytest

from launch.data.images.index import read_index, update_index
from launch.errors import UseCaseError


def update(data, report):
    return update_index(data, report, cores=2)


def photos(split):
    return {name for name, _ in split.train + split.validation}


def test_sound_folder_gives_no_warning(data, report):
    split = update(data, report)
    assert split.classes == ("cats", "dogs")
    assert len(photos(split)) == 24
    assert report.warnings == []
    assert report.progressed[-1] == (24, 24, "checking photos")


def test_index_is_read_back_as_it_was_found(data, report):
    found = update(data, report)
    assert read_index(data) == found


def test_index_that_was_never_made_says_who_makes_it(data):
    with pytest.raises(UseCaseError, match="call the use case's prepare"):
        read_index(data)


def test_second_look_decodes_nothing(data, report):
    update(data, report)
    report.progressed.clear()
    update(data, report)
    assert report.progressed == []


def test_only_new_and_changed_files_are_looked_at_again(data, report, save):
    update(data, report)
    report.progressed.clear()
    save("cats/new.jpg")
    (data / "dogs" / "1.jpg").write_bytes(b"changed")
    (data / "dogs" / "2.jpg").unlink()
    split = update(data, report)
    assert report.progressed[-1][:2] == (2, 2)
    assert "cats/new.jpg" in photos(split)
    assert not photos(split) & {"dogs/1.jpg", "dogs/2.jpg"}


def test_truncated_photo_is_named_and_skipped(data, report):
    file = data / "cats" / "3.jpg"
    file.write_bytes(file.read_bytes()[:-200])
    assert "cats/3.jpg" not in photos(update(data, report))
    (warning,) = report.warnings
    assert warning.startswith(f"skipped {file}: is damaged: ")
    assert warning.endswith(": replace or remove it")


def test_foreign_files_are_named_and_skipped(data, report):
    (data / "cats" / "notes.jpg").write_text("no picture")
    (data / "cats" / "empty.png").touch()
    (data / "readme.txt").write_text("hello")
    os.mkfifo(data / "dogs" / "pipe.jpg")
    assert len(photos(update(data, report))) == 24
    assert [warning.split(": ")[1] for warning in report.warnings] == [
        "is no picture in JPEG, PNG, WEBP, BMP, GIF, TIFF",
        "is no picture in JPEG, PNG, WEBP, BMP, GIF, TIFF",
        "is no file",
        "is in no class folder",
    ]


def test_warnings_are_repeated_when_nothing_changed(data, report):
    (data / "cats" / "notes.jpg").write_text("no picture")
    update(data, report)
    update(data, report)
    assert len(report.warnings) == 2


def test_a_flood_of_damaged_files_is_counted(data, report):
    for number in range(15):
        (data / "cats" / f"bad{number}.jpg").touch()
    update(data, report)
    assert len(report.warnings) == 11
    assert report.warnings[-1].startswith("skipped 5 more files of ")


def test_suffix_says_nothing(report, save, tmp_path):
    save("cats/1.JPG", format="JPEG")
    save("cats/2.PNG", format="PNG")
    save("dogs/3.webp", format="WEBP")
    save("dogs/4", format="JPEG")
    assert len(photos(update(tmp_path / "data", report))) == 4
    assert report.warnings == []


def test_folder_of_one_class_is_told(data, report):
    shutil.rmtree(data / "dogs")
    with pytest.raises(UseCaseError, match=r"photos of one class \(cats\): put those of each"):
        update(data, report)


def test_class_without_sound_photos_does_not_count(data, report):
    shutil.rmtree(data / "dogs")
    (data / "dogs").mkdir()
    (data / "dogs" / "1.jpg").touch()
    with pytest.raises(UseCaseError, match="one class"):
        update(data, report)


def test_folder_without_photos_is_told_and_nothing_is_written(report, tmp_path, cache):
    (tmp_path / "data" / "cats").mkdir(parents=True)
    with pytest.raises(UseCaseError, match="has no photos"):
        update(tmp_path / "data", report)
    assert not cache.exists()


def test_nothing_is_written_into_the_users_folder(data, report):
    for folder in (data, *data.iterdir()):
        folder.chmod(0o555)
    before = sorted(data.rglob("*"))
    update(data, report)
    assert sorted(data.rglob("*")) == before
    for folder in (data, *data.iterdir()):
        folder.chmod(0o755)


def test_damaged_index_is_made_again(data, report, cache):
    update(data, report)
    (file,) = (cache / "photos" / "index").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    for text in ("{", "[]", '{"version": 1}', '{"version": 1, "files": {"a": 3}}'):
        file.write_text(text)
        assert len(photos(update(data, report))) == 24
