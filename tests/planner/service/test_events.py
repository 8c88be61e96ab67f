"""Events: each change reaches everybody who follows, from where they left off."""

from __future__ import annotations

import asyncio
import json
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pytest
from filled_store import fill
from serving import GUARD_S, Serving, read_all, serving
from store_cases import execute
from training_samples import BEGUN, JOB

from launch.system.process_identity import ProcessIdentity
from planner.api.changes import Follower
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobState
from planner.records.training_record import TrainingStatus
from planner.service.events import EventStreams
from planner.service.requests.settings import Bounds
from planner.service.requests.work import WorkerThreads
from planner.store import Store


@dataclass
class Stream:
    """An open event stream."""

    connection: socket.socket
    text: str = ""

    def wait_for(self, part: str) -> str:
        """Read until a text has come, and give all that has."""
        while part not in self.text:
            self.wait_for_more()
        return self.text

    def wait_for_more(self) -> None:
        found = self.connection.recv(65536)
        assert found, f"it ended: {self.text}"
        self.text += found.decode()

    def events(self) -> list[tuple[str, dict]]:
        """Give kind and data of what has come whole."""
        found = []
        for block in self.text.split("\n\n")[:-1]:
            lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "event" in lines:
                data = json.loads(lines["data"])
                assert lines["id"] == str(data["id"])
                found.append((lines["event"], data))
        return found


@contextmanager
def follow(server: Serving, *lines: str, query: str = "") -> Iterator[Stream]:
    with server.connect() as connection:
        connection.sendall(server.head(*lines, path=f"/api/v1/events{query}"))
        stream = Stream(connection)
        stream.wait_for("retry:")
        stream.text = stream.text.partition("\r\n\r\n")[2]
        yield stream


def change(server: Serving) -> int:
    """Change something, and give the number of that change."""
    with Store.open(str(server.folder / "planner.db")) as store:
        store.jobs.beat(1)
        plan = store.plans.find()[0]
        store.plans.save(plan)
        return store.events.newest()


def test_a_change_reaches_all_who_follow(showing):
    with follow(showing) as one, follow(showing) as another:
        number = change(showing)
        for stream in (one, another):
            stream.wait_for(f"id: {number}\n")
            stream.wait_for("\n\n")
            assert [kind for kind, _ in stream.events()] == ["change"]
            ((_, data),) = stream.events()
            assert (data["topic"], data["id"]) == ("plan", number)


def test_a_stream_goes_on_where_its_reader_left_off(showing):
    first = change(showing)
    later = [change(showing), change(showing)]
    for place in ({"query": f"?after={first}"}, {"lines": [f"Last-Event-ID: {first}"]}):
        with follow(showing, *place.get("lines", ()), query=place.get("query", "")) as stream:
            stream.wait_for(f"id: {later[-1]}\n")
            assert [data["id"] for _, data in stream.events()][:1] == later[:1]
            final = change(showing)
            stream.wait_for(f"id: {final}\n")
            later.append(final)
    with follow(showing, f"Last-Event-ID: {first}", query="?after=1") as stream:
        stream.wait_for(f"id: {later[-1]}\nevent")
        stream.wait_for("\n\n")
        assert stream.events()[0][1]["id"] == first + 1


def test_who_begins_anew_gets_nothing_old(showing):
    change(showing)
    with follow(showing) as stream:
        number = change(showing)
        stream.wait_for(f"id: {number}\n")
        assert len([line for line in stream.text.splitlines() if line.startswith("id:")]) == 1


def test_who_missed_more_than_the_log_holds_begins_afresh(showing):
    number = change(showing)
    change(showing)
    execute(showing.folder / "planner.db", f"DELETE FROM events WHERE id <= {number}")
    with follow(showing, "Last-Event-ID: 1") as stream:
        stream.wait_for("event: reset")
        stream.wait_for(f"id: {number + 1}\n")
        after = change(showing)
        stream.wait_for(f"id: {after}\n")


