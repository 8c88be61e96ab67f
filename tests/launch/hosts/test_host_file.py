"""The host file: every dialect is read, everything else is refused with file, line and token."""

from __future__ import annotations

import os
import socket
import threading
import tracemalloc

import pytest
from host_file_cases import MALFORMED, UNSAFE

from launch.errors import HostFileError, UnsafeHostError
from launch.hosts import name_resolution
from launch.hosts.host_file import expand_hosts, read_host_file
from launch.hosts.host_line import Host
from launch.hosts.name_resolution import is_this_machine, resolve


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
        ("Node1.Example.ORG", {"name": "Node1.Example.ORG"}),
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
        ("GPU[5]", ["GPU5"]),
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


@pytest.mark.parametrize(("content", "line", "token"), UNSAFE)
def test_what_a_program_or_a_shell_could_act_on_is_refused_as_unsafe(read, content, line, token):
    with pytest.raises(UnsafeHostError, match="expected a host name") as refused:
        read(content)
    message = str(refused.value)
    assert f"hosts.txt:{line}: " in message
    assert token in message
    assert message.isprintable()


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


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.txt", r"no\.txt.*no such file"),
        ("a\0b", "null"),
        (".", "it is a directory"),
        ("/dev/zero", "it is a device or pipe"),
        ("/dev/null", "it is a device or pipe"),
        ("pipe", "it is a device or pipe"),
    ],
)
def test_what_is_no_file_is_refused_without_reading_it_or_waiting_for_a_writer(
    tmp_path, name, says
):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HostFileError, match=says):
        read_host_file(tmp_path / name)


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
        ("GPU1", ["GPU1"]),
        ("gpu[01-03,07],login1", ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]),
        ("a,b[1-2]c[3,4]-ib,d[1]", ["a", "b1c3-ib", "b1c4-ib", "b2c3-ib", "b2c4-ib", "d1"]),
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


@pytest.mark.timeout(60)
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


def test_name_is_looked_up_as_it_is_written():
    known = {"Alias": {"127.0.1.1"}}
    assert is_this_machine(Host(name="Alias", line=1), resolve=known.__getitem__)


def test_another_name_for_one_of_its_addresses_is_this_machine():
    assert is_this_machine(Host(name="alias", line=1), resolve=lambda _: {"127.0.1.1"})
    assert is_this_machine(Host(name="alias", line=1), resolve=lambda _: {"::1"})


@pytest.mark.parametrize("name", ["192.0.2.77", "2001:db8::77", "elsewhere.invalid"])
def test_other_machines_are_not_this_one(name):
    assert not is_this_machine(Host(name=name, line=1), resolve=lambda _: {"192.0.2.78"})


def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch):
    is_given_up = threading.Event()

    def look_up_at_last(*_):
        is_given_up.wait(120)
        return [(None, None, None, "", ("127.0.1.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up_at_last)
    monkeypatch.setattr(name_resolution, "_LIMIT_OF_ONE_S", 0.05)
    assert not is_this_machine(Host(name="slow.invalid", line=1))
    is_given_up.set()


def test_a_name_that_nobody_knows_has_no_address():
    assert resolve("a" * 300) == set()
