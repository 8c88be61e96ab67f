"""What scripts rely on: names, exit codes, one document, results on stdout and nothing else."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer.main
from machine_holder import machine_in_use

from planner.cli.app import app
from planner.store import Store

OPTIONS = {
    "probe": "--hosts --quick --no-wait --ssh-config --mpirun --allow-run-as-root --db --json",
    "tune": "--use-case --data --hosts --budget --trials --seed --batch-size --max-batch "
    "--effective-batch --precision --no-cache --strategies --fresh --no-wait --epochs --verbose "
    "--ssh-config --mpirun --allow-run-as-root --db --json",
    "launch": "--use-case --data --hosts --epochs --plan --global-batch --effective-batch "
    "--dry-run --allow-stale --db --json",
    "plans list": "--use-case --node --db --json --csv",
    "plans show": "--html --db --json",
    "plans best": "--use-case --node --db --json",
    "plans compare": "--db --json",
    "plans export": "--db --json",
    "plans import": "--db --json",
    "plans rm": "--db --json",
    "trials": "--use-case --db --json --csv",
    "use-cases": "--json",
    "strategies": "--json",
    "doctor": "--hosts --use-case --data --ssh-config --mpirun --allow-run-as-root --db --json",
}


def steady(ddlplan):
    return ddlplan.data("plans", "show", 1)["use_case"]


def options_by_command():
    """Give the options of each command, by its words."""
    found = {}
    pending = [((), typer.main.get_command(app))]
    while pending:
        words, command = pending.pop()
        found[" ".join(words)] = command.params
        pending += [((*words, name), one) for name, one in getattr(command, "commands", {}).items()]
    return found


def test_every_documented_command_and_option_is_there():
    found = options_by_command()
    for command, options in OPTIONS.items():
        names = {name for option in found[command] for name in option.opts}
        assert set(options.split()) <= names, command


def test_every_option_is_read_from_its_variable_too():
    for options in options_by_command().values():
        for option in options:
            name = option.opts[0]
            acts_at_once = name in ("--help", "--version") or "completion" in name
            if name.startswith("--") and not acts_at_once:
                assert option.envvar == "DDLPLAN_" + name[2:].replace("-", "_").upper()


def test_option_beats_variable_beats_default(tuned):
    (tuned.folder / "planner.db").rename(tuned.folder / "other.db")
    assert tuned.data("plans", "list") == []
    assert len(tuned.data("plans", "list", DDLPLAN_DB="other.db")) == 1
    assert tuned.data("plans", "list", "--db", "third.db", DDLPLAN_DB="other.db") == []


def test_json_is_asked_for_by_a_variable_too(ddlplan):
    ended = ddlplan.run("plans", "show", "x", DDLPLAN_JSON="1")
    assert ended.code == ended.document["error"]["code"] == 2


def test_plan_is_shown_as_plan_files_have_it(tuned):
    plan = tuned.data("plans", "show", 1)
    with Store.open(str(tuned.folder / "planner.db")) as store:
        assert plan | store.plans.get(1).to_json(stale=False) == plan
    assert None not in (plan["speedup"], plan["baseline"])
    best = tuned.run("plans", "best", "--use-case", plan["use_case"], "--json").document
    assert best == {"schema_version": 1, "command": "plans best", "warnings": [], "data": plan}


def test_plan_says_what_it_is_worth_and_one_from_a_file_cannot(tuned, import_for):
    worth = tuned.data("plans", "show", 1)["worth"]
    assert worth["trials"] > 0
    assert worth["tuning_s"] > 0
    assert {"step_parts", "runner_up", "variations", "baselines"} <= set(worth)
    imported = import_for("Steady")
    assert tuned.data("plans", "show", imported)["worth"] is None


def test_page_is_written_beside_the_answer(tuned):
    ended = tuned.run("plans", "show", 1, "--html", "plan.html")
    assert "tuning took" in ended.out
    assert (tuned.folder / "plan.html").read_text().startswith("<!doctype html>")
    ended = tuned.run("plans", "show", 1, "--html", "no/plan.html")
    assert (ended.code, ended.out) == (2, "")
    assert "name another file" in ended.err


def test_exported_plan_is_imported_as_it_was(tuned):
    first = tuned.run("plans", "export", 1)
    document = json.loads(first.out)
    assert {"mpirun", "torchrun"} <= set(document["commands"])
    (tuned.folder / "plan.json").write_text(first.out)
    assert "stored plan 2" in tuned.run("plans", "import", "plan.json").out
    second = json.loads(tuned.run("plans", "export", 2).out)
    assert second == document | {"id": 2}


def test_plans_are_compared_and_removed_and_their_trials_stay(tuned, import_for):
    import_for("Steady")
    assert tuned.data("plans", "compare", 1, 2)
    trials = tuned.data("trials")
    assert tuned.run("plans", "rm", 1).out == "removed plan 1\n"
    assert [plan["id"] for plan in tuned.data("plans", "list")] == [2]
    assert tuned.data("trials") == trials
    assert tuned.run("plans", "rm", 1).code == 3


@pytest.mark.parametrize("command", [("plans", "list"), ("trials",)])
def test_csv_holds_what_json_holds(tuned, command):
    ended = tuned.run(*command, "--csv")
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    records = tuned.data(*command)
    assert [row["id"] for row in rows] == [str(record["id"]) for record in records]
    assert [row["strategy"] for row in rows] == [record["strategy"] for record in records]
    assert ended.err == ""


def test_lists_can_be_narrowed_to_a_use_case_and_a_node(tuned):
    case, node = steady(tuned), tuned.data("plans", "show", 1)["node"]
    assert tuned.data("plans", "list", "--use-case", case, "--node", node)
    assert tuned.data("trials", "--use-case", case)
    assert tuned.data("plans", "list", "--node", "elsewhere") == []
    assert tuned.data("trials", "--use-case", "simplebig") == []


@pytest.mark.parametrize("command", [("plans", "list"), ("trials",)])
def test_before_the_first_tune_lists_are_empty_and_say_why(ddlplan, command):
    ended = ddlplan.run(*command)
    assert (ended.code, ended.out) == (0, "")
    message = "there is no database planner.db: ddlplan tune makes one, --db names another"
    assert ended.err.splitlines() == [f"warning: {message}"]
    document = ddlplan.run(*command, "--json").document
    assert document["data"] == []
    assert document["warnings"] == [message]
    assert ddlplan.listing() == []


def test_commands_that_only_read_load_no_more_than_they_need(tuned):
    program = """
