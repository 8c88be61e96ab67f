from probes.cgroups import find_cgroups

V2 = "35 24 0:30 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"


def paths(root, controller="cpu"):
    return [str(group) for group in find_cgroups(controller, root)]


def test_own_group_comes_first_and_the_top_last(tree):
    root = tree(
        {
            "proc/self/cgroup": "0::/user.slice/session.scope\n",
            "proc/self/mountinfo": V2,
            "sys/fs/cgroup/user.slice/session.scope/cpu.max": "max 100000",
        }
    )
    assert paths(root) == [
        "cgroup v2 /user.slice/session.scope",
        "cgroup v2 /user.slice",
        "cgroup v2 /",
    ]


def test_hybrid_machine_has_both_hierarchies(tree):
    root = tree(
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/job\n1:name=systemd:/unit\n0::/unit\n",
            "proc/self/mountinfo": (
                "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                "37 31 0:34 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
                "41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
            ),
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.shares": "1024",
            "sys/fs/cgroup/unified/unit/cgroup.procs": "",
        }
    )
    assert paths(root) == ["cgroup v1 /job", "cgroup v1 /", "cgroup v2 /unit", "cgroup v2 /"]


def test_container_without_a_namespace_finds_its_group_at_the_mount_point(tree):
    # /proc/self/cgroup shows the path on the host, the mount shows that group only
    root = tree(
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/docker/4f1e\n",
            "proc/self/mountinfo": (
                "730 720 0:29 /docker/4f1e /sys/fs/cgroup/cpu,cpuacct ro "
                "master:12 - cgroup cgroup rw,cpu,cpuacct\n"
            ),
            "sys/fs/cgroup/cpu,cpuacct/cpu.shares": "1024",
        }
    )
    (group,) = find_cgroups("cpu", root)
    assert group.directory == root / "sys/fs/cgroup/cpu,cpuacct"


def test_group_below_the_mounted_part_is_found(tree):
    root = tree(
        {
            "proc/self/cgroup": "3:cpu:/docker/4f1e/job\n",
            "proc/self/mountinfo": "7 2 0:29 /docker/4f1e /cg/cpu ro - cgroup cgroup rw,cpu\n",
            "cg/cpu/job/cpu.shares": "1024",
        }
    )
    assert paths(root) == ["cgroup v1 /job", "cgroup v1 /"]


def test_path_out_of_the_namespace_leaves_the_mount_point(tree):
    root = tree(
        {
            "proc/self/cgroup": "0::/../other\n",
            "proc/self/mountinfo": V2,
            "sys/fs/cgroup/cgroup.procs": "",
            "sys/fs/other/cgroup.procs": "",
        }
    )
    assert paths(root) == ["cgroup v2 /"]


def test_ancestors_count_even_where_the_own_group_is_not_visible(tree):
    root = tree(
        {
            "proc/self/cgroup": "0::/slice/gone\n",
            "proc/self/mountinfo": V2,
            "sys/fs/cgroup/slice/cgroup.procs": "",
        }
    )
    assert paths(root) == ["cgroup v2 /slice", "cgroup v2 /"]


def test_second_mount_of_a_part_does_not_hide_the_ancestors(tree):
    root = tree(
        {
            "proc/self/cgroup": "0::/slice/job\n",
            "proc/self/mountinfo": "36 24 0:30 /slice/job /mnt/job rw - cgroup2 c rw\n" + V2,
            "mnt/job/cgroup.procs": "",
            "sys/fs/cgroup/slice/job/cgroup.procs": "",
        }
    )
    assert len(paths(root)) == 3


def test_mount_point_with_a_space_is_read(tree):
    root = tree(
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": "35 24 0:30 / /my\\040cg rw - cgroup2 cgroup2 rw\n",
            "my cg/cgroup.procs": "",
        }
    )
    assert paths(root) == ["cgroup v2 /"]


def test_machine_without_control_groups_has_none(tree):
    assert find_cgroups("cpu", tree({})) == ()
