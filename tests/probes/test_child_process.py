import sys
import time
from pathlib import Path

import pytest

from probes.child_process import module_command, run_child
from probes.kernel_files import read_text


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def wait_until_gone(pid: int) -> bool:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        stat = read_text(Path(f"/proc/{pid}/stat"))
        # a zombie is dead, but not yet waited for by whoever inherited it
        if stat is None or stat.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


def test_last_whole_document_is_the_answer():
    answer = run_child(script("""print('{"n": 1}\\n{"n": 2}\\nnoise\\n[3]\\n{"n":')"""), limit_s=60)
    assert answer.document == {"n": 2}
    assert answer.failure is None


def test_what_was_said_before_time_was_up_is_kept_and_grandchildren_end_with_the_child():
    answer = run_child(["sh", "-c", """sleep 1000 & echo '{"pid": '$!'}'; wait"""], limit_s=2.00422)
    assert answer.failure == "not done after 2 s"  # and not the time to the last digit
    assert answer.document is not None
    assert wait_until_gone(answer.document["pid"])


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
        ("import sys; sys.exit('no\\nmemory')", "exit code 1 (memory)"),
    ],
)
def test_bad_end_is_told_with_the_last_line(text, failure):
    assert run_child(script(text), limit_s=60).failure == failure


def test_program_that_cannot_start_is_a_failure_and_not_a_crash():
    answer = run_child(["/no/such/program"], limit_s=1)
    assert answer.document is None
    assert answer.failure == "cannot start /no/such/program: No such file or directory"


def test_module_of_the_working_folder_is_not_taken_for_ours(tmp_path, monkeypatch):
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes" / "__init__.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.chdir(tmp_path)
    answer = run_child(module_command("probes.speed", "--help"), limit_s=60)
    assert answer.failure is None
