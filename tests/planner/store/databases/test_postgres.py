"""PostgreSQL: servers that go and come, commits without an answer, rights and passwords."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from contextlib import closing, suppress

import pytest
from postgres_server import PostgresServer, require_server
from store_cases import STUDY, marks, trial, write_trials

from launch.packages.install_command import install_command
from launch.system.session import defer_signals
from planner.errors import (
    NoDatabaseError,
    StoreCorruptError,
    StoreLockedError,
    StoreUnreachableError,
    StoreUnwritableError,
    StoreUrlError,
)
from planner.store import Store, check_location

fork = multiprocessing.get_context("fork")


@pytest.fixture
def url(postgres):
    """An empty database."""
    return postgres.empty_database()


@pytest.fixture
def filled(url):
    write_trials(url)
    return url


class LossyProxy:
    """Passes bytes between a client and a server, and loses connections at their commits.

    Args:
        server: The server.
        loses: Whether it loses "the commit" before the server has it, or "the answer" to it.
    """

    def __init__(self, server: PostgresServer, loses: str = "nothing") -> None:
        self._upstream, self._loses = f"{server.folder}/.s.PGSQL.{server.port}", loses
        self.left = 0
        """How many connections it loses."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def address(self, url: str) -> str:
        return url.partition("?")[0] + f"?host=127.0.0.1&port={self.port}"

    def close(self) -> None:
        # The thread that waits in accept() keeps the port open else.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._upstream)
                pair = (client, server)
                threading.Thread(target=self._send, args=pair, daemon=True).start()
                threading.Thread(target=self._answer, args=pair, daemon=True).start()

    def _send(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if b"COMMIT\0" in data and self.left:  # not that of READ COMMITTED
                    self.left -= 1
                    # The client sees its connection break, and the server goes on or does not.
                    client.shutdown(socket.SHUT_RDWR)
                    if self._loses == "the answer":
                        server.sendall(data)
                        time.sleep(0.2)
                    break
                server.sendall(data)
        _end(client, server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _end(client, server)


def _end(*connections: socket.socket) -> None:
    """End connections: closing alone does nothing while another thread reads from one."""
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


@pytest.mark.parametrize("loses", ["the commit", "the answer"])
def test_a_trial_whose_commit_has_no_answer_is_stored_once(postgres, filled, loses):
    """Done again blindly it would be there twice; believed blindly, not at all."""
    with (
        closing(LossyProxy(postgres, loses)) as proxy,
        Store.open(proxy.address(filled)) as store,
    ):
        for number in range(1, 4):
            proxy.left = number
            store.studies.add_trial(1, trial(number))
            assert proxy.left == 0
    assert marks(filled) == [0, 1, 2, 3]
    with Store.open(filled) as store:
        assert len(store.events.after(0)) == 5  # of the study, and of each trial


def test_writers_leave_one_mark_each_and_those_of_yesterday_are_removed(postgres, filled):
    for number in range(3):
        with Store.open(filled) as store:
            for _ in range(3):
                store.studies.add_trial(1, trial(number))
    count = "SELECT count(*) FROM ddlplan_commits"
    assert postgres.execute(count, filled) == [(4,)]
    postgres.execute("UPDATE ddlplan_commits SET at = at - interval '2 days'", filled)
    with Store.open(filled) as store:
        store.studies.add_trial(1, trial(9))
    assert postgres.execute(count, filled) == [(1,)]


def write_slowly(url, pipe, count):
    with Store.open(url, outage_s=60) as store:
        for number in range(1, count + 1):
            store.studies.add_trial(1, trial(number))
            os.write(pipe, b".")
            time.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_is_stopped_and_started_is_waited_for_and_loses_nothing(how):
    require_server()
    with PostgresServer() as server:
        url = server.make_database()
        write_trials(url)
        reading, writing = os.pipe()
        writers = [fork.Process(target=write_slowly, args=(url, writing, 60)) for _ in range(2)]
        for writer in writers:
            writer.start()
        os.close(writing)
        written = b""
        for at in (20, 60):
            while len(written) < at:
                written += os.read(reading, 1)
            getattr(server, how)()
            time.sleep(0.3)
            server.start()
        for writer in writers:
            writer.join()
        os.close(reading)
        assert [writer.exitcode for writer in writers] == [0, 0]
        assert sorted(marks(url)) == sorted([0, *range(1, 61), *range(1, 61)])


def test_a_server_that_does_not_come_back_is_one_error_after_the_time_given(postgres, filled):
    with closing(LossyProxy(postgres)) as proxy:
        through = proxy.address(filled)
        with Store.open(through, outage_s=0.5) as store:
            proxy.close()
            with pytest.raises(StoreUnreachableError, match="start the server"):
                store.studies.get_or_create(STUDY)
            with pytest.raises(StoreUnreachableError):
                store.plans.find()
    began = time.monotonic()
    with pytest.raises(StoreUnreachableError) as refused:
        Store.open(through)
    assert time.monotonic() - began < 120  # of an outage of five minutes: it never answered
    assert "\n" not in str(refused.value)


def test_ctrl_c_ends_the_wait_for_a_server_though_it_is_deferred(postgres, filled):
    """The story: for five minutes nothing ended a search whose server had gone."""
    with (
        closing(LossyProxy(postgres)) as proxy,
        Store.open(proxy.address(filled), outage_s=60) as store,
    ):
        proxy.close()
        began = time.monotonic()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), defer_signals():
            store.studies.add_trial(1, trial(1))
        assert time.monotonic() - began < 30


def test_a_lock_that_is_held_too_long_is_one_error(postgres, filled):
    import psycopg

    name = filled.partition("@/")[2].partition("?")[0]
    with psycopg.connect(
        dbname=name, user="postgres", host=str(postgres.folder), port=postgres.port
    ) as other:
        other.execute("SELECT pg_advisory_xact_lock(28257914576462190)")
        with Store.open(filled, lock_timeout_s=0.2) as store:
            with pytest.raises(StoreLockedError, match=r"locked.* 0\.2 s"):
                store.studies.add_trial(1, trial(1))
            assert len(store.studies.all_trials()) == 1  # readers do not wait
    assert marks(filled) == [0]


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_conflict_with_another_transaction_is_tried_again(postgres, filled, state):
    # The server's own errors, raised by a trigger for the first two inserts.
    postgres.execute("CREATE SEQUENCE conflicts", filled)  # which no rollback undoes
    postgres.execute(
        "CREATE FUNCTION conflict() RETURNS trigger AS $$ BEGIN"
        " IF nextval('conflicts') <= 2 THEN"
        f" RAISE EXCEPTION 'made up' USING ERRCODE = '{state}'; END IF; RETURN NEW;"
        " END $$ LANGUAGE plpgsql",
        filled,
    )
    postgres.execute(
        "CREATE TRIGGER conflict BEFORE INSERT ON trials FOR EACH ROW EXECUTE FUNCTION conflict()",
        filled,
    )
    with Store.open(filled) as store:
        store.studies.add_trial(1, trial(1))
    assert marks(filled) == [0, 1]


def test_a_database_that_is_not_there_is_named_with_the_way_out(postgres):
    with pytest.raises(StoreUnreachableError, match=r"nowhere.*createdb"):
        Store.open(postgres.url("nowhere"))
    with pytest.raises(StoreUnreachableError, match=r"nobody.*createuser"):
        Store.open(postgres.url("postgres", user="nobody_here"))


def test_an_empty_database_is_none_to_read(postgres, url):
    with pytest.raises(NoDatabaseError, match="run ddlplan tune first"):
        Store.open(url, create=False)
    check_location(url)
    assert postgres.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", url) == [
        (0,)
    ]


