"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port, as its own user."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from free_ports import free_port

_GUARD_S = 120
_SETTINGS = {
    # A server that is killed loses nothing by that; only the machine's power would.
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "120",
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "panic",
}


def find_programs() -> Path | None:
    """Find the folder of initdb and postgres, which Debian keeps out of the path."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[4])
    )
    return folders[-1].parent if folders else None


def find_obstacle() -> str | None:
    """Say why no server can be started here."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed: pip install 'psycopg[binary]'"
    if find_programs() is None:
        return "PostgreSQL's server is not installed: apt-get install postgresql"
    if os.geteuid() == 0 and not _has_user("postgres"):
        return "PostgreSQL refuses root, and there is no user postgres"
    return None


def require_server() -> None:
    """Skip where no server can be started; where CI promised that one can, fail."""
    if (obstacle := find_obstacle()) is None:
        return
    import pytest  # benches use this module too

    if os.environ.get("POSTGRES") == "required":
        pytest.fail(f"POSTGRES=required, but {obstacle}")
    pytest.skip(obstacle)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


class PostgresServer:
    """One server, which may be stopped and started again. Use it in a ``with`` block.

    Args:
        settings: More of its settings.
    """

    def __init__(self, **settings: str) -> None:
        programs = find_programs()
        assert programs is not None
        self._programs = programs
        self._settings = _SETTINGS | settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._emptied: str | None = None

    def __enter__(self) -> PostgresServer:
        # Short: the name of a socket has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
            shutil.chown(self.data, "postgres")
        self._run(
            *("initdb", "--pgdata", self.data, "--username", "postgres", "--encoding", "UTF8"),
            *("--locale", "C.UTF-8", "--auth-local", "trust", "--auth-host", "scram-sha-256"),
            "--no-sync",
        )
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [self._programs / "postgres", "-D", self.data, "-p", str(self.port)]
        command += ["-k", self.folder]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, preexec_fn=_end_with_parent, **_as_own_user()
            )
        deadline = time.monotonic() + _GUARD_S
        while not self._answers():
            said = (self.folder / "log").read_text()[-2000:]
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it as an administrator does: what runs is rolled back."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it at once: it recovers when it is started again."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_GUARD_S)
            self._process = None

    def empty_database(self) -> str:
        """Give the address of a database that is empty now; each call empties the same one.

        Making one takes half a second, and removing its files as long.
        """
        if self._emptied is None:
            self._emptied = self.make_database()
        for statement in (
            "DROP SCHEMA public CASCADE",
            "CREATE SCHEMA public",
            "GRANT USAGE ON SCHEMA public TO PUBLIC",
        ):
            self.execute(statement, self._emptied)
        return self._emptied

    def make_database(self, *options: str) -> str:
        """Make a database and give its address."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self._run("createdb", *options, name)
        return self.url(name)

    def url(self, name: str, user: str = "postgres") -> str:
        return f"postgresql+psycopg://{user}@/{name}?host={self.folder}&port={self.port}"

    def execute(self, sql: str, url: str | None = None) -> list[tuple[Any, ...]]:
        """Run SQL by another connection, and give its rows."""
        import psycopg

        name = "postgres" if url is None else url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(
            dbname=name, user="postgres", host=str(self.folder), port=self.port, autocommit=True
        ) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        import psycopg

        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: object) -> None:
        known = {"PGHOST": str(self.folder), "PGPORT": str(self.port), "PGUSER": "postgres"}
        done = subprocess.run(
            [self._programs / program, *map(str, arguments)],
            env={**os.environ, **known},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            **_as_own_user(),
        )
        assert done.returncode == 0, done.stdout.decode()


def _as_own_user() -> dict[str, Any]:
    # The working folder may be closed to that user.
    if os.geteuid() != 0:
        return {"cwd": "/"}
    return {"cwd": "/", "user": "postgres", "group": "postgres", "extra_groups": []}


_prctl = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Tests that are killed must not leave a server behind."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
