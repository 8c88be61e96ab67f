"""Fixtures of the command line: the command as a process, and a tuned database."""

from __future__ import annotations

import fcntl
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # last: tests/launch has a conftest too

from forked_commands import run_forked
from postgres_server import PostgresServer, require_server
from store_cases import execute

from launch.workers.fork_server_pool import ForkServerPool
from planner.store import Store
from probes.node import probe

CASES = Path(__file__).with_name("steady_cases.py")
STEADY = f"{CASES}:Steady"
_LAUNCH = ("launch", "--allow-run-as-root", "--use-case")
GUARD_S = 240
"""No test waits longer; none should wait nearly as long."""

END_LIMIT_S = 60
"""Until processes have ended of which nothing is needed any more."""

POLL_S = 0.1
"""Between two looks, as at all processes: they take the cores that what is waited for wants."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a command: exit status and output."""

    code: int
    out: str
    err: str

    as_json: bool
    """Whether it was to write a document."""

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error:")]

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)

    def refusal(self, code: int = 2) -> str:
        """Give the one line that says why it failed so; its document has the same exit status."""
        assert self.code == code, self.err
        assert not self.as_json or self.document["error"]["code"] == code
        (line,) = self.errors
        return line


def _asks_for_json(words: Any) -> bool:
    """Tell whether a command has the option itself, rather than a script behind ``--``."""
    own = itertools.takewhile(lambda word: word != "--", words)
    return "--json" in own


@dataclass
class CommandLine:
    """Runs ddlplan in a folder of its own and finds the processes that it starts."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(
        self, *arguments: object, terminal: int | None = None, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a command, which writes to pipes or to a terminal."""
        stream = subprocess.PIPE if terminal is None else terminal
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "planner", *map(str, arguments)],
            cwd=self.folder,
            env=self.surroundings(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            text=True,
            encoding="utf-8",
        )

    def run(self, *arguments: object, **environment: str) -> Ended:
        """Run a command to its end, without the time that its imports take."""
        words, surroundings = [*map(str, arguments)], self.surroundings(environment)
        code, *streams = run_forked(words, self.folder, surroundings, limit_s=GUARD_S)
        out, err = (io.TextIOWrapper(io.BytesIO(text), "utf-8").read() for text in streams)
        return Ended(code, out, err, as_json=_asks_for_json(words))

    def launch(self, case: str, *arguments: object, **environment: str) -> Ended:
        """Train a use case to its end; whoever runs the tests may be root."""
        return self.run(*_LAUNCH, case, *arguments, **environment)

    def start_launch(
        self, case: str, *arguments: object, **environment: str
    ) -> subprocess.Popen[str]:
        return self.start(*_LAUNCH, case, *arguments, **environment)

    def surroundings(self, environment: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Give the environment of a process that counts as one of this command's."""
        own = {**os.environ, **self.environment, "DDLPLAN_TEST_MARK": self.mark}
        return own | environment

    def end(self, process: subprocess.Popen[str]) -> Ended:
        try:
            out, err = process.communicate(timeout=GUARD_S)
        except subprocess.TimeoutExpired as expired:  # whose own text leaves out the last words
            said = (expired.stderr or b"").decode(errors="replace")
            pytest.fail(f"it runs on after {GUARD_S:g} s, and has said:\n{said[-4000:]}")
        return Ended(process.returncode, out, err, as_json=_asks_for_json(process.args))

    def data(self, *arguments: object, **environment: str) -> Any:
        """Run a command that must succeed and give the data of its document."""
        ended = self.run(*arguments, "--json", **environment)
        assert ended.code == 0, ended.err
        return ended.document["data"]

    def listing(self) -> list[str]:
        """List all files and folders, except Python's caches of imported use cases."""
        found = (path.relative_to(self.folder) for path in self.folder.rglob("*"))
        return sorted(str(path) for path in found if "__pycache__" not in path.parts)

    def processes(self, of: str = "") -> dict[int, str]:
        """Give the command lines of processes that this command started and that still run."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                if self.mark.encode() not in (entry / "environ").read_bytes():
                    continue
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if state != "Z" and of in line:
                found[int(entry.name)] = line
        return found

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + GUARD_S
        while not is_so():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            time.sleep(POLL_S)

    def wait_until_all_ended(self) -> None:
        self.wait_until(lambda: not self.processes(), "processes are left")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return execute(self.folder / "planner.db", sql)

    def has_plan(self, node: str | None = None) -> bool:
        """Tell whether a plan that may be chosen has been timed, on a node where one is named.

        In a busy moment a step may seem to take long: then looks come first, which are no plans.
        """
        sql = "SELECT 1 FROM trials JOIN studies ON studies.id = study_id "
        sql += "WHERE outcome = 'ok' AND role != 'look'"
        return bool(self.query(sql if node is None else f"{sql} AND node = '{node}'"))

    def count(self, table: str) -> int:
        """Count the rows of a table, 0 where there is none yet."""
        if not (self.folder / "planner.db").exists():
            return 0
        is_there = self.query(f"SELECT 1 FROM sqlite_master WHERE name = '{table}'")
        return self.query(f"SELECT count(*) FROM {table}")[0][0] if is_there else 0


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; where CI promised that there can be one, its lack is a failure."""
    require_server()
    with PostgresServer() as server:
        yield server


@dataclass(frozen=True, slots=True)
class AnyDatabase:
    """An empty database of one kind."""

    kind: str
    url: str
    _server: PostgresServer | None = None

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run SQL by another connection, and give its rows."""
        if self._server is not None:
            return self._server.execute(sql, self.url)
        return execute(self.url, sql)


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> AnyDatabase:
    """A database that is still to be made, of either kind."""
    if request.param == "SQLite":
        return AnyDatabase("SQLite", str(tmp_path / "planner.db"))
    server = request.getfixturevalue("postgres")
    return AnyDatabase("PostgreSQL", server.empty_database(), server)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file of the test's own."""
    with Store.open(str(tmp_path / "planner.db")) as opened:
        yield opened


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, own_locks: Path) -> Iterator[ForkServerPool]:
    """Fork servers for tests that start workers in this process: loading torch takes seconds."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DDLPLAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        with ForkServerPool() as started:
            yield started


@pytest.fixture
def without_mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every mpirun, also the one beside this Python."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


@pytest.fixture
def cases() -> Path:
    """The file of the use cases."""
    return CASES


@pytest.fixture
def steady() -> str:
    """The use case that sleeps in each step."""
    return STEADY


@pytest.fixture(scope="session")
def command_line() -> Callable[[Path], CommandLine]:
    """The command in a folder of the caller's."""
    return CommandLine