def test_a_database_of_another_program_is_refused_and_left_as_it_was(postgres, url):
    postgres.execute("CREATE TABLE bookmarks (url TEXT)", url)
    for create in (True, False):
        with pytest.raises(StoreCorruptError, match="another program"):
            Store.open(url, create=create)


_COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable, collation_name, column_default "
    "FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"
)


def test_a_database_of_version_7_gets_the_tables_that_a_new_one_has(postgres, filled):
    """The first version that PostgreSQL had: no step before knows its words."""
    newest = postgres.execute(_COLUMNS, filled)
    for statement in (
        "ALTER TABLE trainings DROP COLUMN use_case_digest",
        "ALTER TABLE trials DROP COLUMN peak_device_memory_bytes",
        "ALTER TABLE plans DROP COLUMN peak_device_memory_bytes",
        "ALTER TABLE plans DROP COLUMN is_generated",
        "ALTER TABLE trainings DROP COLUMN is_generated",
        "ALTER TABLE plans DROP COLUMN objective",
        "ALTER TABLE jobs DROP COLUMN sweep_id",
        "DROP TABLE sweep_points",
        "DROP TABLE sweeps",
        "UPDATE ddlplan_schema SET version = 7",
    ):
        postgres.execute(statement, filled)
    Store.open(filled).close()
    assert postgres.execute(_COLUMNS, filled) == newest


