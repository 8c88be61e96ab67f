"""Chromium for tests: Debian's, headless, driven by its own protocol through a pair of pipes.

Pages are looked at as a person would, at the width of a phone too, in light and in dark. Source:
https://chromedevtools.github.io/devtools-protocol/, with ``--remote-debugging-pipe``.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--no-proxy-server", "--hide-scrollbars", "--mute-audio"),
)
_WAIT_S = 60.0


class Browser:
    """One page of a browser."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol for this page."""
        return self._call(method, parameters, self._session)

    def resize(self, width: int, height: int = 900, *, is_dark: bool = False) -> None:
        """Take the width of a screen and a colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        """Go to an address and wait until it is shown."""
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Give the value of an expression."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until an expression is true."""
        self.wait_until(lambda: self.run(script), script)

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + _WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            time.sleep(0.05)

    def screenshot(self, file: Path, *, is_whole: bool = True) -> None:
        """Write a picture of the page."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=is_whole)
        file.write_bytes(base64.b64decode(picture["data"]))

    def complaints(self) -> list[str]:
        """Give what the browser had to say of the page: errors, refused styles, exceptions."""
        return [
            json.dumps(event["params"])
            for event in self.events
            if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def requests(self) -> list[str]:
        """Give the addresses that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _call(
        self, method: str, parameters: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], _WAIT_S)
            assert ready, "the browser does not answer"
            part = os.read(self._read, 2**16)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it with all of its processes."""
    assert PROGRAM is not None, "tests that need it are skipped without it"
    to_read, to_write = os.pipe(), os.pipe()

    def use_pipes() -> None:
        os.dup2(os.dup(to_write[0]), 3)
        os.dup2(os.dup(to_read[1]), 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"],
            preexec_fn=use_pipes,  # the protocol's numbers
            close_fds=False,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Browser(to_read[0], to_write[1])
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for descriptor in (*to_read, *to_write):
                os.close(descriptor)
