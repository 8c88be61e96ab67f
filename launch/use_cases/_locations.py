"""Locations of use cases: a built-in name, an object in a module or a file, or an adapter's."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from launch.errors import UseCaseError
from launch.packages.install_command import install_command
from launch.packages.malicious_releases import find_malicious_release
from launch.system.durable_files import explain_absence
from launch.system.found_by_file import list_names, load_only_class, read_constants
from launch.system.name_suggestion import suggest
from launch.use_cases import _imports
from launch.use_cases._settings import Settings, parse_settings, spell_name, split_name
from launch.use_cases._source_file import SourceFile
from launch.workload import Workload

if TYPE_CHECKING:
    from launch.use_cases._base import UseCase

_ADAPTERS = Path(__file__).parents[1] / "adapters"


def use_case_names() -> list[str]:
    """Return the name of every built-in use case, sorted, without importing any."""
    return list_names(Path(__file__).parent)


def resolve(name: str, more_settings: Iterable[str] = ()) -> UseCaseLocation:
    """Find a use case by its name, without importing it.

    Args:
        name: A built-in name, ``package.module:object`` or ``path/to/file.py:object``, where the
            object is a class or an instance; a class may have settings for its constructor
            behind it, ``NAME,key=value,key=value``. With the name of an adapter before it,
            ``lightning:path/to/file.py:Module:DataModule`` or ``hf:path/to/file.py:make``.
        more_settings: For its constructor, ``key=value`` each, beside those of the name.

    Raises:
        UseCaseError: The text names neither a built-in use case nor an object somewhere.
    """
    name, settings = split_name(name)
    settings = parse_settings([*(f"{key}={value}" for key, value in settings), *more_settings])
    prefix, _, adapted = name.partition(":")
    adapters = list_names(_ADAPTERS)
    if prefix in adapters:
        return _find_adapted(_Adapter.read(prefix), adapted, settings)
    place = adapted.rpartition(":")[0]
    if prefix.isidentifier() and place and explain_absence(Path(f"{prefix}:{place}")):
        raise _make_prefix_error(prefix, adapted, adapters)
    return _find_object(name, settings)


def _find_object(name: str, settings: Settings) -> UseCaseLocation:
    built_in = use_case_names()
    place, colon, attribute = name.rpartition(":")
    if not colon:
        if name in built_in:
            return BuiltInLocation(name, settings=settings)
        raise _make_unknown_error(name, built_in)
    if not place or not all(part.isidentifier() for part in attribute.split(".")):
        raise UseCaseError(
            f"use case {name!r}: write package.module:object or path/to/file.py:object"
        )
    if _looks_like_file(place):
        try:
            file = Path(place).expanduser().resolve()
        except RuntimeError as error:  # of an unknown user, or of a circle of links
            reason = str(error).rstrip(".")
            raise UseCaseError(f"use case {name!r}: {reason}: name a Python file") from error
        return FileLocation(file, attribute, settings=settings)
    if not all(part.isidentifier() for part in place.split(".")):
        raise UseCaseError(f"use case {name!r}: {place!r} is no module name and no .py file")
    return ModuleLocation(place, attribute, settings=settings)


def make_workload(
    use_case: str,
    *,
    settings: Iterable[str] = (),
    data: str | Path | None = None,
    seed: int = 0,
    data_is_here: bool = True,
) -> Workload:
    """Make the value that says what is to be trained, once it is checked.

    Example:
        >>> make_workload("simplebig", seed=3).use_case
        'simplebig'
        >>> make_workload("mnist_cnn", settings=["lr=0.1"]).use_case
        'mnist_cnn,lr=0.1'

    Args:
        use_case: As for `resolve`.
        settings: More settings for its constructor, ``key=value`` each.
        data: Folder or file of its data; ``None`` where the use case finds them by itself.
        seed: Of the weights, the order of the samples, and the search.
        data_is_here: Whether this machine must have the data, because it trains.

    Raises:
        UseCaseError: There is no such use case, or no such data.
    """
    location = resolve(use_case, settings)
    location.check()
    if data is not None and data_is_here and (why := explain_absence(Path(data))) is not None:
        raise UseCaseError(f"data={data}: {why}: name the folder of the data")
    path = None if data is None else str(Path(data).absolute())
    return Workload(use_case=str(location), data=path, seed=seed)


@dataclass(frozen=True, slots=True)
class UseCaseLocation(ABC):
    """Location of a use case. ``str()`` gives the one spelling under which it is stored."""

    settings: Settings = field(default=(), kw_only=True)
    """For its constructor."""

    def __str__(self) -> str:
        return spell_name(self._place, self.settings)

    @property
    @abstractmethod
    def _place(self) -> str:
        """Where it is, without its settings."""

    @abstractmethod
    def check(self) -> None:
        """Check what can be checked without an import.

        Raises:
            UseCaseError: No such module or file, or no such object in the file.
        """

    @abstractmethod
    def _import(self) -> object:
        """Import the object, or raise `UseCaseError`."""

    def load(self, data: Path | None = None) -> UseCase:
        """Import the use case and check that it meets the contract. Runs the user's code.

        Args:
            data: What the user named with ``--data``, for a constructor that takes it.

        Raises:
            UseCaseError: There is no such use case, its import fails, or it has another shape.
        """
        from launch.use_cases._adapter import adapt_use_case

        return adapt_use_case(self._import(), self._place, self.settings, data)

    @property
    def source_file(self) -> Path | None:
        """The use case's own file; ``None`` where it was not named by a file."""
        return None

    def digest(self) -> str | None:
        """Hash that file."""
        if self.source_file is None:
            return None
        with self.source_file.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