@pytest.fixture
def ddlplan(tmp_path: Path) -> Iterator[CommandLine]:
    """The command in an empty folder; no test may leave one of its processes behind."""
    folder = tmp_path / "work"
    folder.mkdir()
    command = CommandLine(folder)
    yield command
    give_up = time.monotonic() + END_LIMIT_S
    while (left := command.processes()) and time.monotonic() < give_up:
        time.sleep(POLL_S)  # what was killed from outside may need a moment
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.fixture(scope="session")
def tuned_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database that one short search has filled, and the search's output.

    Before it, the machine was known by a probe without speeds.
    All processes of pytest share it. The other files fail when they are imported in place of
    ddlplan's or the library's modules: the working folder must not be the first in the module path.
    """
    with _made_once("tuned", tmp_path_factory) as (folder, is_new):
        if is_new:
            for name in ("launch", "probes", "planner", "selectors", "numbers"):
                text = "raise SystemExit('taken from the working folder')\n"
                (folder / f"{name}.py").write_text(text)
            with Store.open(str(folder / "planner.db")) as store:
                store.machines.save_probe(probe(quick=True))
            _run_for_all(folder, "tune", "--trials", 0, "--budget", "5m")
    return folder


@pytest.fixture(scope="session")
def trained_folder(tuned_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tuned plan in which it was launched for two epochs, and what that said.

    All processes of pytest share it: tests only read.
    """
    with _made_once("trained", tmp_path_factory) as (folder, is_new):
        if is_new:
            shutil.copy(tuned_folder / "planner.db", folder)
            (folder / "launch.py").write_text("raise SystemExit('not ddlplan itself')\n")
            (folder / "hosts").write_text("localhost slots=2\n")
            words = ("--epochs", 2, "--hosts", "hosts", "--keep-best", "--allow-run-as-root")
            _run_for_all(folder, "launch", *words)
    return folder


@contextmanager
def _made_once(name: str, factory: pytest.TempPathFactory) -> Iterator[tuple[Path, bool]]:
    """Give a folder of the session, which only one process has to fill."""
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    folder.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_new = not (folder / "err").exists()
        yield folder, is_new


def _run_for_all(folder: Path, command: str, *arguments: object) -> None:
    """Run a command on the steady use case, and keep what it wrote."""
    line = CommandLine(folder)
    ended = line.end(line.start(command, "--use-case", STEADY, *arguments))
    assert ended.code == 0, ended.err
    (folder / "out").write_text(ended.out)
    (folder / "err").write_text(ended.err)


@pytest.fixture(scope="session")
def probed_database(tuned_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that knows this machine and holds no trial: a search need not wait for probes."""
    file = tmp_path_factory.mktemp("probed") / "planner.db"
    shutil.copy(tuned_folder / "planner.db", file)
    for table in ("plans", "trials", "studies"):
        execute(file, f"DELETE FROM {table}")
    return file


@pytest.fixture
def probed(ddlplan: CommandLine, probed_database: Path) -> CommandLine:
    """The command in a folder whose database knows this machine, and nothing else."""
    shutil.copy(probed_database, ddlplan.folder / "planner.db")
    return ddlplan


@pytest.fixture
def tuned(ddlplan: CommandLine, tuned_folder: Path) -> CommandLine:
    """The command in a folder whose database holds one plan, of the steady use case."""
    shutil.copy(tuned_folder / "planner.db", ddlplan.folder / "planner.db")
    return ddlplan


@pytest.fixture
def trained(ddlplan: CommandLine, trained_folder: Path) -> CommandLine:
    """The command in a folder whose database holds one finished training, of the steady use case.

    What that left lies where it was launched.
    """
    shutil.copy(trained_folder / "planner.db", ddlplan.folder / "planner.db")
    return ddlplan


@pytest.fixture
def import_for(tuned: CommandLine) -> Callable[..., int]:
    """Store the tuned plan once more, with changes; give its number."""

    def do(case: str = "Steady", **changes: Any) -> int:
        document = tuned.data("plans", "export", 1)
        document |= {"use_case": f"{CASES}:{case}", **changes}
        if case != "Steady":
            document["use_case_digest"] = None
        file = tuned.folder.parent / "plan.json"
        file.write_text(json.dumps(document))
        return int(tuned.data("plans", "import", file)["id"])

    return do
