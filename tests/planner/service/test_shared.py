"""What many ask for at the same time is made once, and never from before a change."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from planner.service.requests.answers import Answer
from planner.service.requests.documents import RequestError
from planner.service.requests.shared import SharedAnswers
from planner.service.requests.work import WorkerThreads

PAGE = ("/plans", b"")


class Pages:
    """Counts how often a page is made; holds it back until it may be."""

    def __init__(self) -> None:
        self.made = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def make(self) -> Answer:
        assert self.may_go_on.wait(60)
        self.made += 1
        return Answer(body=str(self.made).encode())


def ask(shared, pages, times, address=PAGE, *, is_refresh=False):
    async def at_once():
        asked = [
            asyncio.ensure_future(shared.get(address, pages.make, is_refresh=is_refresh))
            for _ in range(times)
        ]
        await asyncio.sleep(0)
        pages.may_go_on.set()
        return [answer.body for answer in await asyncio.gather(*asked)]

    return asyncio.run(at_once())


@pytest.fixture
def threads():
    return WorkerThreads(1, most_waiting=100)


def test_those_who_ask_at_once_share_an_answer(threads):
    began_s = time.monotonic() - 1
    shared, pages = SharedAnswers(threads, lambda: began_s, cores=1.0), Pages()
    pages.may_go_on.clear()
    assert ask(shared, pages, 50) == [b"1"] * 50


def test_other_addresses_have_other_answers(threads):
    began_s = time.monotonic() - 1
    shared, pages = SharedAnswers(threads, lambda: began_s, cores=1.0), Pages()
    assert ask(shared, pages, 1, ("/plans", b"before=3")) != ask(shared, pages, 1)


def test_an_answer_from_before_a_change_serves_nobody_after_it(threads):
    changed_s = time.monotonic() - 1
    shared, pages = SharedAnswers(threads, lambda: changed_s, cores=1.0), Pages()
    assert ask(shared, pages, 1) == ask(shared, pages, 1)
    changed_s = time.monotonic()
    assert ask(shared, pages, 2) == [b"2", b"2"]


def test_nothing_is_shared_while_nobody_looks_for_changes(threads):
    shared, pages = SharedAnswers(threads, lambda: None, cores=1.0), Pages()
    assert ask(shared, pages, 3) == [b"1", b"2", b"3"]


def test_a_failure_is_told_to_those_who_waited_and_kept_for_nobody_else(threads):
    began_s = time.monotonic() - 1
    shared, pages = SharedAnswers(threads, lambda: began_s, cores=1.0), Pages()

    def fail():
        raise RequestError(503, "busy")

    with pytest.raises(RequestError):
        asyncio.run(shared.get(PAGE, fail))
    assert ask(shared, pages, 1) == [b"1"]


def test_a_refresh_waits_until_the_one_before_is_paid_for(threads):
    """A page that takes some time of a core may be made anew after two hundred times as long."""
    changed_s = time.monotonic() - 1
    shared, pages = SharedAnswers(threads, lambda: changed_s, cores=0.005), Pages()

    def make():
        began_s = time.thread_time()
        while time.thread_time() < began_s + 0.01:
            pass
        return pages.make()

    async def twice():
        nonlocal changed_s
        began_s = time.monotonic()
        await shared.get(PAGE, make, is_refresh=True)
        changed_s = time.monotonic()
        refreshed = asyncio.ensure_future(shared.get(PAGE, make, is_refresh=True))
        await asyncio.sleep(0.05)
        assert not refreshed.done()
        also = asyncio.ensure_future(shared.get(PAGE, make, is_refresh=True))
        asked = await shared.get(("/plans/1", b""), make)  # by somebody who has just come
        answers = [asked.body, (await refreshed).body, (await also).body]
        return answers, time.monotonic() - began_s

    answers, took_s = asyncio.run(twice())
    assert answers == [b"2", b"3", b"3"]
    assert took_s > 2.0
