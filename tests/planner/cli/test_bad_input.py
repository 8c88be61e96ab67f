"""Bad input: the documented exit code, one line that says the way out, nothing written."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest

from planner.cli.app import call
from planner.errors import UsageError

CASE = """
import torch
class Good:
    name, default_batch = "good", 4
    def model(self): return torch.nn.Linear(2, 2)
    def dataset(self, data, *, train): return []
    def loss(self, output, target): return output.mean()
    def optimizer(self, parameters): return torch.optim.SGD(parameters, lr=0.1)
raise_at_import = 1 / 0
"""

OUT_OF_REACH = "--ssh-config unreachable"  # without the ten seconds that ssh would wait
TO_LOSS = "tune --use-case simplebig --objective time-to-loss"
SWEEP = "sweep --use-case simplebig --batches"
DETACHED = "--allow-run-as-root --detach"  # what cannot run is refused before it is a job
MEASURE = "report --measure --data"
LONG = "no" * 200
LISTS = ("plans list", "trials", "runs list", "sweep list")
# arguments, exit code, what the line must say; in a folder as `furnished` makes it
CASES = [
    ("tune --use-case simplebg", 2, "did you mean simplebig?"),
    ("tune --use-case nowhere.py:Case", 2, "nowhere.py"),
    ("tune --use-case case.py", 2, "case.py:Good"),
    ("tune --use-case case.py:Godo", 2, "did you mean Good?"),
    ("tune --use-case syntax.py:Case", 2, "line 1"),
    ("tune --use-case no_such_package:Case", 2, "no_such_package"),
    ("tune --use-case simplebig --hosts missing", 2, "missing"),
    ("tune --use-case simplebig --hosts empty", 2, "names no host"),
    ("tune --use-case simplebig --hosts photos", 2, "it is a directory"),
    ("tune --use-case simplebig --hosts malformed", 2, "malformed:2: 'slots=8x'"),
    ("launch --use-case simplebig --hosts empty", 2, "names no host"),
    ("launch --use-case simplebig --hosts remote", 3, "ddlplan tune"),
    (
        f"tune --use-case simplebig --hosts remote --data only_there {OUT_OF_REACH}",
        4,
        "198.51.100.7",
    ),
    ("launch --use-case simplebig --hosts unsafe", 7, "unsafe:1: '-oProxyCommand=x'"),
    ("probe --hosts unsafe", 7, "unsafe:1"),
    ("tune --use-case simplebig --set width", 2, "setting 'width' of a use case: write key=value"),
    ("doctor --hosts missing", 2, "missing"),
    ("probe --quick --ssh-config missing", 2, "ssh configuration missing: no such file"),
    ("tune --use-case simplebig --hosts remote --ssh-config photos", 2, "photos: it is no file"),
    ("tune --use-case simplebig --db nowhere/planner.db", 6, "make it first"),
    ("plans list --db nowhere/planner.db", 6, "make it first"),
    ("tune --use-case simplebig --db photos", 6, "it is a directory"),
    ("plans list --db text", 6, "choose another with --db"),
    ("trials --db newer.db", 6, "update ddlplan"),
    ("tune --use-case simplebig --budget -1", 2, "--budget"),
    ("tune --use-case simplebig --budget 0", 2, "above zero"),
    ("tune --use-case simplebig --budget 5x", 2, "5m or 1h"),
    ("tune --use-case simplebig --budget=", 2, "5m or 1h"),
    ("tune --use-case simplebig --trials -1", 2, "--trials"),
    ("tune --use-case simplebig --seed 4294967296", 2, "--seed"),
    ("launch --use-case simplebig --seed 4294967296", 2, "--seed"),
    ("tune --use-case simplebig --batch-size 0", 2, "--batch-size"),
    ("tune --use-case simplebig --batch-size 8 --max-batch 8", 2, "exclude each other"),
    ("tune --use-case simplebig --batch-size 8 --effective-batch 8", 2, "exclude each other"),
    # What stood there was dropped without a word: such a list was no JSON, and of all use cases.
    ("sweep --json list", 2, "--json before list: put it after list"),
    ("trials --use-case simplebig export grid.json", 2, "--use-case before export"),
    ("trials export --use-case simplebig text", 2, "text: it is there, and trials export has not"),
    ("trials export --use-case simplebig photos", 2, "photos: is a directory: name another file"),
    ("trials export --use-case simplebig nowhere/grid.json", 2, "there is no folder nowhere"),
    ("use-cases --db other.db check simplebig", 2, "--db before check"),
    ("tune --use-case simplebig --objective speed", 2, "throughput, time-to-loss"),
    ("tune --use-case simplebig --lr-scaling log", 2, "none, linear, sqrt"),
    ("tune --use-case simplebig --target 1", 2, "--target without --objective time-to-loss"),
    ("tune --use-case simplebig --target-accuracy 0.9", 2, "--target-accuracy without --objective"),
    (f"{TO_LOSS} --target 1 --target-accuracy 0.9", 2, "exclude each other"),
    (f"{TO_LOSS} --target-accuracy 1.5", 2, "--target-accuracy"),
    # What is no number counted as reached after the first epoch.
    (f"{TO_LOSS} --target nan", 2, "--target nan: name a number"),
    (f"{TO_LOSS} --target inf", 2, "--target inf: name a number"),
    (f"{TO_LOSS} --target-accuracy nan", 2, "--target-accuracy"),
    (f"{TO_LOSS} --replay text", 2, "records tell no noise scale"),
    (f"{TO_LOSS} --hosts remote --detach", 2, "use it on one machine"),
    ("tune --use-case simplebig --precision fp8", 2, "choose one of"),
    ("tune --use-case simplebig --strategies piepline", 2, "choose one of gpu_data"),
    ("tune --use-case simplebig --strategies ,", 2, "at least one"),
    ("tune --use-case simplebig --data missing", 2, "missing"),
    ("tune --use-case simplebig --data=", 2, "it is empty: name a file or a folder"),
    ("tune --use-case simplebig --hosts=", 2, "it is empty"),
    ("probe --data=", 2, "it is empty"),
    ("doctor --data missing", 2, "missing"),
    ("launch --use-case simplebig --data missing", 2, "missing"),
    ("doctor --use-case simplebg", 2, "did you mean simplebig?"),
    ("doctor --mpirun nowhere/mpirun", 4, "nowhere/mpirun"),
    # A slip in its name ended with the exit code of a failed training.
    ("launch --use-case simplebig --mpirun nowhere/mpirun", 2, "mpirun: there is no such program"),
    ("tune --use-case simplebig --hosts remote --mpirun nowhere/mpirun", 2, "nowhere/mpirun"),
    ("launch --use-case simplebig --checkpoint-every 5m", 2, "no --checkpoint"),
    ("tune", 2, "--use-case"),
    ("tune --use-case simplebig --colour", 2, "see ddlplan tune --help"),
    ("tuen", 2, "No such command 'tuen'"),
    ("plans list --json --csv", 2, "exclude each other"),
    ("plans show one", 2, "ID"),
    ("plans show 99", 3, "ddlplan tune makes one"),
    ("plans best --use-case simplebig", 3, "ddlplan tune makes one"),
    ("plans export 99", 3, "ddlplan tune makes one"),
    ("plans rm 99", 3, "ddlplan tune makes one"),
    ("plans import missing", 2, "missing"),
    ("plans import text", 2, "no JSON"),
    ("plans import nonsense.json", 2, "node is missing"),
    ("plans import photos", 2, "plans export wrote"),
    ("launch --use-case simplebig --plan 99", 3, "ddlplan tune --use-case simplebig"),
    ("launch --use-case simplebig --epochs 0", 2, "--epochs"),
    # A number that no database holds was a bug of ddlplan, after the first step.
    ("launch --use-case simplebig --epochs 99999999999999999999", 2, "--epochs"),
    ("sweep --use-case simplebig --batches 8 --epochs 99999999999999999999", 2, "--epochs"),
    # An empty name, as of a variable that was never set, was one of which nothing is stored.
    *((f"{lists} --use-case=", 2, "unknown use case ''") for lists in LISTS),
    ("plans list --node=", 2, "it is empty: name a host"),
    ("tune --replay text --hosts remote", 2, "--replay and --hosts exclude each other"),
    # What was recorded stays as it was: they were dropped without a word.
    ("tune --replay text --data photos", 2, "--replay and --data exclude each other"),
    ("tune --replay text --set width=2", 2, "--replay and --set exclude each other"),
    ("tune --replay text --use-case simplebig --set width=2", 2, "--replay and --set exclude"),
    # What is a slip was told of a -- that nobody had typed, or to tune a program of that name.
    ("launch --json simplebig", 2, "a use case needs --use-case simplebig"),
    ("plans best --json simplebig,lr=1", 2, "a use case needs --use-case simplebig,lr=1"),
    ("tune --json --use-case simplebig --budget 1 m", 2, "'m', where a command of your own would"),
    ("tune --json --step-regex ( -- python train.py", 2, "see Python's re"),
    ("tune --json --step-regex= -- python train.py", 2, "it matches every line"),
    ("probe --quick --data photos", 2, "--data and --quick exclude each other: give one"),
    ("probe --data nowhere", 2, "--data nowhere: no such file or folder"),
    # Where Python cannot look, as in another user's folder, that was called a bug.
    (f"probe --data {LONG}", 2, f"--data {LONG}: file name too long"),
    ("sweep --use-case simplebig", 2, "Missing option '--batches'"),
    ("sweep --batches 8", 2, "Missing option '--use-case'"),
    (f"{SWEEP} 8,x", 2, "--batches '8,x': name whole numbers"),
    (f"{SWEEP} 0", 2, "--batches '0': name whole numbers"),
    (f"{SWEEP} 8 --plans bset", 2, "--plans 'bset': name best, or whole numbers from 1 on"),
    (f"{SWEEP} 8 --html photos", 2, "--html photos: "),
    (f"{SWEEP} 8 --html nowhere/sweep.html", 2, "--html nowhere/sweep.html: "),
    ("report --format html", 2, "no --out"),
    ("report --out x --format pdf", 2, "choose one of md, csv, html"),
    ("report --papers lerat", 2, "unknown paper 'lerat': did you mean lerat_2022"),
    ("report --papers ,", 2, "name at least one"),
    ("report --data photos", 2, "write NAME=PATH"),
    ("report --data mnist_cnn=nowhere", 2, "no such file or folder"),
    ("report --budget soon", 2, "no duration"),
    ("report --budget 5m", 2, "--budget and no --measure"),
    ("report --data mnist_cnn=.", 2, "--data and no --measure"),
    (f"{MEASURE} mnist_cnn=a --data mnist_cnn=b", 2, "given twice"),
    (f"{MEASURE} nope=.", 2, "--data nope=...: no paper that is measured has"),
    (f"{MEASURE} mnist_cnn=. --papers lerat_2022", 2, "choose one of complex"),
    (f"{MEASURE} mnist_cnn=photos --allow-run-as-root", 2, "photos"),
    (f"tune --replay grid.json {DETACHED}", 2, "--detach and --replay exclude each other"),
    (f"tune --use-case nonsense {DETACHED}", 2, "nonsense"),
    (f"tune --use-case simplebig --data nowhere {DETACHED}", 2, "no such file or folder"),
    (f"tune --use-case simplebig --budget soon {DETACHED}", 2, "no duration"),
    (f"tune --use-case simplebig --hosts nowhere {DETACHED}", 2, "nowhere"),
    (f"launch --use-case simplebig --dry-run {DETACHED}", 2, "--detach and --dry-run exclude"),
    (f"launch --use-case simplebig --resume {DETACHED}", 2, "--resume and no --checkpoint"),
    (f"launch --use-case simplebig --max-restarts 2 {DETACHED}", 2, "and no --checkpoint"),
    (
        f"launch --use-case simplebig --resume --checkpoint-every 5m {DETACHED}",
        2,
        "no --checkpoint",
    ),
    (f"launch --use-case simplebig {DETACHED}", 3, "ddlplan tune makes one"),
]


@pytest.fixture
def furnished(ddlplan):
    """A folder with everything that can be wrong."""
    folder = ddlplan.folder
    (folder / "case.py").write_text(CASE)
    (folder / "syntax.py").write_text("class Case(:\n")
    (folder / "text").write_text("this is no database, and no plan\n" * 50)
    (folder / "empty").write_text("# nobody\n\n")
    (folder / "malformed").write_text("localhost\nnode2 slots=8x\n")
    (folder / "remote").write_text("198.51.100.7\n")
    (folder / "unreachable").write_text("Host *\n  ProxyCommand false\n")
    (folder / "unsafe").write_text("-oProxyCommand=x\n")
    (folder / "nonsense.json").write_text('{"use_case": "simplebig"}')
    connection = sqlite3.connect(folder / "newer.db")
    connection.execute("CREATE TABLE ddlplan_schema (version INTEGER)")
    connection.execute("INSERT INTO ddlplan_schema VALUES (999)")
    connection.commit()
    connection.close()
    (folder / "photos").mkdir()
    return ddlplan


def assert_refused(ended, code, says):
    """One line and one document say the same, and no traceback is shown."""
    assert ended.code == code, ended.err
    assert len(ended.errors) == 1
    assert "Traceback" not in ended.err
    assert says in ended.errors[0]
    assert ended.document["schema_version"] == 1
    assert ended.document["error"]["code"] == code
    assert ended.errors[0] == f"error: {ended.document['error']['message']}"


@pytest.mark.parametrize(("arguments", "code", "says"), CASES, ids=[case[0] for case in CASES])
def test_bad_input_is_refused_in_one_line(furnished, arguments, code, says):
    before = furnished.listing()
    words = arguments.split()
    ended = furnished.run(*words, *([] if "--json" in words else ["--json"]))
    assert_refused(ended, code, says)
    assert furnished.listing() == before


def test_error_without_json_leaves_stdout_empty(ddlplan):
    for words in ("--use-case simplebg", "--colour -- python train.py --json"):
        ended = ddlplan.run("tune", *words.split())
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "command", ["runs show", "runs compare", "sweep show", "trials export", "weights export"]
)
def test_what_is_not_named_is_asked_for_with_the_whole_name_of_the_command(ddlplan, command):
    """For runs it ended as a bug of ddlplan, of the option that may stand without its value.

    Of other groups the document named the group alone.
    """
    ended = ddlplan.run(*command.split(), "--json")
    assert (ended.code, ended.document["command"]) == (2, command)
    assert "missing" in ended.err.lower()


def test_folder_that_was_removed_is_one_line(ddlplan):
    """It was a bug of ddlplan, with a traceback."""
    gone = ddlplan.folder / "gone"
    gone.mkdir()
    program = [sys.executable, "-P", "-m", "planner", "probe", "--quick"]
    ended = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *program],
        cwd=gone,
        env=ddlplan.surroundings({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "error: the current folder was removed: change to another one\n"


def test_cache_that_cannot_be_made_is_refused_before_a_database_is_made(furnished):
    before = furnished.listing()
    words = ("probe", "--data", "photos", "--no-wait", "--json")
    assert_refused(furnished.run(*words, DDLPLAN_CACHE="text/below"), 2, "text/below")
    assert furnished.listing() == before


def test_database_that_cannot_be_made_is_refused_by_probe(ddlplan):
    ended = ddlplan.run("probe", "--quick", "--db", "/proc/planner.db", "--json")
    assert_refused(ended, 6, "--db")


@pytest.mark.usefixtures("without_mpirun")
def test_report_without_any_mpirun_is_refused_before_it_writes(tmp_path, monkeypatch):
    """The story: it made its folder and began. Of other commands, test_api.py has it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no mpirun beside this Python nor on the path"):
        call(["report", "--measure", "--budget", "1s", "--out", "made"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_mpirun")
def test_comparison_in_a_slurm_job_is_refused_without_mpirun(tmp_path, monkeypatch):
    """The story: Slurm starts our training, so it began; no peer could be started, and it ended
    with exit code 1."""
    programs = tmp_path / "nowhere"
    programs.mkdir()
    (programs / "srun").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    with pytest.raises(UsageError, match="no mpirun beside this Python nor on the path"):
        call(["compare"])