import sys
from importlib.metadata import version
from planner.__main__ import run
lists = [run(["--help"])]
early = sorted({"probes.hardware", "rich.console", "sqlalchemy"} & set(sys.modules))
lists += [run(command.split()) for command in sys.argv[1:-1]]
parts = {"jobs.hosts", "exports.formats", "report.worth", "report.page.plan", "plans.plan_file"}
parts |= {"store.job_store", "store.training_store", "store.sweep_store"}
unused = {f"planner.{part}" for part in parts} | {"sqlalchemy.dialects.postgresql", "rich.console"}
needless = sorted(unused & set(sys.modules))
codes = [*lists, run(sys.argv[-1].split())]
slow = sorted({"torch", "optuna", "mpi4py", "numpy"} & set(sys.modules))
codes.append(run(["report"]))
slow += {"torch"} & set(sys.modules)
print(codes, slow + needless + early, file=sys.stderr)
"""
    commands = ["plans list", "use-cases", "strategies", "trials", "plans show 1"]
    ended = subprocess.run(
        [sys.executable, "-c", program, *commands],
        cwd=tuned.folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert ended.stderr.splitlines()[-1] == "[0, 0, 0, 0, 0, 0, 0] []"


def test_plans_are_listed_in_a_pipe_without_what_colours_searches_and_workers_need(tuned):
    program = """
import sys
from planner.__main__ import run
code = run(["plans", "list"])
unused = {"ctypes", "launch.strategies", "probes.cuda_devices", "rich.text"}
print(code, sorted(unused & set(sys.modules)), file=sys.stderr)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tuned.folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert ended.stdout
    assert ended.stderr.splitlines()[-1] == "0 []"


def test_piped_output_has_no_colours_and_errors_go_to_stderr(tuned):
    for command in (("plans", "list"), ("trials",), ("plans", "show", 1), ("strategies",)):
        ended = tuned.run(*command)
        assert ended.out
        assert ended.err == ""
        assert "\x1b" not in ended.out
    ended = tuned.run("plans", "show", 99)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "error: no plan 99: ddlplan plans list shows which there are\n"


@pytest.mark.parametrize("database", ["tuned", "ddlplan"])
@pytest.mark.parametrize(
    "words",
    [
        *(f"{what} show" for what in ("plans", "runs", "jobs", "sweep")),
        "launch --use-case simplebig --allow-run-as-root --plan",
    ],
)
def test_unknown_number_ends_with_one_exit_code_whatever_it_is_of(request, database, words):
    """`plans show` ended with 3, as all did where no database was; others with 2."""
    assert request.getfixturevalue(database).run(*words.split(), 99).refusal(3)


def test_reader_that_leaves_early_is_no_error(tuned):
    for command in (("plans", "list"), ("trials", "--csv"), ("use-cases",)):
        process = tuned.start(*command)
        process.stdout.close()
        process.stdout = None
        ended = tuned.end(process)
        assert (ended.code, ended.err) == (141, "")


