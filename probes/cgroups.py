"""Control groups of this process: their directories, with every visible ancestor.

A limit holds for a group and everything below it, so a process is bound by its own group and by
each ancestor's. Version 1 has a hierarchy per controller, version 2 a single one, and both can be
mounted side by side. Reading only ``/sys/fs/cgroup`` goes wrong in three ways:

* the process is in a group below the mount point (any systemd service, any Slurm job);
* the mount shows only a part of the hierarchy (a container without a cgroup namespace: the path
  in ``/proc/self/cgroup`` begins with the root of the mount in ``mountinfo``);
* the path leads out of the cgroup namespace (``/../other``): only the mount point is visible.

Source: cgroups(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from probes.kernel_files import ROOT, read_text, unescape


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """One group that this process belongs to, or an ancestor of one."""

    version: int

    path: str
    """Path below the mount point, ``/`` for the mount point itself."""

    directory: Path
    """Folder of its files."""

    def __str__(self) -> str:
        return f"cgroup v{self.version} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    version: int
    controllers: frozenset[str]
    shown: str
    point: str


def find_cgroups(controller: str, root: Path = ROOT) -> tuple[Cgroup, ...]:
    """Find the groups that may limit ``controller``, each hierarchy from own group to the top.

    The own group of each hierarchy comes first. A hierarchy that is not mounted gives nothing.
    """
    groups: list[Cgroup] = []
    for version in (1, 2):
        own_path = _find_own_path(controller, version, root)
        if own_path is None:
            continue
        chains = [
            _chain(mount, own_path, root)
            for mount in _mounts(root)
            if mount.version == version and (version == 2 or controller in mount.controllers)
        ]
        # the same hierarchy may be mounted twice: the longest chain shows most ancestors
        groups += sorted(chains, key=len)[-1] if chains else ()
    return tuple(groups)


def _find_own_path(controller: str, version: int, root: Path) -> str | None:
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        is_unified = number == "0" and not controllers
        if is_unified if version == 2 else controller in controllers.split(","):
            return path
    return None


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) >= 5 and len(right) >= 3 and right[0] in ("cgroup", "cgroup2"):
            yield _Mount(
                version=2 if right[0] == "cgroup2" else 1,
                controllers=frozenset(right[2].split(",")),
                shown=unescape(left[3]),
                point=unescape(left[4]),
            )


def _chain(mount: _Mount, own_path: str, root: Path) -> tuple[Cgroup, ...]:
    top, own = root / mount.point.lstrip("/"), PurePosixPath(own_path)
    is_shown = ".." not in own.parts and own.is_relative_to(mount.shown)
    below = own.relative_to(mount.shown) if is_shown else PurePosixPath()
    paths = [below, *below.parents] if below.parts else [below]
    groups = (
        Cgroup(version=mount.version, path="/" + "/".join(path.parts), directory=top / path)
        for path in paths
    )
    return tuple(group for group in groups if group.directory.is_dir())
