"""Main program: signals, closed streams, errors and the exit status."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from launch.system.durable_files import explain_os_error
from planner.cli.app import app, call
from planner.errors import CancelledError, OutputError, UsageError
from planner.exit_codes import BUG, classify_error
from planner.report.output import current_output, environment_variable, start_output

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_COLLECT_AFTER = 50_000
"""New objects after which Python looks for garbage. By default (700) it does so hundreds of times
while a command is imported, finds none, and takes a sixth of the time."""

_AGAIN_S = 0.5
"""After which a signal that has ended nothing is raised again."""


class _StandardOutput(io.TextIOWrapper):
    """Standard output, whose errors are its own: the kernel does not say which file it was.

    Args:
        stream: As Python has opened it.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(
            stream.buffer, stream.encoding, stream.errors, line_buffering=stream.isatty()
        )
        self._stream = stream  # without users it would close the buffer

    def write(self, text: str, /) -> int:
        with _explained():
            return super().write(text)

    def flush(self) -> None:
        with _explained():
            super().flush()


@contextmanager
def _explained() -> Iterator[None]:
    """Turn errors of writing to standard output into one that says what they are of."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"standard output: {explain_os_error(error)}: make room there, or write elsewhere"
        ) from error


class _Terminated(BaseException):
    """Raised by a signal that ends the program."""

    def __init__(self, number: int) -> None:
        self.number = number


def run(arguments: list[str]) -> int:
    """Run one command line and return the exit status."""
    start_output(_command_of(arguments), as_json=_wants_json(arguments))
    status = 0
    try:
        status = _run_to_end(arguments)
        sys.stdout.flush()  # of an error as JSON: a stream that takes no more is still handled here
    except BrokenPipeError:
        return _exit_on_broken_pipe()
    except SystemExit as ended:
        # What typer makes of a broken pipe; it also ends so after completing a word for the shell.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _exit_on_broken_pipe()
    except OutputError as error:
        _discard(sys.stdout)
        # An error or a signal whose document this was has its line on stderr already.
        return status or _report_error(error)
    return status


def _run_to_end(arguments: list[str]) -> int:
    """Run one command line, and report an error or a signal that has ended it."""
    try:
        status = call(arguments)
        sys.stdout.flush()
        if status == 128 + signal.SIGINT:  # what typer makes of Ctrl-C
            return _report_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return _report_signal(signal.SIGINT)
    except _Terminated as ended:
        return _report_signal(ended.number)
    except CancelledError as ended:
        return _report_signal(ended.signal)
    except (BrokenPipeError, OutputError):
        raise
    except Exception as error:  # noqa: BLE001 - what no one expected is a bug of ours
        return _report_error(_find_lost_folder(error) or error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # nothing is to be raised again: this is the end
    return status


def _report_signal(number: int) -> int:
    """Report the signal that ended the command, unless its result is already written."""
    if current_output().is_finished:
        sys.stdout.flush()  # where that fails, it is what has to be said
    else:
        current_output().report_signal(number)
    return 128 + number


def _exit_on_broken_pipe() -> int:
    """End without a message: the reader closed the pipe."""
    _discard(sys.stdout, sys.stderr)
    return 128 + signal.SIGPIPE


def _discard(*streams: TextIO) -> None:
    """Drop what streams could not write: Python would try it again at exit, and print an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


def _find_lost_folder(error: Exception) -> UsageError | None:
    """Find out whether a file is missing because the current folder is: the error does not say."""
    if isinstance(error, FileNotFoundError):
        try:
            Path.cwd()
        except FileNotFoundError:
            return UsageError("the current folder was removed: change to another one")
    return None


def _report_error(error: Exception) -> int:
    known = classify_error(error)
    if known is None:
        traceback.print_exc()
    code, kind = known or (BUG, "bug")
    out = current_output()
    if tail := getattr(error, "log_tail", None):
        out.note(tail)
    message = str(error) or type(error).__name__
    out.fail(code, kind, " ".join(message.split()))
    return code


def _wants_json(arguments: list[str]) -> bool:
    """Return whether JSON is wanted, before the options are parsed."""
    variable = os.environ.get(environment_variable("--json"), "").strip().lower()
    ours = takewhile(lambda argument: argument != "--", arguments)
    return "--json" in ours or variable in ("1", "true", "t", "yes", "y", "on")


def _command_of(arguments: list[str]) -> str:
    """Give the name of the command, for an error before the options are parsed."""
    words = list(takewhile(lambda argument: not argument.startswith("-"), arguments[:2]))
    groups = {group.name for group in app.registered_groups}
    return " ".join(words if groups.intersection(words[:1]) else words[:1])


def _accept_any_text(name: str) -> None:
    """Make a standard stream accept any text; open the null device where it is closed."""
    stream = getattr(sys, name)
    if stream is None:
        setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    else:
        stream.reconfigure(errors="backslashreplace")


def _terminate(number: int, _: object) -> NoReturn:
    """Raise what ends the program, and look again and again whether it has been lost."""
    signal.signal(signal.SIGALRM, partial(_raise_again, _Terminated(number)))
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
    raise _Terminated(number)


def _raise_again(ended: _Terminated, _number: int, _frame: object) -> None:
    """Raise it again where nothing is being ended because of it.

    Python drops exceptions in callbacks of weak references, of which every import makes some, and
    in ``__del__``; libraries in C do where they ask for an attribute. A signal is sent once.
    """
    raised = sys.exception()
    while raised is not None and not isinstance(raised, _Terminated):
        raised = raised.__context__
    if raised is None:
        raise ended


def _show_dropped(dropped: UnraisableHookArgs) -> None:
    """Show an exception that Python drops, unless it will be raised again."""
    if not isinstance(dropped.exc_value, _Terminated):
        sys.__unraisablehook__(dropped)


def main() -> NoReturn:
    """Run the command line of this process."""
    gc.set_threshold(_COLLECT_AFTER)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # else nohup has said: stay
            signal.signal(number, _terminate)
    sys.unraisablehook = _show_dropped
    for name in ("stdout", "stderr"):
        _accept_any_text(name)
    sys.stdout = _StandardOutput(sys.stdout)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
