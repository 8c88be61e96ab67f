"""The cache lies where the user wants it and holds whole files only."""

from pathlib import Path

import pytest

from launch.errors import UseCaseError
from launch.system.cache import cache_folder, cache_lock, make_folder, read_json, write_json


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [
        ("/own", "/xdg", "/own"),
        (None, "/xdg", "/xdg/ddlplan"),
        (None, None, "/home/me/.cache/ddlplan"),
        ("", "relative", "/home/me/.cache/ddlplan"),
        ("~/mine", None, "/home/me/mine"),
    ],
)
def test_cache_follows_the_environment(monkeypatch, own, xdg, expected):
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in (("DDLPLAN_CACHE", own), ("XDG_CACHE_HOME", xdg)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_written_document_is_read_back_and_private(tmp_path):
    file = tmp_path / "below" / "document.json"
    write_json(file, {"answer": 42})
    assert read_json(file, dict[str, int]) == {"answer": 42}
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_failed_write_keeps_the_old_document(tmp_path):
    file = tmp_path / "document.json"
    write_json(file, 1)
    with pytest.raises(TypeError):
        write_json(file, object())
    assert read_json(file, int) == 1
    assert list(tmp_path.iterdir()) == [file]


def test_damaged_document_counts_as_missing(tmp_path):
    file = tmp_path / "document.json"
    file.write_text("{")
    assert read_json(file, int) is None


def test_cache_that_cannot_be_made_says_how_to_move_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UseCaseError, match="set DDLPLAN_CACHE"):
        make_folder(tmp_path / "file" / "below")


def test_cache_in_a_home_that_nobody_has_is_refused(monkeypatch):
    """The story: it was a bug of ddlplan."""
    monkeypatch.setenv("DDLPLAN_CACHE", "~no_such_user/cache")
    with pytest.raises(UseCaseError, match=r"^cache ~no_such_user/cache: .* to an absolute path$"):
        cache_folder()


def test_who_waits_for_what_another_makes_can_say_so(tmp_path):
    others = cache_lock(tmp_path / "made")
    others.__enter__()
    waits = []

    def wait():
        waits.append(1)
        others.__exit__(None, None, None)

    with cache_lock(tmp_path / "made", wait):
        assert waits == [1]
