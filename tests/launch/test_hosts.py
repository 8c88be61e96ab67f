"""The host file: every dialect is read, everything else is refused with file, line and token."""

from __future__ import annotations

import os
import socket
import time
import tracemalloc

import pytest

from launch.errors import HostFileError, UnsafeHostError
from launch.hosts.file import expand_hosts, is_this_machine, read_host_file
from launch.hosts.line import Host
from launch.hosts.this_machine import resolve


@pytest.fixture
def read(tmp_path):
    def read(content):
        path = tmp_path / "hosts.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_host_file(path)

    return read


def names(host_list):
    return [host.name for host in host_list.hosts]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("node1", {"name": "node1"}),
        ("node1\n", {"name": "node1"}),
        ("  \t node1 \t ", {"name": "node1"}),
        ("Node1.Example.ORG", {"name": "node1.example.org"}),
        ("node_1", {"name": "node_1"}),
        ("node1 slots=4", {"name": "node1", "slots": 4}),
        ("node1 slots=2 max_slots=4", {"name": "node1", "slots": 2, "max_slots": 4}),
        ("node1 max-slots=4", {"name": "node1", "max_slots": 4}),
        ("node1 port=2222", {"name": "node1", "port": 2222}),
        ("node1\tport=2222\tslots=1", {"name": "node1", "port": 2222, "slots": 1}),
        ("node1:4", {"name": "node1", "slots": 4}),
        ("node1:4 port=65535", {"name": "node1", "slots": 4, "port": 65535}),
        ("ann@node1", {"name": "node1", "user": "ann"}),
        ("a.b-c_9@node1:2", {"name": "node1", "user": "a.b-c_9", "slots": 2}),
        ("192.0.2.1", {"name": "192.0.2.1"}),
        ("192.0.2.1:8", {"name": "192.0.2.1", "slots": 8}),
        ("[2001:db8::1]", {"name": "2001:db8::1"}),
        ("[2001:0DB8:0::1]:4", {"name": "2001:db8::1", "slots": 4}),
        ("ann@[2001:db8::1] port=22", {"name": "2001:db8::1", "user": "ann", "port": 22}),
        ("node1 # the fast one", {"name": "node1"}),
        ("node1#the fast one", {"name": "node1"}),
        ("node1 # slots=0 ; $(x)", {"name": "node1"}),
        ("\ufeffnode1", {"name": "node1"}),
        ("node1\r\n", {"name": "node1"}),
        ("xn--bcher-kva.example", {"name": "xn--bcher-kva.example"}),
        ("1a", {"name": "1a"}),
        ("a" * 63, {"name": "a" * 63}),
    ],
)
def test_a_line_of_every_dialect_is_read(read, content, expected):
    assert read(content).hosts == (Host(line=1, **expected),)


def test_comments_blank_lines_and_windows_line_ends_are_passed_over(read):
    found = read("\ufeff# my hosts\r\n\r\nnode1\r\n   # off\r\n\tnode2 slots=2\r\n")
    assert [(host.name, host.line) for host in found.hosts] == [("node1", 3), ("node2", 5)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("gpu[01-03,07]", ["gpu01", "gpu02", "gpu03", "gpu07"]),
        ("gpu[9-11]", ["gpu9", "gpu10", "gpu11"]),
        ("gpu[098-101]", ["gpu098", "gpu099", "gpu100", "gpu101"]),
        ("gpu[5]", ["gpu5"]),
        ("r[1-2]n[1-2].lan", ["r1n1.lan", "r1n2.lan", "r2n1.lan", "r2n2.lan"]),
        ("192.0.2.[1-2]", ["192.0.2.1", "192.0.2.2"]),
    ],
)
def test_slurm_ranges_become_their_hosts_with_leading_zeros_kept(read, content, expected):
    assert names(read(content)) == expected


def test_options_of_a_range_hold_for_each_of_its_hosts(read):
    found = read("ann@gpu[1-2]:4 port=23").hosts
    assert [(h.name, h.user, h.slots, h.port) for h in found] == [
        ("gpu1", "ann", 4, 23),
        ("gpu2", "ann", 4, 23),
    ]


