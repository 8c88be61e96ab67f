"""Options of torchrun: where their values are, and those that tell it of the other hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.errors import ScriptError

_MODULE = ("-m", "torch.distributed.run")
_OWN_NODES = ("--standalone", "--nnodes", "--node-rank", "--master-addr", "--master-port")
_RENDEZVOUS = "--rdzv"
_FLAGS = (
    *("--", "-m", "--module", "--no-python"),
    *("--standalone", "--run-path", "--use-env", "--virtual-local-rank"),
)
"""Options that take no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchrunNodes:
    """What the torchrun of one host has to know of all of them."""

    count: int
    rank: int
    master_address: str
    """Of the first host."""

    def add_to(self, words: Sequence[str], port: object) -> tuple[str, ...]:
        """Give a command with these options, in front of torchrun's others."""
        address = self.master_address
        address = f"[{address}]" if ":" in address else address
        at = _options_begin(words)
        options = (
            *("--nnodes", str(self.count), "--node-rank", str(self.rank)),
            *("--master-addr", address, "--master-port", str(port)),
        )
        return (*words[:at], *options, *words[at:])


def check_torchrun(words: Sequence[str]) -> None:
    """Check that a command begins with a torchrun that can be told of other hosts.

    Raises:
        ScriptError: It does not, or names hosts by itself.
    """
    at = _options_begin(words)
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if begins_option(word, *_OWN_NODES) or word.startswith(_RENDEZVOUS):
            raise ScriptError(
                f"{word} and --hosts: ddlplan tells each torchrun where the others are: "
                "leave it out, in tune too"
            )
        at += 2 if takes_next_word(word) else 1


def takes_next_word(option: str) -> bool:
    """Tell whether an option of torchrun has its value in the next word: ``-r 3``, not ``-r3``."""
    is_glued = not option.startswith("--") and len(option) > 2
    return not (is_glued or "=" in option or begins_option(option, *_FLAGS))


def begins_option(word: str, *options: str) -> bool:
    """Tell whether a word is one of these options of torchrun, or how one begins: ``--nnode``."""
    name = word.partition("=")[0].replace("_", "-")
    return name in options or (len(name) > 2 and any(one.startswith(name) for one in options))


def _options_begin(words: Sequence[str]) -> int:
    """Find where torchrun's options begin."""
    if Path(words[0]).name == "torchrun":
        return 1
    if Path(words[0]).name.startswith("python") and tuple(words[1:3]) == _MODULE:
        return 3
    raise ScriptError(
        f"program {words[0]!r} and --hosts: only torchrun can be told of processes on other "
        "hosts: begin the command with torchrun"
    )
