"""How does the program run and end? Signals, closed streams, errors and the exit status."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import NoReturn

from planner.cli.app import call
from planner.exit_codes import BUG, judge
from planner.output import current_output, start_output, variable_of


class _Terminated(BaseException):
    """A signal asks the program to end in order."""

    def __init__(self, number: int) -> None:
        self.number = number


def run(arguments: list[str]) -> int:
    """Run one command line; give the exit status."""
    start_output(_command_of(arguments), as_json=_wants_json(arguments))
    try:
        status = call(arguments)
        sys.stdout.flush()  # here, where a reader that has left can still be noticed
        if status == 128 + signal.SIGINT:  # what typer makes of Ctrl-C
            return _stop(signal.SIGINT)
    except KeyboardInterrupt:
        return _stop(signal.SIGINT)
    except _Terminated as ended:
        return _stop(ended.number)
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as ended:
        # What typer makes of a broken pipe; it also ends so after completing a word for the shell.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _reader_left()
    except Exception as error:  # noqa: BLE001 - what no one expected is a bug of ours
        return _fail(error)
    return status


def _stop(number: int) -> int:
    """End a command that a signal has ended; what it knew by then may be said already."""
    if not current_output().is_finished:
        current_output().stopped(number)
    return 128 + number


def _reader_left() -> int:
    """End quietly: whoever read our output has enough. Python would complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return 128 + signal.SIGPIPE


def _fail(error: Exception) -> int:
    verdict = judge(error)
    if verdict is None:
        traceback.print_exc()
        verdict = (BUG, "bug")
    out = current_output()
    if tail := getattr(error, "log_tail", None):
        out.note(tail)
    message = str(error) or type(error).__name__
    out.fail(*verdict, message=" ".join(message.split()))
    return verdict[0]


def _wants_json(arguments: list[str]) -> bool:
    """Tell whether JSON is asked for, as long as nothing has read the options."""
    variable = os.environ.get(variable_of("--json"), "").strip().lower()
    return "--json" in arguments or variable in ("1", "true", "t", "yes", "y", "on")


def _command_of(arguments: list[str]) -> str:
    """Name the command, for an error that came before the command was known."""
    words = []
    for argument in arguments[:2]:
        if argument.startswith("-"):
            break
        words.append(argument)
    return " ".join(words[:2] if words[:1] == ["plans"] else words[:1])


def _make_tolerant(name: str) -> None:
    """Let a standard stream take any text, and be there where the caller has closed it."""
    stream = getattr(sys, name)
    if stream is None:
        setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    else:
        stream.reconfigure(errors="backslashreplace")


def main() -> NoReturn:
    """Run the command line of this process."""

    def terminate(number: int, _: object) -> NoReturn:
        raise _Terminated(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # else nohup has said: stay
            signal.signal(number, terminate)
    for name in ("stdout", "stderr"):
        _make_tolerant(name)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
