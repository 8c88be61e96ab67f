"""In a real Chromium pages follow changes, keep what a person does, and load nothing foreign."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from browsers import Browser, chromium
from free_ports import free_port
from imagined_lab import Lab, fill
from serving import Serving, serving

from planner.plans.stored_plan import utc_now
from planner.records.training_record import TrainingStatus
from planner.store import Store
from planner.supervision.job_folder import JobFolder

pytestmark = pytest.mark.long

PAGES = (
    *("/", "/machines", "/machines/1", "/studies", "/studies/3", "/plans", "/plans/1", "/hosts"),
    *("/trainings", "/trainings/7", "/jobs", "/jobs/12", "/search?name=a"),
    *("/compare", "/compare?plan=1&plan=2", "/compare?training=1&training=7"),
)


@dataclass
class Watched:
    """A browser that is signed in at a server."""

    browser: Browser
    server: Serving
    folder: Path

    def open(self, path: str) -> None:
        self.browser.open(self.server.address.partition("/?")[0] + path)
        self.wait_for(lambda: self.run("return document.readyState") == "complete", "loaded")

    def run(self, script: str) -> object:
        return self.browser.driver.execute_script(script)

    def wait_for(self, is_so: Callable[[], object], what: str) -> None:
        self.browser.wait_until(is_so, what)

    def wait_until_live(self) -> None:
        state = "return document.getElementById('live-state').textContent"
        self.wait_for(lambda: self.run(state) == "Live", "live")

    def resize(self, width: int, *, is_dark: bool) -> None:
        driver = self.browser.driver
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    @property
    def store(self) -> Store:
        return Store.open(str(self.folder / "planner.db"))


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    lab = Lab(machines=3, studies=3, trials=45, plans=6, trainings=7, jobs=12, now=utc_now())
    fill(folder / "planner.db", lab)
    with watching(folder) as found:
        yield found


@contextmanager
def watching(folder: Path) -> Iterator[Watched]:
    """Serve the database of a folder, and sign a browser in."""
    with (
        chromium(folder) as browser,
        serving(
            folder, "--port", free_port(), "--allow-actions", has_token_file=False
        ) as server,  # which may be started again
    ):
        browser.open(server.address)
        yield Watched(browser, server, folder)


def test_no_text_of_a_user_makes_a_page_wider_than_a_phone_or_a_screen_or_load_from_outside(
    hostile_db, tmp_path
):
    shutil.copy(hostile_db, tmp_path / "planner.db")
    with watching(tmp_path) as watched:
        for path in PAGES:
            there = path.replace("/3", "/2").replace("/7", "/4").replace("=7", "=4")
            watched.resize(390, is_dark=True)
            watched.open(there.replace("/12", "/6"))
            for width in (390, 1280):
                watched.resize(width, is_dark=width == 390)
                assert watched.run("return document.documentElement.scrollWidth") <= width, path
        assert watched.browser.errors() == []
        assert watched.browser.requested_hosts() == {watched.server.address.split("/")[2]}


def test_a_page_shows_what_changes_and_keeps_what_a_person_does(watched):
    """The epochs of a training come in; the table that is open stays open, and the focus stays."""
    watched.resize(1280, is_dark=False)
    watched.open("/trainings/7")
    watched.wait_until_live()
    watched.run("document.getElementById('epochs-1-table').open = true")
    watched.run("document.querySelector('#epochs-1-table summary').focus(); scrollTo(0, 300)")
    with watched.store as store:
        record = store.trainings.get(7)
        more = [*record.epochs_done, *record.epochs_done[-1:]]
        store.trainings.update(7, epochs_done=more, steps=123_456)
    steps = "return document.querySelector('#summary').textContent"
    watched.wait_for(lambda: "123,456" in str(watched.run(steps)), "the new number of steps")
    watched.wait_for(
        lambda: watched.run("return document.getElementById('epochs-1-table').open"), "open"
    )
    assert watched.run("return document.activeElement.tagName") == "SUMMARY"
    assert watched.run("return scrollY") == 300
    rows = "return document.querySelectorAll('#epochs-1-table tbody tr').length"
    assert watched.run(rows) == len(more)
    with watched.store as store:
        store.trainings.end(7, TrainingStatus.DONE)
    watched.wait_for(lambda: watched.run("return !!document.querySelector('.state.done')"), "done")


def test_an_error_of_an_action_is_shown_beside_its_form(watched):
    watched.open("/plans")
    watched.run("document.getElementById('box-import').open = true")
    watched.run("document.getElementById('import-plan').value = '{\"strategy\": 7}'")
    watched.run("document.querySelector('#form-import button').click()")
    said = "return document.querySelector('#form-import .answer').textContent"
    watched.wait_for(lambda: watched.run(said), "an answer")
    watched.run("document.getElementById('import-plan').value = 'no JSON'")
    watched.run("document.querySelector('#form-import button').click()")
    watched.wait_for(lambda: "No JSON" in str(watched.run(said)), "another answer")


def test_a_plan_is_imported_and_removed_from_its_pages(watched):
    watched.open("/plans")
    with watched.store as store:
        document = store.plans.get(1).to_json(stale=False)
    text = json.dumps(json.dumps(document))
    watched.run("document.getElementById('box-import').open = true")
    watched.run(f"document.getElementById('import-plan').value = {text}")
    watched.run("document.querySelector('#form-import button').click()")
    watched.wait_for(lambda: "/plans/" in watched.browser.driver.current_url, "its page")
    number = int(str(watched.browser.driver.current_url).rpartition("/")[2])
    watched.wait_for(lambda: watched.run("return !!document.getElementById('form-remove')"), "form")
    watched.run(
        "window.confirm = () => true; document.querySelector('#form-remove button').click()"
    )
    watched.wait_for(lambda: watched.browser.driver.current_url.endswith("/plans"), "the list")
    with watched.store as store:
        assert number not in [plan.id for plan in store.plans.find()]


def test_a_log_shows_its_end_and_stays_where_a_person_has_scrolled_to(watched):
    def place() -> tuple[int, int]:
        top, most = json.loads(
            str(
                watched.run(
                    "const log = document.querySelector('pre.log');"
                    "return JSON.stringify([log.scrollTop, log.scrollHeight - log.clientHeight])"
                )
            )
        )
        return round(top), most

    def wait_for_line(text: str) -> None:
        with job.log.open("a") as log:
            log.write(f"{text}\n" * 20)
        with watched.store as store:
            store.jobs.set_folder(number, str(job.path))  # a change, of which the page is told
        shown = "return document.querySelector('pre.log').textContent"
        watched.wait_for(lambda: text in str(watched.run(shown)), text)

    with watched.store as store:
        record = store.jobs.add(replace(store.jobs.get(1), id=None, created_at=utc_now()))
        job = JobFolder.create(record, watched.folder / "jobs")
        number = record.id
        store.jobs.set_folder(number, str(job.path))
    job.log.write_text("a line\n" * 100)
    watched.open(f"/jobs/{number}")
    watched.wait_until_live()
    top, most = place()
    assert most > 0
    assert top >= most - 4
    wait_for_line("more of it")
    top, most = place()
    assert top >= most - 4
    watched.run("document.querySelector('pre.log').scrollTop = 10")
    wait_for_line("and the rest")
    assert place()[0] == 10


def test_a_page_says_that_a_server_which_was_started_again_does_not_know_it(watched):
    """The last test of this server, whose browser is signed out by it."""
    watched.open("/plans/1")
    watched.wait_until_live()
    assert watched.run("return document.querySelector('button[data-copy]').hidden") is False
    watched.server.stop()
    watched.server.start()
    said = "return document.getElementById('live-state').textContent"
    watched.wait_for(lambda: "Signed out" in str(watched.run(said)), "why it is not live")
