"""Working folder of a script: a folder without a private view is refused with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.errors import ScriptError
from launch.scripts.working_folder import open_working_folder


def test_folder_that_holds_the_temporary_files_is_told_by_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It was told that it has no overlay and more than 512 MiB, and was empty."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with pytest.raises(ScriptError) as refused, open_working_folder(tmp_path):
        pass
    assert str(refused.value) == (
        f"folder {tmp_path} holds that of temporary files, {temporary}: set TMPDIR to a folder "
        "outside of it, or pass --in-place where the script may write"
    )
    with open_working_folder(tmp_path, in_place=True) as view:
        assert view.path == tmp_path
    assert list(temporary.iterdir()) == []
