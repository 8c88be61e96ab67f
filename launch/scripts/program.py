"""Program: a command of the user's own, with placeholders for what is varied."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from itertools import pairwise
from pathlib import Path

from launch.errors import ScriptError
from launch.plan import Setting
from launch.scripts.torchrun_nodes import begins_option, takes_next_word
from launch.system.durable_files import explain_absence

BATCH, WORKERS, THREADS, PROCESSES = "batch", "workers", "threads", "processes"

_MOST_WORKERS = 4
_PIECE = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=")
PYTHON = re.compile(r"python(\d+(\.\d+)*t?)?")
_LETTERS = re.compile(r"-([bBdEhiIOPqsSuvx]*)([cmWX])(.*)", re.DOTALL)
"""Options of Python, up to the one that has a value: behind it, or in the next word."""

_LONG_OPTION = "--check-hash-based-pycs"
"""Of Python, with a value in the next word."""

_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_MODULE, _NO_PYTHON = ("-m", "--module"), "--no-python"
_FILES = (".py", ".pyc", ".pyz", ".zip")
"""Ends of what Python runs as a file: source, the same compiled, and archives."""


class ProgramKind(Enum):
    """How a command starts what trains."""

    PYTHON_FILE = "a Python file"
    PYTHON_MODULE = "a Python module"
    PYTHON_CODE = "Python code"
    TORCHRUN = "torchrun"
    OTHER = "another program"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProgramPlace:
    """Where in the words of a command the program that trains begins."""

    kind: ProgramKind

    begin: int
    """First word that the shim takes over."""

    options: tuple[str, ...] = ()
    """What stays in front of the shim of the words that are replaced."""

    words: tuple[str, ...] = ()
    """What stands there instead, where Python's own words were written together."""

    taken: int = 0
    """Words that ``words`` replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command as the user typed it: a list of arguments, never a line for a shell."""

    arguments: tuple[str, ...]
    """With ``{placeholders}``; ``{{`` and ``}}`` are braces."""

    choices: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """Values by placeholder; the first is the user's own."""

    kind: ProgramKind = ProgramKind.OTHER

    @staticmethod
    def parse(
        arguments: Sequence[str],
        *,
        cores: int,
        choices: Mapping[str, Sequence[Setting]] | None = None,
        is_python: bool = True,
    ) -> Program:
        """Read a command.

        Args:
            arguments: As typed.
            cores: That can be used: they bound the choices that nobody gave.
            choices: Values of placeholders. ``batch``, and every name that is not ``workers``,
                ``threads`` or ``processes``, must be among them.
            is_python: Whether a Python program trains; if not, whole runs are timed.

        Raises:
            ScriptError: A placeholder is unknown or has no effect, or no Python program is found.
        """
        if not arguments:
            raise ScriptError("no command after --: write one, such as -- python train.py")
        _check_words(arguments)
        given = {name: tuple(values) for name, values in (choices or {}).items()}
        defaults = _default_choices(cores)
        used = _placeholders(arguments)
        for name in used:
            if name not in given and name not in defaults:
                raise ScriptError(_name_unknown(name, {BATCH, *given, *defaults} - set(used)))
        for name, values in given.items():
            if name not in used:
                raise ScriptError(
                    f"choices {name}={','.join(map(str, values))} and no {{{name}}} in the "
                    "command: write it where the value belongs"
                )
            if not values or len(set(values)) < len(values):
                raise ScriptError(f"choices {name}={','.join(map(str, values))}: name each once")
        for name in (BATCH, WORKERS, THREADS, PROCESSES):
            least = 0 if name == WORKERS else 1
            wrong = [v for v in given.get(name, ()) if not (type(v) is int and v >= least)]
            if wrong:
                raise ScriptError(f"{name}={wrong[0]}: use a whole number of at least {least}")
        for name in (THREADS, PROCESSES):
            most = max(map(int, given.get(name, (1,))))
            if most > cores:
                raise ScriptError(f"{name}={most} and usable_cores={cores}: use at most {cores}")
        for name, other in ((PROCESSES, THREADS), (THREADS, PROCESSES)):
            most = max(map(int, given.get(name, (1,))))
            least = min(map(int, given.get(other, (1,))))
            if most * least > cores:
                raise ScriptError(
                    f"{name}={most} with {other}={least} and usable_cores={cores}: use at most "
                    f"{cores // least}, or add a smaller number of {other}"
                )
        chosen = {name: given.get(name) or defaults[name] for name in used}
        kind = _find_place(arguments).kind if is_python else ProgramKind.OTHER
        if is_python and kind is ProgramKind.OTHER:
            name = arguments[0]
            if _near_launchers(name) and shutil.which(name) is None:
                raise ScriptError(_explain_missing(name))
            use_case = "" if "." in name and ":" not in name else "; a use case needs --use-case"
            raise ScriptError(
                f"program {name!r}: no Python program found in the command: begin it with "
                f"python or torchrun, or pass --no-python to time whole runs{use_case}"
            )
        return Program(arguments=tuple(arguments), choices=chosen, kind=kind)

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names of the placeholders, in their order."""
        return tuple(_placeholders(self.arguments))

    @property
    def own_values(self) -> dict[str, Setting]:
        """The user's own value of each placeholder."""
        return {name: values[0] for name, values in self.choices.items()}

    @property
    def target(self) -> str:
        """What trains: a file, a module or code; the first word where that is not Python."""
        place = _find_python(self.arguments)
        if place.kind is ProgramKind.OTHER:
            return self.arguments[0]
        return place.words[-1] if place.words else self.arguments[place.begin]

    def __str__(self) -> str:
        return shlex.join(self.arguments)

    def fill(self, values: Mapping[str, Setting]) -> tuple[str, ...]:
        """Give the words of the command with these values.

        Raises:
            ScriptError: A placeholder has no value.
        """

        def put(found: re.Match[str]) -> str:
            if found[0] in ("{{", "}}"):
                return found[0][0]
            if found[1] not in values:
                raise ScriptError(f"placeholder {{{found[1]}}} without a value")
            return str(values[found[1]])

        return tuple(_PIECE.sub(put, word) for word in self.arguments)

    def starting_words(self, words: Sequence[str]) -> tuple[str, ...]:
        """Give the words of a filled command that start the program; none where it is no Python."""
        place = _find_python(words)
        return () if place.kind is ProgramKind.OTHER else tuple(words[: place.begin])

    def with_shim(self, words: Sequence[str], shim: Path) -> tuple[str, ...]:
        """Give a filled command with the shim in front of the program that trains."""
        place = _find_place(words)
        if place.kind is ProgramKind.OTHER:
            return tuple(words)
        rest = words[place.begin + place.taken :]
        return (*words[: place.begin], *place.options, str(shim), *place.words, *rest)

    def check(
        self, words: Sequence[str], folder: Path, path: str | None, *, is_python: bool = True
    ) -> None:
        """Check that what a filled command names is there.

        Args:
            words: The command.
            folder: In which it is started.
            path: Its ``PATH``.
            is_python: Whether a Python program trains; if not, its words are its own.

        Raises:
            ScriptError: The program or its file is missing.
        """
        name = words[0]
        found = (folder / name) if "/" in name else shutil.which(name, path=path)
        if found is None or explain_absence(Path(found)):
            raise ScriptError(_explain_missing(name))
        if not is_python:
            return
        place = _find_place(words)
        _refuse_doubtful(words[: place.begin], folder)
        # A launcher of several hosts may start a file that is elsewhere.
        if place.kind is ProgramKind.PYTHON_FILE:
            file = words[place.begin]
            if explain_absence(folder / file):
                raise ScriptError(f"no file {file!r} in {folder}: {_near_file(folder, file)}")


