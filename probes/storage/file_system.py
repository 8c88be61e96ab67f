"""File system of a path: its type, and whether it is on another machine or in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probes.kernel_files import unescape

MOUNTS = Path("/proc/self/mountinfo")

_NETWORK = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "pvfs2"),
    *("panfs", "glusterfs", "gfs2", "ocfs2", "9p", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph"),
    *("fuse.ceph-fuse", "fuse.juicefs", "fuse.s3fs", "fuse.rclone", "fuse.fuse-nfs"),
)
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """A mounted file system."""

    kind: str
    """As the kernel calls it: ``ext4``, ``nfs4``, ``fuse.sshfs``; empty where it is not known."""

    @property
    def is_network(self) -> bool:
        """Whether other machines may write to it too."""
        return self.kind in _NETWORK

    @property
    def is_in_memory(self) -> bool:
        """Whether its files are in memory alone."""
        return self.kind in _IN_MEMORY


def find_file_system(path: Path, mounts: Path = MOUNTS) -> FileSystem:
    """Give the file system of a folder or file that is there, links followed.

    Source: proc_pid_mountinfo(5): the fifth field is the mount point, with octal escapes, and the
    first after a lone hyphen the type.
    """
    try:
        lines = mounts.read_bytes().decode(errors="surrogateescape").split("\n")
    except OSError:
        return FileSystem(kind="")
    place, found = path.absolute().resolve(), (Path("/"), "")
    for line in filter(None, lines):
        mounted, _, described = line.partition(" - ")
        point = Path(unescape(mounted.split(" ")[4]))
        # Of several on one point the last one is seen.
        if place.is_relative_to(point) and len(point.parts) >= len(found[0].parts):
            found = point, described.split(" ")[0]
    return FileSystem(kind=found[1])
