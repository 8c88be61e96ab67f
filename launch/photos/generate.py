"""How does one come by photos without having any? They are drawn, once, into the cache."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO
from zlib import crc32

from launch.cache import cache_folder, not_writable, only_one
from launch.errors import UseCaseError
from launch.photos.draw import CLASSES
from launch.preparing import PrepareReport

VERSION = 1
"""Goes up with every change to what is drawn, so that an old set is not taken for a new one."""


@dataclass(frozen=True, slots=True)
class GeneratedPhotos:
    """A set of drawn photos: which one, and how many."""

    name: str
    num_photos: int

    @property
    def folder(self) -> Path:
        """Where the set is; it is there as a whole or not at all."""
        return cache_folder() / "photos" / f"{self.name}-v{VERSION}"

    def generate(self, report: PrepareReport, *, cores: int) -> bool:
        """Draw the set, unless it is there.

        While another process draws it, wait for that. What an interrupted run left is removed.

        Returns:
            Whether this call drew it.

        Raises:
            UseCaseError: The cache cannot be written.
        """
        if self.folder.is_dir():
            return False
        part = self.folder.with_name(f"{self.folder.name}.part")
        try:
            with only_one(self.folder, lambda: self._say_that_it_waits(report)) as lock:
                if self.folder.is_dir():
                    return False
                shutil.rmtree(part, ignore_errors=True)
                try:
                    self._draw(part, report, lock, cores)
                    part.rename(self.folder)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise not_writable(self.folder.parent, error) from error
        return True

    def _say_that_it_waits(self, report: PrepareReport) -> None:
        report.progress(0, self.num_photos, f"waiting for who draws photos for {self.name}")

    def _draw(self, part: Path, report: PrepareReport, lock: int, cores: int) -> None:
        for kind in CLASSES:
            (part / kind).mkdir(parents=True)
        artists = [self._start(part, first, cores, lock) for first in range(cores)]
        try:
            for done in _count_lines(artists):
                report.progress(done, self.num_photos, f"drawing photos for {self.name}")
            for artist in artists:
                _check_end(artist, part)
        finally:
            for artist in artists:
                _stop(artist)

    def _start(self, part: Path, first: int, step: int, lock: int) -> Popen[bytes]:
        """Start a program that draws each ``step``-th photo.

        It inherits the lock. So a run that is killed gives it back only when its programs
        are gone too, and the next one finds a folder that nobody writes into.
        """
        numbers = (crc32(self.name.encode()), first, self.num_photos, step)
        # -P: a folder called launch in the current one is not ours. One thread each: the cores
        # are taken by the programs.
        command = [sys.executable, "-P", "-m", "launch.photos.draw", str(part), *map(str, numbers)]
        packages = os.pathsep.join(
            filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
        )
        one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment = {**os.environ, **one_thread, "PYTHONPATH": packages}
        return Popen(command, stdout=PIPE, stderr=PIPE, env=environment, pass_fds=(lock,))


def _count_lines(artists: list[Popen[bytes]]) -> Iterator[int]:
    """Give the number of lines written so far, each time that there are more, until all end."""
    done = 0
    with DefaultSelector() as selector:
        for artist in artists:
            selector.register(_pipe(artist.stdout), EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                if not (lines := os.read(key.fd, 4096)):
                    selector.unregister(key.fileobj)
                done += len(lines)
            yield done


def _check_end(artist: Popen[bytes], part: Path) -> None:
    said = _pipe(artist.stderr).read().decode(errors="replace").strip()
    if artist.wait() != 0:
        last = said.splitlines()[-1] if said else f"exit code {artist.returncode}"
        raise UseCaseError(
            f"photos cannot be drawn into {part.parent}: {last}: make room there, "
            "or set DDLPLAN_CACHE to a folder elsewhere"
        )


def _stop(artist: Popen[bytes]) -> None:
    artist.terminate()
    try:
        artist.wait(timeout=5)
    except TimeoutExpired:
        artist.kill()
        artist.wait()
    for pipe in (artist.stdout, artist.stderr):
        _pipe(pipe).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