def _refuse_doubtful(words: Sequence[str], folder: Path) -> None:
    """Refuse a file that stands where accelerate may have the value of an option."""
    first = next((n for n, word in enumerate(words) if Path(word).name == "accelerate"), len(words))
    for option, word in pairwise(words[first + 2 :]):
        may_be_script = option.startswith("-") and "=" not in option and not Path(word).suffix
        if may_be_script and not explain_absence(folder / word) and (folder / word).is_file():
            raise ScriptError(
                f"accelerate launch {option} {word}: whether {word!r} is its value or the script "
                f"is not known: write {option}={word}, or an option with = before the script"
            )


def _check_words(arguments: Sequence[str]) -> None:
    """Refuse what only a shell would take for a command."""
    first = arguments[0]
    if len(arguments) == 1 and len(first.split()) > 1:
        raise ScriptError(
            f"command {first!r} is one word: leave out the quotes around it, no shell reads it"
        )
    if _VARIABLE.match(first):
        command = shlex.join(arguments)
        raise ScriptError(f"{first} in front of a program sets a variable: -- env {command}")


def _explain_missing(name: str) -> str:
    close = _near_launchers(name)
    hint = f"did you mean {close[0]}?" if close else "check its name and PATH"
    if name.isdecimal():
        hint = "a comma, and no space, is between values: --choices batch=32,64"
    return f"program {name!r} not found: {hint}"


def _near_launchers(name: str) -> list[str]:
    others = [known for known in ("python", "python3", "torchrun") if known != name]
    return get_close_matches(name, others, n=1, cutoff=0.75)


def _name_unknown(name: str, others: Collection[str]) -> str:
    close = get_close_matches(name, others, n=1)
    hint = f"did you mean {{{close[0]}}}? Else " if close else ""
    return (
        f"placeholder {{{name}}} without choices: {hint}add --choices {name}=VALUE,VALUE, "
        f"or write {{{{{name}}}}} for the text in braces"
    )


def _near_file(folder: Path, file: str) -> str:
    path = folder / file
    names = [other.name for other in path.parent.glob("*.py")]
    close = get_close_matches(path.name, names, n=1)
    return f"did you mean {Path(file).with_name(close[0])}?" if close else "check the path"


def thread_choices(cores: int) -> tuple[int, ...]:
    """Give numbers of threads: all cores, which is PyTorch's default, and by halving."""
    return tuple(dict.fromkeys((cores, *_powers(cores)[::-1])))


