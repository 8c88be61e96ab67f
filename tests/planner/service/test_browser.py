"""A person with a browser: starts a search, watches it, trains; the server dies and comes back."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest
from browsers import Browser, chromium
from free_ports import free_port
from serving import Serving, serving

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SMALL = '''

class Small(Steady):
    """Sleeps in each step of a test too: epochs of half a second."""

    def dataset(self, data, *, train):
        return Numbers(64)

    def loss(self, output, target):
        time.sleep(STEP_S)
        return functional.cross_entropy(output, target)
'''


class Person:
    """What a person does with the pages."""

    def __init__(self, browser: Browser, origin: str) -> None:
        self.browser = browser
        self.origin = origin

    def go(self, path: str) -> None:
        self.browser.open(f"{self.origin}{path}")

    @property
    def path(self) -> str:
        return self.browser.driver.current_url.removeprefix(self.origin)

    def fill(self, form: str, **values: str) -> None:
        """Open a form, fill it in and send it; the browser is then at the job."""
        from selenium.webdriver.support.ui import Select

        for box in self.browser.all(f"details:has(#form-{form}):not([open]) > summary"):
            box.click()
        for name, value in values.items():
            field = self.browser.one(f"#form-{form} [name={name}]")
            if field.tag_name == "select":
                (option,) = (
                    one
                    for one in Select(field).options
                    if one.get_attribute("value").endswith(value)
                )
                option.click()
            else:
                field.clear()
                field.send_keys(value)
        before = self.path
        self.browser.one(f"#form-{form} button").click()
        self.browser.wait_until(
            lambda: self.path != before or self.browser.one(f"#form-{form} .answer").text,
            "an answer",
        )
        assert self.path != before, self.browser.one(f"#form-{form} .answer").text

    def mark(self) -> None:
        """Remember this very page, so that `is_same` can tell a reload."""
        self.browser.driver.execute_script("window.isMarked = true")

    @property
    def is_same(self) -> bool:
        return bool(self.browser.driver.execute_script("return window.isMarked === true"))


@pytest.fixture
def server(ddlplan, cases) -> Iterator[Serving]:
    (ddlplan.folder / "case.py").write_text(cases.read_text() + SMALL)
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        ddlplan.environment[name] = "1"
    options = ("--port", free_port(), "--allow-actions", "--use-case", "case.py:Small")
    with serving(ddlplan.folder, *options, environment=ddlplan.surroundings()) as started:
        yield started
        started.stop()
    for job in ddlplan.processes(of="launch"):  # none, if the test came to its end
        with contextlib.suppress(ProcessLookupError):
            os.kill(job, signal.SIGKILL)


@pytest.fixture
def person(server, tmp_path) -> Iterator[Person]:
    with chromium(tmp_path) as browser:
        yield Person(browser, server.address.rstrip("/"))


def num_losses(browser: Browser) -> int:
    """Give how many epochs the table behind the loss curve has."""
    return len(browser.all("#epochs-1 tbody tr"))


def test_a_search_and_a_training_are_started_watched_and_outlive_the_server(
    server, person, ddlplan
):
    browser = person.browser
    person.go("/")
    assert "Nothing runs" not in browser.text
    browser.sign_in((ddlplan.folder / "token").read_text().strip())
    assert "The first command" in browser.text

    # A search, live to its end: the page is never loaded again.
    person.fill("tune", use_case="case.py:Small", budget="30s")
    assert person.path == "/jobs/1"
    person.mark()
    browser.wait_until(lambda: "best so far" in browser.text, "figures of the search")
    browser.wait_until(lambda: "done" in browser.one("#head").text, "the end of the search")
    assert "plan 1" in browser.text
    assert person.is_same
    person.go("/")
    assert browser.all("#best a[href='/plans/1']")

    # The plan is trained with, and its losses come in.
    person.go("/plans/1")
    person.fill("launch", epochs="4000")
    assert person.path == "/jobs/2"
    browser.wait_until(lambda: browser.all("#state a[href^='/trainings/']"), "its training")
    browser.one("#state a[href^='/trainings/']").click()
    browser.wait_until(lambda: num_losses(browser) >= 2, "a loss curve")
    person.mark()
    seen = num_losses(browser)
    browser.wait_until(lambda: num_losses(browser) > seen, "more of the loss curve")
    assert person.is_same
    assert browser.errors() == []

    # The server dies. The training does not, and the page finds the next server by itself.
    (training,) = ddlplan.processes(of="planner launch")
    server.stop(signal.SIGKILL)
    browser.wait_until(lambda: "Connection lost" in browser.one("#live-state").text, "a word of it")
    seen = num_losses(browser)
    assert training in ddlplan.processes(of="planner launch")
    server.start()
    browser.wait_until(lambda: "Live" in browser.one("#live-state").text, "the next server")
    browser.wait_until(lambda: num_losses(browser) > seen, "what was trained meanwhile")
    assert person.is_same
    assert list(ddlplan.processes(of="planner launch")) == [training]
    browser.errors()  # of the connection that was lost

    browser.one("#form-cancel button").click()
    browser.driver.switch_to.alert.accept()
    browser.wait_until(lambda: "cancelled" in browser.one("#head").text, "the end of the training")
    ddlplan.wait_until(lambda: not ddlplan.processes(of="launch"), "no process of it is left")
    assert browser.errors() == []
    assert browser.requested_hosts() == {server.address.split("/")[2]}
