"""Files of a folder get their class and split by their names."""

import os

import pytest

from launch.data.images.tree import has_split, list_files, split_photos
from launch.errors import UseCaseError

NAMES = [f"{kind}/{number:04d}.jpg" for kind in ("fire", "none") for number in range(500)]


def names_of(photos):
    return {name for name, _ in photos}


def test_a_tenth_is_kept_apart():
    split = split_photos(NAMES, is_presplit=False)
    assert 70 <= len(split.validation) <= 130
    assert names_of(split.train) | names_of(split.validation) == set(NAMES)
    assert not names_of(split.train) & names_of(split.validation)


def test_split_is_stable_when_photos_are_added():
    before = split_photos(NAMES[::3], is_presplit=False)
    after = split_photos(NAMES, is_presplit=False)
    assert names_of(before.validation) <= names_of(after.validation)
    assert names_of(before.train) <= names_of(after.train)


@pytest.mark.parametrize("count", range(2, 12))
def test_neither_side_of_a_tiny_folder_is_empty(count):
    split = split_photos(NAMES[:count], is_presplit=False)
    assert split.train
    assert split.validation


def test_classes_are_numbered_in_the_order_of_their_names():
    split = split_photos(["b/1", "a/1", "c/deep/below/1"], is_presplit=False)
    assert split.classes == ("a", "b", "c")
    assert set(split.train + split.validation) == {("b/1", 1), ("a/1", 0), ("c/deep/below/1", 2)}


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_split_of_the_user_is_kept(validation):
    names = ["train/a/1", "train/a/2", "train/b/1", f"{validation}/a/1"]
    assert has_split(names)
    split = split_photos([*names, "test/a/1"], is_presplit=True)
    assert split.classes == ("a", "b")
    assert names_of(split.validation) == {f"{validation}/a/1"}
    assert names_of(split.train) == set(names[:3])


def test_class_called_train_is_no_split():
    assert not has_split(["train/1.jpg", "val/1.jpg", "plane/1.jpg"])
    assert not has_split(["train/a/1.jpg", "plane/a/1.jpg"])


def test_hidden_files_and_folders_are_not_there(save, data):
    save(".hidden/1.jpg")
    save("cats/.1.jpg")
    assert len(list_files(data)) == 24


def test_links_are_followed_and_rings_are_not_run_through(save, data, tmp_path):
    (data / "cats" / "more").symlink_to(data / "dogs")
    (data / "cats" / "ring").symlink_to(data)
    (data / "cats" / "one.jpg").symlink_to(data / "dogs" / "1.jpg")
    (data / "cats" / "dead.jpg").symlink_to(data / "nothing")
    files = list_files(data)
    assert "cats/more/3.jpg" in files
    assert "cats/ring/cats/1.jpg" not in files
    assert files["cats/one.jpg"] == files["dogs/1.jpg"]
    assert files["cats/dead.jpg"] is None


def test_name_that_is_no_text_is_listed(data):
    (data / "cats" / "1.jpg").rename(data / "cats" / os.fsdecode(b"\xff.jpg"))
    names = list_files(data)
    assert "cats/\udcff.jpg" in names
    assert len(split_photos(names, is_presplit=False).classes) == 2


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_folder_that_cannot_be_read_is_told(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(UseCaseError, match=f"{name}: .*: name a folder with one sub-folder"):
        list_files(tmp_path / name)
