"""Terminal: who of its process groups reads from it and has its Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lend_terminal(group: int) -> Iterator[None]:
    """Let another process group have the terminal while the block runs, where this one has it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:  # there is none
        yield
        return
    try:
        own = os.getpgrp()
        if os.tcgetpgrp(terminal) != own:  # this is in the background
            yield
            return
        _give(terminal, group)
        os.killpg(group, signal.SIGCONT)  # it may have read before it had the terminal
        try:
            yield
        finally:
            _give(terminal, own)
    finally:
        os.close(terminal)


def _give(terminal: int, group: int) -> None:
    # In the background tcsetpgrp stops who calls it, unless SIGTTOU is ignored: tcsetpgrp(3).
    usual = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(terminal, group)
    except OSError:  # its last process has ended
        pass
    finally:
        signal.signal(signal.SIGTTOU, usual)