def test_ignored_slots_are_noted_once(read):
    assert read("a\nb").notes == ()
    (one,) = read("a\nb slots=4").notes
    assert "slots on line 2 are ignored" in one
    (several,) = read("a:2\nb max_slots=4\nc").notes
    assert "slots on 2 lines are ignored" in several


MALFORMED = [
    ("a slots=0", 1, "slots=0", "whole number"),
    ("a slots=8x", 1, "slots=8x", "whole number"),
    ("a slots=", 1, "slots=", "whole number"),
    ("a slots=-1", 1, "slots=-1", "whole number"),
    ("a slots=+1", 1, "slots=+1", "whole number"),
    ("a slots=1.5", 1, "slots=1.5", "whole number"),
    ("a slots=0x4", 1, "slots=0x4", "whole number"),
    ("a slots=1_0", 1, "slots=1_0", "whole number"),
    ("a slots=" + "9" * 5000, 1, "slots=999", "whole number"),
    ("a slots=1 slots=2", 1, "slots=2", "given twice"),
    ("a:2 slots=2", 1, "a:2", "given twice"),
    ("a max_slots=1 max-slots=1", 1, "max-slots=1", "given twice"),
    ("a slots =4", 1, "slots", "slots=N"),
    ("a slots 4", 1, "slots", "slots=N"),
    ("a Slots=4", 1, "Slots=4", "slots=N"),
    ("a cpu=4", 1, "cpu=4", "slots=N"),
    ("a b", 1, "b", "slots=N"),
    ("a =4", 1, "=4", "slots=N"),
    ("slots=4", 1, "slots=4", "host name"),
    ("a port=0", 1, "port=0", "whole number"),
    ("a port=65536", 1, "port=65536", "65535"),
    ("a port=ssh", 1, "port=ssh", "whole number"),
    ("a:", 1, "a:", "number of slots"),
    ("a:0", 1, "a:0", "number of slots"),
    ("a:b", 1, "a:b", "number of slots"),
    ("a:1:2", 1, "a:1:2", "brackets"),
    ("2001:db8::1", 1, "2001:db8::1", "brackets"),
    ("::1", 1, "::1", "brackets"),
    ("[::1", 1, "[:", "IPv6"),
    ("[]", 1, "[]", "IPv6"),
    ("[1.2.3.4]", 1, "[1.2.3.4]", "IPv6"),
    ("[01-03]", 1, "[01-03]", "IPv6"),
    ("[2001:db8::1]x", 1, "[2001:db8:", "number of slots"),
    ("[2001:db8:::1]", 1, "[2001:db8:::1]", "IPv6"),
    ("@a", 1, "@a", "user@name"),
    ("ann@", 1, "", "host name"),
    ("ann@bob@a", 1, "ann@bob@a", "user@name"),
    ("a,b", 1, "a,b", "host name"),
    ("a/b", 1, "a/b", "host name"),
    ("ssh://a", 1, "ssh://a", "number of slots"),
    (".a", 1, ".a", "host name"),
    ("a.", 1, "a.", "host name"),
    ("a..b", 1, "a..b", "host name"),
    ("a-", 1, "a-", "host name"),
    ("a.-b", 1, "a.-b", "host name"),
    ("_a", 1, "_a", "host name"),
    ("a" * 64, 1, "aaa", "host name"),
    (".".join(["a" * 60] * 5), 1, "aaa", "host name"),
    ("256.1.1.1", 1, "256.1.1.1", "IPv4"),
    ("1.2.3", 1, "1.2.3", "IPv4"),
    ("010.0.0.1", 1, "010.0.0.1", "IPv4"),
    ("12", 1, "12", "IPv4"),
    ("gpu[3-1]", 1, "gpu[3-1]", "smaller number first"),
    ("gpu[]", 1, "gpu[]", "range"),
    ("gpu[1,]", 1, "gpu[1,]", "range"),
    ("gpu[a-c]", 1, "gpu[a-c]", "range"),
    ("gpu[1-2-3]", 1, "gpu[1-2-3]", "range"),
    ("gpu[-1]", 1, "gpu[-1]", "range"),
    ("gpu[1-2", 1, "gpu[1-2", "brackets"),
    ("gpu1-2]", 1, "gpu1-2]", "brackets"),
    ("gpu[[1-2]]", 1, "gpu[[1-2]]", "brackets"),
    ("gpu[1-2]]", 1, "gpu[1-2]]", "brackets"),
    ("gpu[" + "1" * 5000 + "]", 1, "gpu[111", "range"),
    ("a\n\n# b\nc slots=0\n", 4, "slots=0", "whole number"),
    ("a\na", 2, "a", "already on line 1"),
    ("a\nb\nA", 3, "a", "already on line 1"),
    ("a\nann@a port=23", 2, "a", "already on line 1"),
    ("gpu2\ngpu[1-3]", 2, "gpu2", "already on line 1"),
    ("gpu[1-3,2]", 1, "gpu2", "already on line 1"),
    ("[2001:db8::1]\n[2001:DB8:0:0::1]", 2, "2001:db8::1", "already on line 1"),
    ("a\n" * 2, 2, "a", "already on line 1"),
    ("n\u00f6de", 1, "n\\xf6de", "ASCII"),
    ("\uff41", 1, "\\uff41", "ASCII"),
    ("\u0430dmin", 1, "\\u0430dmin", "ASCII"),
    ("\u2212oProxyCommand=x", 1, "\\u2212oProxy", "ASCII"),
    ("a slots=\u0664", 1, "slots=\\u0664", "ASCII"),
    ("a\u00a0slots=4", 1, "a\\xa0slots=4", "ASCII"),
    (b"a\nb\xff", 2, "\\xff", "UTF-8"),
    (b"\xff\xfea\x00", 1, "\\xff", "UTF-8"),
    (b"\xed\xa0\x80", 1, "\\xed", "UTF-8"),
    ("gpu[0-4096]", 1, "gpu[0-4096]", "at most 4096 hosts"),
    ("gpu[0-999999999]", 1, "gpu[0-999999999]", "at most 4096 hosts"),
    ("a[1-99999]b[1-99999]c[1-99999]", 1, "a[1-99999]", "at most 4096 hosts"),
    ("gpu[0-4095]\nlast", 2, "last", "at most 4096 hosts"),
]


