"""Every page in a browser: asks no other server, says no error, needs no script and no mouse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browsers import Browser, chromium
from imagined_lab import SMALL, fill
from sample_plan import NOON
from serving import serving

from planner.paper_tables import load_paper, paper_names
from planner.paper_tables._evidence import StoredEvidence
from planner.report.papers.page import report_page
from planner.service.site import PAGES

pytestmark = pytest.mark.long

PATHS = [path.replace("{id}", "1") for path in PAGES]

FIND_STOPS = """
for (const one of document.querySelectorAll("details")) one.open = true;
const all = [...document.querySelectorAll(
  "a[href], button, input, select, textarea, summary, [tabindex='0']")];
const shown = all.filter((one) => one.checkVisibility({visibilityProperty: true})
  && !one.disabled && one.type !== "hidden");
shown.forEach((one, number) => { one.dataset.stop = number; });
document.body.focus();
return shown.map((one) => one.outerHTML.slice(0, 80));
"""
FIND_WIDE_TABLES = """
const shown = [...document.querySelectorAll(".scroll")].filter((one) => one.checkVisibility());
return [shown.length, ...shown.filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.ariaLabel)];
"""
FIND_FOCUS = """
const one = document.activeElement, style = getComputedStyle(one);
const isSeen = style.outlineStyle !== "none" || style.boxShadow !== "none";
return [one.dataset.stop ?? "", isSeen];
"""


@pytest.fixture(scope="module")
def origin(tmp_path_factory, own_locks) -> Iterator[tuple[str, str]]:
    """Address and token of a server that has something of every kind, and offers actions."""
    folder = tmp_path_factory.mktemp("lab")
    fill(folder / "planner.db", SMALL)
    with serving(folder, "--allow-actions") as server:
        yield server.address.rstrip("/"), server.token
        assert server.stop() == 0


@pytest.fixture(scope="module")
def browser(origin, tmp_path_factory) -> Iterator[Browser]:
    """A browser that is signed in."""
    address, token = origin
    with chromium(tmp_path_factory.mktemp("browser")) as found:
        found.open(address)
        found.sign_in(token)
        yield found


@pytest.mark.parametrize("path", PATHS)
def test_a_page_asks_no_other_server_says_no_error_and_can_be_read_without_scripts(
    browser, origin, path
):
    browser.open("about:blank")
    browser.errors(), browser.requested_hosts()
    browser.open(f"{origin[0]}{path}")
    assert browser.one("h1").text
    assert browser.errors() == []
    assert browser.requested_hosts() == {origin[0].partition("//")[2]}
    said = browser.one("main").text
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(f"{origin[0]}{path}")
        without = browser.one("main").text
        footer = browser.one("footer").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert len(without) > 0.8 * len(said)
    assert "Live" not in footer


@pytest.mark.parametrize("path", PATHS)
def test_the_tab_key_reaches_everything_and_shows_where_it_is(browser, origin, path):
    from selenium.webdriver import ActionChains, Keys

    browser.open(f"{origin[0]}{path}")
    stops = browser.driver.execute_script(FIND_STOPS)
    assert stops[0].startswith('<a class="skip"')
    reached, unseen = set(), set()
    for _ in range(2 * len(stops) + 10):
        ActionChains(browser.driver, duration=0).send_keys(Keys.TAB).perform()
        stop, is_seen = browser.driver.execute_script(FIND_FOCUS)
        if stop:
            reached.add(int(stop))
            if not is_seen:
                unseen.add(int(stop))
        if len(reached) == len(stops):
            break
    assert [html for number, html in enumerate(stops) if number not in reached] == []
    assert [stops[number] for number in sorted(unseen)] == []


def test_tables_of_a_report_fit_a_phone(browser, tmp_path):
    """The batches of a command, which has no space between them, made a table twice as wide."""
    sections = [load_paper(name).section(StoredEvidence()) for name in paper_names()]
    (tmp_path / "report.html").write_text(report_page(sections, NOON))
    phone = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        browser.open((tmp_path / "report.html").as_uri())
        count, *wide = browser.driver.execute_script(FIND_WIDE_TABLES)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert count == sum(len(section.tables) for section in sections)
    assert wide == []


def test_the_first_page_fills_when_something_is_stored(ddlplan, tmp_path):
    with (
        serving(ddlplan.folder, environment=ddlplan.surroundings()) as server,
        chromium(tmp_path) as browser,
    ):
        browser.open(server.address)
        browser.sign_in(server.token)
        assert "The first command" in browser.text
        assert ddlplan.run("probe", "--quick").code == 0
        ddlplan.wait_until(lambda: browser.all("#machines tbody tr"), "the machine")
        assert "The first command" not in browser.text
        assert browser.errors() == []
        assert server.stop() == 0
