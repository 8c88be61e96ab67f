"""A headless Chromium, driven by Selenium, that keeps what it asked for and complained about."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from places import leave_out, require


class Browser:
    """Chromium with a profile of its own.

    Attributes:
        driver: Selenium's.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(url)

    @property
    def text(self) -> str:
        """What can be read on the page."""
        exceptions = importlib.import_module("selenium.common.exceptions")
        for _ in range(10):
            # A click may put the next page in place between the two requests.
            with contextlib.suppress(exceptions.StaleElementReferenceException):
                return str(self.one("body").text)
        return str(self.one("body").text)

    def all(self, selector: str) -> list[Any]:
        """Give the elements of a CSS selector."""
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        """Give the first element of a CSS selector."""
        return self.driver.find_element("css selector", selector)

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait until something is so; an element may be replaced while it is looked at."""
        from selenium.common import WebDriverException
        from selenium.webdriver.support.wait import WebDriverWait

        wait = WebDriverWait(self.driver, 150, 0.1, ignored_exceptions=[WebDriverException])
        wait.until(lambda _: is_so(), f"waited in vain: {what}")

    def sign_in(self, token: str) -> None:
        """Give the token that the page asks for, and wait for the page that was wanted."""
        self.one("input[name=token]").send_keys(token)
        self.one("button").click()
        self.wait_until(lambda: self.all("nav"), "the pages")

    def errors(self) -> list[str]:
        """Give what the console has said since the last call, but for refused pages themselves."""
        found = [one for one in self.driver.get_log("browser") if one["level"] == "SEVERE"]
        return [one["message"] for one in found if " 401 " not in one["message"]]

    def requested_hosts(self) -> set[str]:
        """Give the hosts that were asked for anything since the last call."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                if url.scheme in ("http", "https", "ws", "wss"):
                    found.add(url.netloc)
        return found


@contextlib.contextmanager
def chromium(
    folder: Path, *, resolve: str | None = None, size: str = "1280,900"
) -> Iterator[Browser]:
    """Run a browser, without which there is no test.

    Args:
        folder: For its profile.
        resolve: Host name that means this machine, whose certificate may be its own.
        size: Of its window.
    """
    program = require("chromium", package="chromium")
    driver_program = require("chromedriver", package="chromium-driver")
    if find_spec("selenium") is None:
        leave_out("no selenium: pip install 'ddlplan[dev]'")
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = program
    profile = folder / "profile"
    for argument in (
        *("--headless=new", f"--user-data-dir={profile}", f"--window-size={size}"),
        *("--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update"),
    ):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # it refuses root with one; a container is around it
    if resolve is not None:
        options.add_argument(f"--host-resolver-rules=MAP {resolve} 127.0.0.1")
        options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = Service(driver_program, env={**os.environ, "HOME": str(folder)})
    driver = Chrome(options=options, service=service)
    driver.set_page_load_timeout(120)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)