@pytest.mark.parametrize(("content", "line", "token", "expected"), MALFORMED)
def test_a_malformed_line_is_refused_with_file_line_token_and_what_was_expected(
    read, content, line, token, expected
):
    with pytest.raises(HostFileError) as refused:
        read(content)
    message = str(refused.value)
    assert f"hosts.txt:{line}: " in message
    assert token in message
    assert expected in message
    assert not isinstance(refused.value, UnsafeHostError)
    assert message.isprintable()
    assert len(message) < 400


UNSAFE = [
    "-oProxyCommand=x",
    "--host=a",
    "-",
    "ann@-oProxyCommand=x",
    "-l@a",
    "a -oProxyCommand=x",
    "a;b",
    "a;reboot",
    "$(x)",
    "a$(x)",
    "a`x`",
    "a|b",
    "a&b",
    "a>b",
    "a<b",
    "a slots=$(x)",
    "a port=22;x",
    "a'b",
    'a"b',
    "a\\b",
    "a*",
    "a?",
    "a!b",
    "~a",
    "{a,b}",
    "a%h",
    "[fe80::1%eth0]",
    "a\rb",
    "a\r-oProxyCommand=x",
    "a\r\r\n",
    "a\0b",
    "\0",
    "a\x0bb",
    "a\x0cb",
    "a\x1b[31m",
    "a\x7f",
    "a\u2028b",
    "a\u0085b",
    "a\u200bb",
    "\u202ea",
    "gpu[1-2;x]",
    "good\na;b",
]


@pytest.mark.parametrize("content", UNSAFE)
def test_what_a_program_or_a_shell_could_act_on_is_refused_as_unsafe(read, content):
    with pytest.raises(UnsafeHostError, match=r"hosts\.txt:") as refused:
        read(content)
    assert str(refused.value).isprintable()