@dataclass(frozen=True, slots=True)
class BuiltInLocation(UseCaseLocation):
    """One of the files in this folder."""

    name: str

    @property
    def _place(self) -> str:
        return self.name

    def check(self) -> None:
        return  # its name is known

    def _import(self) -> object:
        """Import the file and return the one use case that it defines."""
        from launch.use_cases._base import UseCase

        name = f"{__package__}.{self.name}"
        return _imports.run_user_code(name, lambda: load_only_class(name, UseCase))


@dataclass(frozen=True, slots=True)
class ModuleLocation(UseCaseLocation):
    """An object in a module that can be imported from here."""

    module: str
    attribute: str

    @property
    def _place(self) -> str:
        return f"{self.module}:{self.attribute}"

    def check(self) -> None:
        """Check that its outermost package exists; more would import it."""
        package = self.module.partition(".")[0]
        _imports.prepend_to_path(Path.cwd())
        try:
            found = package in sys.modules or find_spec(package) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            raise UseCaseError(
                f"use case {self._place}: no module {package!r} is installed or in {Path.cwd()}: "
                "install it, change the folder, or write path/to/file.py:object"
            )

    def _import(self) -> object:
        """Import the module as ``python -m`` would, the current folder first."""
        self.check()
        return _get(_imports.import_by_name(self.module), self.attribute, self._place)


@dataclass(frozen=True, slots=True)
class FileLocation(UseCaseLocation):
    """An object in a Python file, which is imported as if its folder were the current one."""

    file: Path
    attribute: str

    @property
    def _place(self) -> str:
        return f"{self.file}:{self.attribute}"

    def check(self) -> None:
        """Check that the file can be parsed and mentions the object."""
        source = SourceFile.read(self.file)
        names = source.possible_names()
        first = self.attribute.partition(".")[0]
        if "*" not in names and first not in names:
            shown = source.definitions() or sorted(names)
            raise _make_missing_error(
                self._place, first, [name for name in shown if not name.startswith("_")]
            )

    def _import(self) -> object:
        """Import the file; it may import others of its folder."""
        self.check()
        return _get(_imports.import_file(self.file), self.attribute, self._place)

    @property
    def source_file(self) -> Path:
        return self.file


@dataclass(frozen=True, slots=True)
class _Adapter:
    """One of the files of launch/adapters, by the constants at its top."""

    name: str

    form: str
    """How its names are written."""

    most_objects: int

    packages: tuple[str, ...]
    """One of which must be installed; where none is, the first is named."""

    @classmethod
    def read(cls, name: str) -> Self:
        """Read what a file says, which is not imported: it imports torch."""
        said = read_constants(_ADAPTERS / f"{name}.py")
        return cls(name, said["FORM"], said["MOST_OBJECTS"], said["PACKAGES"])