def test_output_takes_any_text_on_a_stream_of_few_letters(tuned):
    ended = tuned.end(tuned.start("plans", "list", PYTHONIOENCODING="ascii"))
    assert ended.code == 0
    assert "\\xb1" in ended.out


def test_closed_stdout_is_no_bug(tuned):
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m planner plans list >&-"],
        cwd=tuned.folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


FULL = "error: standard output: no space left on device: make room there, or write elsewhere"


def run_on_full_disk(folder, *arguments):
    """Run Python with a standard output that takes nothing; give its exit status and its lines."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
        )
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.parametrize(
    "command",
    [("plans", "list"), ("plans", "list", "--csv"), ("plans", "list", "--json"), ("--version",)],
)
def test_standard_output_that_takes_no_more_is_one_line(tuned, command):
    """A full disk was a bug of ddlplan."""
    assert run_on_full_disk(tuned.folder, "-m", "planner", *command) == (1, [FULL])


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("raise NoPlanError('no trial')", 3, "error: no trial"),
        (
            "out.set_partial_data('x' * 100_000); raise NoPlanError('no trial')",
            3,
            "error: no trial",
        ),
        ("raise KeyboardInterrupt", 128 + signal.SIGINT, "interrupted"),
        ("out.finish('x'); raise KeyboardInterrupt", 1, FULL),
    ],
    ids=["error", "error with data", "interrupted", "interrupted at its end"],
)
def test_what_ends_a_command_is_its_one_line_where_standard_output_is_full(
    tmp_path, how, code, said
):
    """An error as JSON ended with exit code 120, later with a second line, of the disk, and 1."""
    program = f"""
import sys
import planner.__main__ as program
from planner.errors import NoPlanError
from planner.report.output import current_output

def call(arguments):
    out = current_output()
    {how}

program.call = call
sys.argv = ["ddlplan", "tune", "--json"]
program.main()
"""
    assert run_on_full_disk(tmp_path, "-c", program) == (code, [said])


def test_messages_are_shown_as_they_are(ddlplan):
    (ddlplan.folder / "case.py").write_text("")
    ended = ddlplan.run("tune", "--use-case", "case.py:fire:\x1b[31m")
    assert "🔥" not in ended.err
    ended = ddlplan.run("tune", "--use-case", "case.py:fire")
    assert "case.py:fire: there is no 'fire'" in ended.err


def test_version_is_one_line(ddlplan):
    ended = ddlplan.run("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"ddlplan {version('ddlplan')}\n", "")


def test_help_shows_options_in_groups(ddlplan):
    lines = ddlplan.run("launch", "--help").out.splitlines()
    heads = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["What to train:", "Plan:", "Checkpoints and faults:", "Hosts:", "Output:"]
    assert max(map(len, lines)) < 80
    assert "list[str]" not in " ".join(lines)


def test_command_without_anything_shows_its_help(ddlplan):
    for command in ([], ["plans"]):
        ended = ddlplan.run(*command)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("Usage: ")


def test_doctor_and_quick_probe_answer_in_json(ddlplan):
    findings = ddlplan.data("doctor")
    assert {"torch", "mpirun", "cores", "database"} <= {finding["check"] for finding in findings}
    assert ddlplan.listing() == []
    (node,) = ddlplan.data("probe", "--quick")
    assert node["fingerprint"].startswith("sha256:")
    assert (ddlplan.folder / "planner.db").stat().st_mode & 0o777 == 0o600


def test_no_wait_ends_at_once_while_something_else_is_timed(ddlplan):
    with machine_in_use():
        ended = ddlplan.run("probe", "--no-wait", "--json")
    assert ended.document["error"]["kind"] == "busy"
    assert ended.refusal(7).endswith("theirs: leave out --no-wait to wait for its end")


def test_use_case_that_lacks_its_data_is_refused_though_the_machine_is_in_use(ddlplan):
    """`tune --use-case imagefolder` waited for another search to end before it said so."""
    with machine_in_use():
        tuned = ddlplan.run("tune", "--use-case", "imagefolder,size=160", "--no-wait")
        examined = ddlplan.run("doctor", "--use-case", "imagefolder")
    said = "error: imagefolder has no pictures of its own: name a folder "
    assert tuned.refusal().startswith(said)
    assert examined.refusal().startswith(said)
    assert ddlplan.listing() == []


def test_slots_of_a_host_file_are_ignored_with_a_note(ddlplan):
    (ddlplan.folder / "hosts").write_text("localhost slots=4\n")
    ended = ddlplan.run("probe", "--quick", "--hosts", "hosts", "--json")
    assert ended.code == 0
    assert "slots" in ended.document["warnings"][0]
