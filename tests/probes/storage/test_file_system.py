"""The file system of a path is that of the innermost mount point above it."""

from __future__ import annotations

import pytest

from probes.storage.file_system import find_file_system

MOUNTS = r"""
25 1 254:0 / / rw,relatime - ext4 /dev/vda rw
26 25 0:22 / /dev/shm rw - tmpfs tmpfs rw
40 25 0:40 / /mnt rw - nfs4 server:/export rw
41 40 0:41 / /mnt/with\040space rw - fuse.sshfs node1:/data rw
42 25 0:42 / /mnt/with\040space rw - xfs /dev/vdb rw
43 25 0:43 / /srv/写真{} rw - nfs server:/photos rw
""".format("\u3000\r\x85")  # only \040, \011 and \012 stand for others


@pytest.mark.parametrize(
    ("path", "kind", "is_network", "is_in_memory"),
    [
        ("/srv/photos", "ext4", False, False),
        ("/mnt/photos", "nfs4", True, False),
        ("/mnt", "nfs4", True, False),
        ("/mntless", "ext4", False, False),
        ("/dev/shm/photos", "tmpfs", False, True),
        ("/mnt/with space/x", "xfs", False, False),  # the last one there is seen
        ("/srv/写真\u3000\r\x85/x", "nfs", True, False),
    ],
)
def test_innermost_mount_point_counts(tmp_path, path, kind, is_network, is_in_memory):
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(MOUNTS.lstrip().encode())
    # Of this machine nothing is at these paths but links: they are taken as they are.
    found = find_file_system(type(tmp_path)(path), mounts)
    assert (found.kind, found.is_network, found.is_in_memory) == (kind, is_network, is_in_memory)


def test_kernel_without_a_list_makes_it_unknown(tmp_path):
    found = find_file_system(tmp_path, tmp_path / "missing")
    assert (found.kind, found.is_network) == ("", False)