def test_a_user_without_rights_is_told_before_anything_is_timed(postgres, filled):
    postgres.execute("DROP ROLE IF EXISTS reader")
    postgres.execute("CREATE ROLE reader LOGIN")
    postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", filled)
    as_reader = filled.replace("postgres@/", "reader@/")
    with pytest.raises(StoreUnwritableError, match="may not write"):
        check_location(as_reader)
    with Store.open(as_reader, create=False) as store:
        assert len(store.studies.all_trials()) == 1
        with pytest.raises(StoreUnwritableError, match="permission denied"):
            store.studies.add_trial(1, trial(1))
    empty = postgres.empty_database()
    with pytest.raises(StoreUnwritableError, match="may not write"):
        check_location(empty.replace("postgres@/", "reader@/"))


def test_an_encoding_without_all_letters_is_refused(postgres):
    latin = postgres.make_database(
        *("--encoding", "LATIN1", "--locale", "C", "--template", "template0")
    )
    with pytest.raises(StoreUnwritableError, match=r"encoding=LATIN1.*createdb --encoding UTF8"):
        Store.open(latin)


@pytest.fixture
def with_password(postgres, filled, monkeypatch):
    """The address of the filled database for a user who needs a password."""
    postgres.execute("DROP ROLE IF EXISTS ann")
    postgres.execute("CREATE ROLE ann LOGIN PASSWORD 'open:sesame'")
    postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO ann", filled)
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    name = filled.partition("@/")[2].partition("?")[0]
    return f"postgresql://ann@127.0.0.1:{postgres.port}/{name}"


def test_the_password_comes_from_a_password_file(with_password, tmp_path, monkeypatch):
    with pytest.raises(StoreUnreachableError, match=r"password.*\.pgpass"):
        Store.open(with_password, create=False)
    file = tmp_path / "pgpass"
    file.write_text("127.0.0.1:*:*:ann:open\\:sesame\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    with Store.open(with_password, create=False) as store:
        assert len(store.studies.all_trials()) == 1
    file.write_text("127.0.0.1:*:*:ann:wrong\n")
    with pytest.raises(StoreUnreachableError, match="password authentication failed") as refused:
        Store.open(with_password, create=False)
    assert "wrong" not in str(refused.value)


def test_a_service_file_may_say_everything(with_password, tmp_path, monkeypatch):
    _, _, place = with_password.partition("@")
    port, _, name = place.partition(":")[2].partition("/")
    file = tmp_path / "services"
    file.write_text(
        f"[lab]\nhost=127.0.0.1\nport={port}\ndbname={name}\nuser=ann\npassword=open:sesame\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    with Store.open("postgresql://?service=lab", create=False) as store:
        assert len(store.studies.all_trials()) == 1


def test_the_driver_is_asked_for_only_where_an_address_needs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    Store.open(str(tmp_path / "planner.db")).close()
    with pytest.raises(StoreUrlError) as refused:
        Store.open("postgresql://ann@host/without_driver")
    assert install_command("ddlplan[postgres]") in str(refused.value)


def test_an_option_that_the_driver_does_not_know_is_one_error(postgres, filled):
    with pytest.raises(StoreUrlError, match="sslmood"):
        Store.open(f"{filled}&sslmood=good")
