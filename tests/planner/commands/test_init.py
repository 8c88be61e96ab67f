"""`ddlplan init` writes a file of its own and says what is left to do in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from planner.commands.use_cases.init import write_draft
from planner.errors import UsageError
from planner.report.output import Output
from tests.launch.small_files import files_of_at_most

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def script(ddlplan) -> Path:
    return Path(shutil.copy(EXAMPLES / "plain_loop.py", ddlplan.folder))


def test_the_file_is_beside_the_script_and_its_todos_are_named_with_their_lines(ddlplan, script):
    ended = ddlplan.run("init", "plain_loop.py")
    assert ended.code == 0, ended.err
    lines = (ddlplan.folder / "plain_loop_case.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if "# TODO: " in line]
    assert f"plain_loop_case.py:{number}: TODO: validation samples" in ended.out
    last = ended.out.splitlines()[-1]
    assert last == "then: ddlplan use-cases check plain_loop_case.py:PlainLoop"
    assert ddlplan.listing() == ["plain_loop.py", "plain_loop_case.py"]


def test_a_document_has_what_was_found(ddlplan, script):
    data = ddlplan.data("init", "plain_loop.py", "--output", "mine.py")
    assert data["use_case"] == "mine.py:PlainLoop"
    assert data["found"].keys() == {"model", "dataset", "loss", "optimizer"}
    lines = script.read_text().splitlines()
    assert "optimizer = torch.optim.SGD" in lines[data["found"]["optimizer"] - 1]
    assert [todo["text"].partition(":")[0] for todo in data["todo"]] == ["validation samples"]


def test_a_file_that_exists_is_never_replaced(ddlplan, script):
    mine = ddlplan.folder / "mine.py"
    mine.write_text("kept")
    error = ddlplan.run("init", "plain_loop.py", "--output", "mine.py").refusal()
    assert error == "error: mine.py: it is there already: name another file by --output"
    assert mine.read_text() == "kept"


def test_a_script_that_is_not_there_and_a_folder_that_is_not_are_one_line_each(ddlplan, script):
    for arguments, message in (
        (["no.py"], "no.py: No such file or directory: name a script"),
        ([f"{'no' * 200}.py"], "no.py: File name too long: name a script"),
        (
            ["plain_loop.py", "--output", "no/case.py"],
            "no/case.py: No such file or directory: name",
        ),
    ):
        assert message in ddlplan.run("init", *arguments).refusal()
    assert ddlplan.listing() == ["plain_loop.py"]


def test_code_that_cannot_be_taken_over_is_one_line(ddlplan, script):
    """The story: a long sum and a number of 5000 digits were called bugs, a device was read."""
    code = script.read_text()
    (ddlplan.folder / "deep.py").write_text(f"{code}\nx = {'a + ' * 3000}a\n")
    (ddlplan.folder / "long.py").write_text(code.replace("lr=0.05", f"lr=0x{'f' * 5000}"))
    (ddlplan.folder / "zero.py").symlink_to("/dev/zero")
    for name, message in (
        ("deep.py", "deep.py: its code cannot be taken over (maximum recursion depth exceeded"),
        ("long.py", "long.py: its code cannot be taken over (Exceeds the limit"),
        ("zero.py", "zero.py: it is no regular file: name a script"),
    ):
        assert message in ddlplan.run("init", name).refusal()


def test_name_of_a_script_is_no_code_of_the_file(ddlplan, script):
    name = '"""\nraise SystemExit.py'
    script.rename(ddlplan.folder / name)
    assert ddlplan.run("init", name, "--output", "mine.py").code == 0
    text = (ddlplan.folder / "mine.py").read_text()
    compile(text, "mine.py", "exec")
    assert not any(line.startswith("raise") for line in text.splitlines())


def test_script_whose_name_is_not_utf_8_is_taken_over(ddlplan, script):
    """The story: that was called a bug, and left an empty file, which is never replaced."""
    script.rename(ddlplan.folder / "tr\udcff.py")
    ended = ddlplan.run("init", "tr\udcff.py")
    assert ended.code == 0, ended.err
    text = (ddlplan.folder / "tr\udcff_case.py").read_text()
    assert "# TODO: validation samples: tr\\udcff.py has none" in text


def test_full_disk_leaves_no_part_of_the_file_behind(tmp_path):
    """The story: after one, the same command said that the file is there already."""
    script = Path(shutil.copy(EXAMPLES / "plain_loop.py", tmp_path))
    with files_of_at_most(100), pytest.raises(UsageError, match="File too large: name another"):
        write_draft(script, None, Output("init", as_json=False))
    assert [file.name for file in tmp_path.iterdir()] == ["plain_loop.py"]
