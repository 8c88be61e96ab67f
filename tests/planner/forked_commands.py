"""Commands of ddlplan that are forked from a process which has imported it.

A command as a process of its own takes most of its time to import. Here one process does that,
and each command is a fork of it: with arguments, folder, environment and streams of its own, from
its first line to its exit status. As a program, this file is that process.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NoReturn

import typer

import planner.commands
from planner.cli.app import app, call

_MAX_MESSAGE_BYTES = 1 << 17


def run_forked(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], *, limit_s: float
) -> tuple[int, bytes, bytes]:
    """Run a command to its end; give its exit status as `subprocess` does, stdout and stderr."""
    process = _process()
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    request = {"arguments": list(arguments), "folder": str(folder), "environment": {**environment}}
    try:
        socket.send_fds(process, [json.dumps(request).encode()], [out_end, err_end])
    finally:
        os.close(out_end)
        os.close(err_end)
    with ThreadPoolExecutor(2) as readers:
        streams = [readers.submit(_read, stream) for stream in (out, err)]
        pid = _receive(process, limit_s)
        try:
            code = _receive(process, limit_s)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            _process.cache_clear()  # this one still has an answer to give
            raise
        return code, streams[0].result(limit_s), streams[1].result(limit_s)


def _read(stream: int) -> bytes:
    with os.fdopen(stream, "rb") as file:
        return file.read()


def _receive(process: socket.socket, limit_s: float) -> int:
    process.settimeout(limit_s)
    return int(process.recv(64))


@cache
def _process() -> socket.socket:
    """Start the process when the first command is run; it ends with its owner."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("DDLPLAN_")}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=own | {"OPENBLAS_NUM_THREADS": "1"},  # it forks: it must have no other thread
        )

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


def _serve(connection: socket.socket) -> None:
    """Fork a command for each request, one after the other; return in each of them."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _MAX_MESSAGE_BYTES, 2)
        if not message:
            os._exit(0)  # the owner has ended
        if (pid := os.fork()) == 0:
            connection.close()
            _become(json.loads(message), descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    for standard, descriptor in zip((1, 2), descriptors, strict=True):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    # Python's own were made for what stood behind these numbers then.
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - to the end
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = ["ddlplan", *request["arguments"]]


def _run_command() -> NoReturn:
    """Run the program and end, with all that is done at an end but for unloading every module."""
    status: object = 1
    try:
        runpy.run_module("planner", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code
    except BaseException:  # noqa: BLE001 - what Python does with it
        traceback.print_exc()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    for module in iter_modules(planner.commands.__path__):
        import_module(f"planner.commands.{module.name}")
    for name in typer.main.get_command(app).commands:
        call([name, "--help"])  # which makes the command
    call(["strategies"])  # which loads what each command does
    gc.collect()
    gc.freeze()  # else each command would look through all of it for garbage
    _serve(socket.socket(fileno=int(sys.argv[1])))
    _run_command()