def _default_choices(cores: int) -> dict[str, tuple[Setting, ...]]:
    powers = _powers(cores)
    return {
        WORKERS: (0, *(count for count in powers if count <= _MOST_WORKERS)),
        THREADS: thread_choices(cores),
        PROCESSES: powers,
    }


def _powers(cores: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(cores.bit_length()) if 2**power <= cores)


def _placeholders(arguments: Sequence[str]) -> list[str]:
    names: dict[str, None] = {}
    for word in arguments:
        for found in _PIECE.finditer(word):
            if found[0] in ("{", "}"):
                raise ScriptError(
                    f"argument {word!r} has a brace alone: write {{{{ and }}}} for braces"
                )
            if found[1]:
                names[found[1]] = None
    return list(names)


def _find_place(words: Sequence[str]) -> _ProgramPlace:
    """Find the program that trains, behind whatever starts it, such as numactl or mpirun."""
    for number, word in enumerate(words):
        name = Path(word).name
        if PYTHON.fullmatch(name):
            return _python_place(words, number + 1)
        if name == "torchrun":
            return _torchrun_place(words, number + 1)
        if name == "accelerate" and "launch" in words[number + 1 : number + 2]:
            return _accelerate_place(words, number + 2)
    return _ProgramPlace(kind=ProgramKind.OTHER, begin=len(words))


def _find_python(words: Sequence[str]) -> _ProgramPlace:
    """Find the same where it may not be Python: what would then be an error is another program."""
    try:
        return _find_place(words)
    except ScriptError:
        return _ProgramPlace(kind=ProgramKind.OTHER, begin=len(words))


def _python_place(words: Sequence[str], number: int) -> _ProgramPlace:
    """Find the program behind Python's own options."""
    while number < len(words) and words[number].startswith("-") and words[number] != "-":
        word = words[number]
        found = _LETTERS.fullmatch(word)
        if found is None or found[2] in "WX":
            takes_next = word == _LONG_OPTION if found is None else not found[3]
            number += 2 if takes_next else 1
            continue
        before, letter, glued = found.groups()
        target = [glued] if glued else list(words[number + 1 : number + 2])
        if not target:
            raise ScriptError(f"{word} and nothing behind it: name what it runs")
        if letter == "m" and target[0] in _TORCHRUN_MODULES:
            return _torchrun_place(words, number + (1 if glued else 2))
        return _ProgramPlace(
            kind=ProgramKind.PYTHON_MODULE if letter == "m" else ProgramKind.PYTHON_CODE,
            begin=number,
            options=(f"-{before}",) if before else (),
            words=(f"-{letter}", target[0]),
            taken=1 if glued else 2,
        )
    if number >= len(words) or words[number] == "-":
        raise ScriptError("python without a file: its standard input is empty: name a file")
    return _ProgramPlace(kind=ProgramKind.PYTHON_FILE, begin=number)


def _torchrun_place(words: Sequence[str], number: int) -> _ProgramPlace:
    """Find the script behind torchrun's options."""
    is_module = False
    first = number
    while number < len(words) and words[number].startswith("-"):
        word = words[number]
        if begins_option(word, _NO_PYTHON):
            raise ScriptError(f"torchrun {word}: leave it out, and name the Python file")
        is_module = is_module or begins_option(word, *_MODULE)
        number += 2 if takes_next_word(word) else 1
    if number >= len(words):
        raise ScriptError("torchrun without a script: name a file")
    if not is_module:
        return _ProgramPlace(kind=ProgramKind.TORCHRUN, begin=number)
    kept = [word for word in words[first:number] if not begins_option(word, *_MODULE)]
    # The shim is a file, so torchrun must not take it for a module; it runs the module itself.
    return _ProgramPlace(
        kind=ProgramKind.TORCHRUN,
        begin=first,
        options=tuple(kept),
        words=("-m", words[number]),
        taken=number + 1 - first,
    )


def _accelerate_place(words: Sequence[str], number: int) -> _ProgramPlace:
    """Find the script: a file of Python, ``-m`` and a module, or a word behind no option.

    Only accelerate knows which of its options have their value in the next word; no more than one.
    """
    for at in range(number, len(words)):
        word, *behind = words[at : at + 2]
        if word.replace("_", "-") == _NO_PYTHON:
            raise ScriptError(f"accelerate launch {word}: leave it out, and name the Python file")
        if word in _MODULE:
            if not behind or behind[0].startswith("-"):
                raise ScriptError(f"accelerate launch {word}: name the module right behind it")
            module = ("-m", behind[0])
            return _ProgramPlace(kind=ProgramKind.TORCHRUN, begin=at, words=module, taken=2)
        before = words[at - 1]  # of the first, the word launch
        may_be_value = before.startswith("-") and "=" not in before
        if word.endswith(_FILES) or not (word.startswith("-") or may_be_value):
            return _ProgramPlace(kind=ProgramKind.TORCHRUN, begin=at)
    raise ScriptError("accelerate launch without a file that ends in .py, and without -m: name one")