@dataclass(frozen=True, slots=True)
class AdaptedLocation(UseCaseLocation):
    """Objects of one file or module, of which an adapter makes a use case."""

    adapter: _Adapter
    objects: tuple[UseCaseLocation, ...]
    """The first one is trained."""

    @property
    def _place(self) -> str:
        attributes = (str(found).rpartition(":")[2] for found in self.objects[1:])
        return ":".join((self.adapter.name, str(self.objects[0]), *attributes))

    def check(self) -> None:
        """Check what can be checked without an import, and that the library may be imported."""
        for found in self.objects:
            found.check()
        for package in self.adapter.packages:
            if (why := find_malicious_release(package)) is not None:
                raise UseCaseError(f"use case {self._place}: {why}")
        name = self.adapter.packages[0]
        if all(find_spec(package) is None for package in self.adapter.packages):
            raise UseCaseError(
                f"use case {self._place}: {name} is not installed: {install_command(name)}"
            )

    def _import(self) -> object:
        return [found._import() for found in self.objects]

    def load(self, data: Path | None = None) -> UseCase:
        from launch.use_cases._base import UseCase

        self.check()
        make: Any = load_only_class(f"launch.adapters.{self.adapter.name}", UseCase)
        case: UseCase = make(self._import(), self.settings, self._place, data)
        return case

    @property
    def source_file(self) -> Path | None:
        return self.objects[0].source_file


def _find_adapted(adapter: _Adapter, text: str, settings: Settings) -> AdaptedLocation:
    """Find the objects that are named behind an adapter.

    Raises:
        UseCaseError: The text names none, or too many.
    """
    place, attributes = text, list[str]()
    while len(attributes) < adapter.most_objects and ":" in place:
        head, _, last = place.rpartition(":")
        if not all(part.isidentifier() for part in last.split(".")):
            break
        place, attributes = head, [last, *attributes]
    if not attributes or not place:
        raise UseCaseError(f"use case {adapter.name}:{text}: write {adapter.form}")
    objects = (_find_object(f"{place}:{attribute}", ()) for attribute in attributes)
    return AdaptedLocation(adapter, tuple(objects), settings=settings)


def _make_unknown_error(spec: str, built_in: Sequence[str]) -> UseCaseError:
    if _looks_like_file(spec) or "." in spec:
        named = ["MyCase"]
        with contextlib.suppress(UseCaseError, RuntimeError):  # no such file, or one with an error
            named = SourceFile.read(Path(spec).expanduser()).find_use_cases()
        if not named:
            path = shlex.quote(spec)
            return UseCaseError(
                f"use case {spec!r} names no object, and the file has no class with model() and "
                f"dataset(): ddlplan init {path} drafts one, and ddlplan tune -- python {path} "
                "needs none"
            )
        written = " or ".join(f"{spec}:{name}" for name in named)
        return UseCaseError(f"use case {spec!r} names no object: write {written}")
    return UseCaseError(
        f"unknown use case {spec!r}: {suggest(spec.lower(), built_in)}, "
        "or write package.module:object or path/to/file.py:object"
    )


def _make_prefix_error(prefix: str, rest: str, adapters: Sequence[str]) -> UseCaseError:
    close = get_close_matches(prefix, adapters, n=1)
    hint = f"did you mean {close[0]}:{rest}? " if close else ""
    return UseCaseError(
        f"use case {prefix}:{rest}: there is no adapter {prefix!r}: {hint}choose one of "
        f"{', '.join(adapters)}, or write path/to/file.py:object"
    )


def _looks_like_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _get(module: ModuleType, attribute: str, spec: str) -> object:
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _make_missing_error(spec, part, [n for n in dir(found) if not n.startswith("_")])
        found = getattr(found, part)
    return found


def _make_missing_error(spec: str, name: str, names: Sequence[str]) -> UseCaseError:
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "name a class or an instance that it defines"
    return UseCaseError(f"use case {spec}: there is no {name!r}: {hint}")