def test_a_line_break_in_a_name_only_ends_the_line(read):
    with pytest.raises(UnsafeHostError, match=r"hosts\.txt:2: '-oProxyCommand=x'"):
        read("a\n-oProxyCommand=x")


def test_exactly_4096_hosts_are_accepted(read):
    assert len(read("gpu[0-4095]").hosts) == 4096


def test_too_many_hosts_are_refused_before_their_names_are_made(read):
    tracemalloc.start()
    try:
        with pytest.raises(HostFileError, match="at most 4096"):
            read("gpu[0-999999999]")
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"# only\n# comments\n", b"\xef\xbb\xbf", b" \t\r\n"]
)
def test_a_file_without_hosts_is_an_error_and_never_this_machine(read, content):
    with pytest.raises(HostFileError, match="names no host"):
        read(content)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(HostFileError, match=r"no\.txt.*no such file"):
        read_host_file(tmp_path / "no.txt")


def test_a_name_with_a_nul_is_an_error():
    with pytest.raises(HostFileError, match="null"):
        read_host_file("a\0b")


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(HostFileError, match="directory"):
        read_host_file(tmp_path)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused_without_reading_it(device):
    with pytest.raises(HostFileError, match="device"):
        read_host_file(device)


@pytest.mark.timeout(10)
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HostFileError, match="pipe"):
        read_host_file(tmp_path / "pipe")


def test_a_huge_file_is_refused_without_reading_all_of_it(tmp_path):
    path = tmp_path / "hosts.txt"
    with path.open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(HostFileError, match="at most"):
        read_host_file(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", ["localhost"]),
        ("gpu1", ["gpu1"]),
        ("gpu[01-03,07],login1", ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]),
        ("a,b[1-2]c[3,4],d", ["a", "b1c3", "b1c4", "b2c3", "b2c4", "d"]),
    ],
)
def test_the_nodes_of_a_slurm_allocation_are_read(text, expected):
    assert names(expand_hosts(text)) == expected


@pytest.mark.parametrize("text", ["", " ", ",", "a,a", "a[1", "a[1-2],a2", "n[0-99999999]", "a b"])
def test_a_malformed_allocation_is_refused(text):
    with pytest.raises(HostFileError, match="SLURM_JOB_NODELIST"):
        expand_hosts(text, source="SLURM_JOB_NODELIST")


def test_an_allocation_cannot_smuggle_an_option_in():
    with pytest.raises(UnsafeHostError):
        expand_hosts("a,-oProxyCommand=x")


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text", ["a[" * 10**5 + "," * 10**5, "a" * 10**5, "a[1]" * 10**5, "a," * 10**5, "[" * 10**5]
)
def test_a_huge_allocation_is_refused_in_bounded_time(text):
    with pytest.raises(HostFileError):
        expand_hosts(text)


def nobody(_name):
    return set()


@pytest.mark.parametrize(
    "name",
    ["localhost", "LOCALHOST", "127.0.0.1", "127.0.1.1", "::1", socket.gethostname()],
)
def test_this_machine_is_known_by_its_own_names_and_addresses(name):
    assert is_this_machine(Host(name=name, line=1), resolve=nobody)


def test_another_name_for_one_of_its_addresses_is_this_machine():
    assert is_this_machine(Host(name="alias", line=1), resolve=lambda _: {"127.0.1.1"})
    assert is_this_machine(Host(name="alias", line=1), resolve=lambda _: {"::1"})


@pytest.mark.parametrize("name", ["192.0.2.77", "2001:db8::77", "elsewhere.invalid"])
def test_other_machines_are_not_this_one(name):
    assert not is_this_machine(Host(name=name, line=1), resolve=lambda _: {"192.0.2.78"})


def test_a_resolver_that_hangs_is_not_waited_for():
    started = time.monotonic()
    slow = Host(name="slow.invalid", line=1)
    assert not is_this_machine(slow, resolve=lambda _: time.sleep(5) or set(), timeout_s=0.05)
    assert time.monotonic() - started < 2


def test_a_name_that_nobody_knows_has_no_address():
    assert resolve("a" * 300) == set()