def test_a_place_of_another_database_begins_afresh(showing):
    number = change(showing)
    with follow(showing, "Last-Event-ID: 999999") as stream:
        stream.wait_for(f"id: {number}\nevent: reset")


def test_a_page_that_is_newer_than_the_last_look_is_of_no_other_database(showing):
    """Its reader was told to begin afresh, and fetched it again."""
    with follow(showing):  # the server looks now and then, not when a stream is opened
        number = change(showing)
        with follow(showing, query=f"?after={number}") as stream:
            final = change(showing)
            while not (found := stream.events()):
                stream.wait_for_more()
            assert [(kind, data["id"]) for kind, data in found] == [("change", final)]


@pytest.mark.parametrize(
    "place", ["-1", "1.5", "a", "9" * 30, "1 2", "٣".encode().decode("latin-1")]
)
def test_a_place_that_is_none_is_refused(showing, place):
    assert showing.ask("/api/v1/events", last_event_id=place).status == 400


def test_a_database_that_comes_later_is_followed_and_streams_end_with_the_server(
    tmp_path, own_locks
):
    with serving(tmp_path) as started, follow(started) as one, follow(started) as another:
        fill(tmp_path / "planner.db")
        last = change(started)
        for stream in (one, another):
            stream.wait_for(f"id: {last}\n")
        assert started.stop() == 0
        for stream in (one, another):
            assert read_all(stream.connection).endswith(b"0\r\n\r\n")


def test_many_follow_at_once_and_leave_room_when_they_are_gone(showing):
    for _ in range(3):
        with ExitStack() as opened:
            streams = [opened.enter_context(follow(showing)) for _ in range(100)]
            number = change(showing)
            for stream in streams:
                stream.wait_for(f"id: {number}\n")
            assert showing.ask("/api/v1/plans").status == 200


def test_the_end_of_what_was_killed_is_an_event_though_nobody_asks_for_it(showing):
    with (
        Store.open(str(showing.folder / "planner.db")) as store,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
    ):
        here = {"machine": platform.node(), "process": ProcessIdentity.of(process.pid)}
        running = {"state": JobState.RUNNING, "is_detached": False, "created_at": utc_now()}
        job = store.jobs.add(replace(JOB, **running, **here))
        training = store.trainings.add(replace(BEGUN, **here))
        ids = {("job", job.id), ("training", training.id)}
        with follow(showing) as stream:
            process.kill()
            process.wait()
            while not ids <= {(data["topic"], data["subject_id"]) for _, data in stream.events()}:
                stream.wait_for_more()
        assert store.jobs.get(job.id).state is JobState.INTERRUPTED
        assert store.trainings.get(training.id).state is TrainingStatus.INTERRUPTED


def test_an_accident_is_told_once_and_changes_come_all_the_same(tmp_path, capfd):
    db = str(tmp_path / "planner.db")
    fill(tmp_path / "planner.db")
    numbers: list[int] = []

    class Faulty(Follower):
        def store_ends(self) -> None:
            if len(numbers) == 3:
                return
            with Store.open(db) as store:
                store.plans.save(store.plans.find()[0])
                numbers.append(store.events.newest())
            raise ValueError("an accident")

    async def follow_three() -> None:
        bounds = Bounds(poll_s=0.001, ends_s=0.001)
        streams = EventStreams(Faulty(db), WorkerThreads(1, most_waiting=9), bounds)
        has_come, text = asyncio.Event(), ""

        async def send(message) -> None:
            nonlocal text
            text += message.get("body", b"").decode()
            if len(numbers) == 3 and f"id: {numbers[-1]}\n" in text:
                has_come.set()

        async def receive():
            await has_come.wait()
            return {"type": "http.disconnect"}

        scope = {"type": "http", "headers": [], "query_string": b""}
        await asyncio.wait_for(streams(scope, receive, send), GUARD_S)

    asyncio.run(follow_three())
    assert capfd.readouterr().err.count("ValueError: an accident") == 1
