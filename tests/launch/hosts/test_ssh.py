"""The command that starts a program on another host, and what ssh makes of it."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from launch.errors import HostFileError
from launch.hosts.host_file import expand_hosts
from launch.hosts.host_line import Host
from launch.hosts.ssh import remote_command, ssh_name, write_ssh_config

NODE = Host(name="node1", line=1)


def settings_of(host: Host, config: Path) -> dict[str, str]:
    """What ssh itself would do for a host."""
    if shutil.which("ssh") is None:
        pytest.skip("no ssh on this machine")
    command = ["ssh", "-G", "-F", str(config), "--", ssh_name(host)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(line.partition(" ")[::2] for line in text.splitlines())


@pytest.fixture
def config(tmp_path):
    def write(*hosts: Host, include: Path | None = None) -> Path:
        path = tmp_path / "ssh_config"
        write_ssh_config(hosts, path, include=include)
        return path

    return write


@pytest.fixture
def own(tmp_path):
    def write(text: str, name: str = "own") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_options_come_before_the_host_and_the_program_after_it(tmp_path):
    command = remote_command(NODE, ["hostname"], ssh_config=tmp_path / "c")
    split = command.index("--")
    assert command[split:-1] == ["--", "node1"]
    assert command[-1].split()[-1] == "hostname"
    assert command[:3] == ["ssh", "-F", str(tmp_path / "c")]
    assert {"BatchMode=yes", "ConnectTimeout=10"} <= set(command[:split])


def test_words_of_the_program_survive_a_shell(tmp_path):
    words = ["printf", "%s\n", "$(touch x)", "a;b", "it's", "", "two words", "`id`", "*", "a\nb"]
    last = remote_command(NODE, words, ssh_config=tmp_path / "c")[-1]
    said = subprocess.run(["sh", "-c", last], capture_output=True, text=True, check=True).stdout
    assert said == "".join(f"{word}\n" for word in words[2:])


def test_user_and_port_of_the_host_file_win_over_the_users_own(config, own):
    file = own("Host node1\n  User someone\n  Port 1\n  Compression yes\n")
    host = Host(name="node1", user="trainer", port=2222, line=1)
    found = settings_of(host, config(host, include=file))
    assert (found["user"], found["port"], found["compression"]) == ("trainer", "2222", "yes")


def test_users_own_settings_hold_for_every_host(config, own):
    """The story: what is included after a ``Host`` line would hold for that host alone."""
    file = own("Compression yes\nHost b\n  HostName 10.0.0.9\n")
    hosts = [Host(name=name, user=name, line=1) for name in ("a", "b", "c")]
    path = config(*hosts, include=file)
    assert [settings_of(host, path)["compression"] for host in hosts] == ["yes"] * 3
    assert settings_of(hosts[1], path)["hostname"] == "10.0.0.9"


def test_users_own_settings_for_a_name_in_capitals_hold(config, own):
    """The story: the name was read in small letters, for which ssh knows no ``Host GPU1``."""
    (host,) = expand_hosts("GPU1").hosts
    found = settings_of(host, config(host, include=own("Host GPU1\n  HostName 10.0.0.9\n")))
    assert found["hostname"] == "10.0.0.9"


def test_settings_that_would_stop_a_job_do_not_hold(config, own):
    file = own("ControlMaster auto\nRemoteCommand tmux\nRequestTTY yes\nBatchMode no\n")
    found = settings_of(NODE, config(NODE, include=file))
    assert found["controlmaster"] == "false"
    assert found["requesttty"] == "false"
    assert found["batchmode"] == "yes"
    assert found.get("remotecommand", "none") == "none"


@pytest.mark.parametrize("name", ["node1", "2001:db8::1"])
def test_login_to_a_host_that_has_died_is_given_up_unless_the_user_waits_longer(config, own, name):
    """The story: mpirun's login to a host that had died since the checks waited for minutes."""
    host = Host(name=name, line=1)
    without = config(host, include=own("Compression yes\n"))
    assert settings_of(host, without)["connecttimeout"] == "10"
    longer = config(host, include=own(f"Host {name}\n  ConnectTimeout 60\n"))
    assert settings_of(host, longer)["connecttimeout"] == "60"


def test_checking_of_host_keys_is_left_to_the_user(config, own):
    file = own("StrictHostKeyChecking accept-new\n")
    with_own = settings_of(NODE, config(NODE, include=file))
    assert with_own["stricthostkeychecking"] == "accept-new"
    assert "StrictHostKeyChecking" not in config(NODE).read_text()


def test_address_with_colons_has_a_name_that_mpirun_can_take(config):
    host = Host(name="2001:db8::1", line=1)
    assert ":" not in ssh_name(host)
    assert settings_of(host, config(host))["hostname"] == "2001:db8::1"


def test_users_own_settings_for_an_address_with_colons_hold(config, own):
    """The story: ssh looked for the name that mpirun is given, and asked for a host key."""
    host = Host(name="2001:db8::1", line=1)
    path = config(host, include=own("Host 2001:db8::1\n  HostKeyAlias known\n  Port 99\n"))
    found = settings_of(host, path)
    assert (found["hostkeyalias"], found["port"]) == ("known", "99")
    assert found["hostname"] == "2001:db8::1"


def test_only_the_user_can_read_it_whatever_was_there(config, tmp_path):
    (tmp_path / "ssh_config").write_text("Host *\n" * 100)
    path = config(NODE)
    assert path.read_text().count("Host *") == 1
    path.unlink()
    assert stat.S_IMODE(config(NODE).stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["with space", "pattern[1]*", "it's"])
def test_users_own_file_is_found_by_any_name(config, own, name):
    assert settings_of(NODE, config(NODE, include=own("User x\n", name)))["user"] == "x"


@pytest.mark.parametrize("name", ["missing", ".", "x" * 300, 'two"quotes', "new\nline"])
def test_file_that_ssh_would_pass_over_is_an_error(config, tmp_path, name):
    with pytest.raises(HostFileError, match="ssh configuration"):
        config(NODE, include=tmp_path / name)
