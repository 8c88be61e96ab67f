"""Odd programs: each gets one clear line, and nothing of it is left."""

from __future__ import annotations

import py_compile
import sys
import zipapp
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.errors import ScriptFailedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from launch.scripts.script_process import ScriptProcess
from launch.scripts.working_folder import open_working_folder
from probes.hardware import Hardware
from tests.launch.scripts.odd_programs import ODD, STEPS, Odd
from tests.launch.scripts.temporary_processes import below


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def make_many(script: RunningScript, time_limit_s: float) -> None:
    for _ in range(3):
        script.make_steps(4, time_limit_s=time_limit_s)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_program_gets_one_line_and_leaves_nothing(
    odd: Odd, tmp_path: Path, temporary: Path, two_cores: Hardware, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "folder"
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    texts = {
        "train.py": odd.source,
        "data.txt": "kept",
        **odd.files,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    write_torch(folder)
    before, outside = files_of(folder), tmp_path / "outside"
    places = {"{python}": sys.executable, "{outside}": str(outside)}
    words = [places.get(word, word) for word in odd.command]
    program = Program.parse(words, cores=2)
    plan = Plan(strategy="script", node_batch=1)
    with RunningScript(program, plan, two_cores, folder=folder) as script:
        if odd.says is None:
            script.make_steps(2, time_limit_s=odd.time_limit_s)
            assert len(script.make_steps(3, time_limit_s=odd.time_limit_s)) == 3
        else:
            with pytest.raises(ScriptFailedError) as raised:
                make_many(script, odd.time_limit_s)
            assert odd.says in raised.value.reason
            assert "\n" not in raised.value.reason
    # A daemon that is left behind is no descendant of this process.
    assert below(temporary) == set()
    assert outside.exists() == ("{outside}" in odd.command)
    assert files_of(folder) == before
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["train.pyc", "train.pyz", "train"])
def test_compiled_script_and_archive_of_any_name_run_as_python_runs_them(
    name: str, tmp_path: Path, two_cores: Hardware
):
    """The story: but for .zip and .pyz they were read as source, which has no null bytes."""
    source = tmp_path / "parts/__main__.py"
    source.parent.mkdir()
    source.write_text("import sys\nsys.path.insert(0, '.')\n" + STEPS + "steps()")
    if name.endswith(".pyc"):
        py_compile.compile(str(source), str(tmp_path / name), doraise=True)
    else:
        zipapp.create_archive(source.parent, tmp_path / name)
    write_torch(tmp_path)
    program = Program.parse([sys.executable, name], cores=2)
    plan = Plan(strategy="script", node_batch=1)
    with RunningScript(program, plan, two_cores, folder=tmp_path) as script:
        script.make_steps(2, time_limit_s=120.0)
        assert len(script.make_steps(3, time_limit_s=120.0)) == 3


def test_program_that_prints_and_counts_is_bounded(tmp_path: Path, two_cores: Hardware):
    source = "import sys\nfor n in range(40): sys.stdout.write('x' * 2**20)\nsys.exit('the end')"
    (tmp_path / "train.py").write_text(source)
    program = Program.parse([sys.executable, "train.py"], cores=2)
    plan = Plan(strategy="script", node_batch=1)
    with RunningScript(program, plan, two_cores, folder=tmp_path) as script:
        with pytest.raises(ScriptFailedError, match="exit code 1"):
            script.make_steps(1, time_limit_s=120.0)
        assert script.output_tail.endswith("the end\n")
        assert len(script.output_tail) <= 2**16


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_of_the_output_count_as_steps(end: str, tmp_path: Path, two_cores: Hardware):
    source = (
        "import time\nn = 0\nwhile True:\n"
        f"    n += 1; print('step', n, end={end!r})\n    time.sleep(0.001)"
    )
    (tmp_path / "train.py").write_text(source)
    program = Program.parse([sys.executable, "train.py"], cores=2)
    plan = Plan(strategy="script", node_batch=1)
    with RunningScript(
        program, plan, two_cores, folder=tmp_path, step_regex=r"^step \d+$"
    ) as script:
        assert len(script.make_steps(5, time_limit_s=120.0)) == 5
        before = script.output_tail
        for _ in range(2):
            script._note_line("step 1", -1e9)  # long before the turn
        steps = script.make_steps(3, time_limit_s=120.0)
        assert len(script.output_tail) > len(before)
    assert len(steps) == 3
    assert all(0 <= step.time_s < 1e6 and step.samples is None for step in steps)


def test_script_whose_supervisor_cannot_be_started_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with open_working_folder(tmp_path, in_place=True) as view:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(FileNotFoundError) as raised:
            ScriptProcess(("true",), {}, view)
        assert len(list(Path("/proc/self/fd").iterdir())) == before, raised
