"""Run many command lines in one process, and list what Python started or opened in each.

Reads a JSON list of argument lists, writes a JSON list of their ends. Starting one process for
each of 200 would take minutes.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from planner.__main__ import run

WATCHED = ("subprocess.", "os.system", "os.exec", "os.spawn", "os.posix_spawn", "os.fork")
WATCHED += ("pty.", "socket.getaddrinfo", "socket.gethostby", "socket.connect", "socket.send")


def main() -> None:
    happened: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith(WATCHED):
            happened.append(f"{event}{arguments!r}")

    sys.addaudithook(hook)
    ends = []
    for arguments in json.load(sys.stdin):
        happened.clear()
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(arguments)
        ends.append([code, out.getvalue(), err.getvalue(), list(happened)])
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    main()
