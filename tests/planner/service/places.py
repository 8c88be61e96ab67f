"""Where the service is put: behind nginx with TLS, or at the other end of ssh -L."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from free_ports import free_port

ROOT = Path(__file__).parents[3]
NAME = "ddlplan.example"
"""Host name of deploy/nginx.conf."""

_GUARD_S = 120


def require(program: str, *, package: str) -> str:
    """Give the path of a program, without which there is no test."""
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if found is None:
        leave_out(f"no {program}: install {package}")
    return found


def leave_out(obstacle: str) -> NoReturn:
    """Skip the test that lacks a tool, or fail where CI promised it."""
    if os.environ.get("SERVICE_TOOLS") == "required":
        pytest.fail(f"SERVICE_TOOLS=required, but {obstacle}")
    pytest.skip(obstacle)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """nginx that has started."""

    port: int
    plain_port: int
    certificate: Path
    log: Path

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}"


@contextlib.contextmanager
def nginx_before(folder: Path, *, server_port: int, port: int, plain_port: int) -> Iterator[Proxy]:
    """Run nginx with deploy/nginx.conf, but for ports, files of the certificate and of the log.

    Args:
        folder: For its files; made here.
        server_port: Of ``ddlplan serve``.
        port: For TLS.
        plain_port: What leads there.
    """
    nginx = require("nginx", package="nginx-light")
    folder.mkdir()
    _make_certificate(folder)
    (folder / "site.conf").write_text(_adapted(folder, server_port, port, plain_port))
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, user=_user_line()))
    command = [nginx, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    with _running(command, port, folder / "errors"):
        yield Proxy(
            port=port,
            plain_port=plain_port,
            certificate=folder / "ddlplan.pem",
            log=folder / "ddlplan.log",
        )


@contextlib.contextmanager
def ssh_forward(folder: Path, *, server_port: int) -> Iterator[int]:
    """Run an sshd on loopback and ``ssh -L`` to it; give the port at this end."""
    sshd = require("sshd", package="openssh-server")
    ssh, keygen = (require(name, package="openssh-client") for name in ("ssh", "ssh-keygen"))
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # of the package, which its daemon makes
    for name in ("host_key", "user_key"):
        command = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    port, local_port = free_port(), free_port()
    (folder / "sshd_config").write_text(_SSHD.format(folder=folder, port=port))
    host_key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    daemon = [sshd, "-D", "-e", "-f", str(folder / "sshd_config")]
    forward = [
        *(ssh, "-F", "none", "-N", "-i", str(folder / "user_key"), "-p", str(port)),
        *("-o", f"UserKnownHostsFile={folder / 'known_hosts'}", "-o", "BatchMode=yes"),
        *("-o", "ExitOnForwardFailure=yes", "-o", "IdentitiesOnly=yes"),
        *("-L", f"{local_port}:127.0.0.1:{server_port}"),
        f"{getpass.getuser()}@127.0.0.1",
    ]
    with (
        _running(daemon, port, folder / "sshd_errors"),
        _running(forward, local_port, folder / "ssh_errors"),
    ):
        yield local_port


_SSHD = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""

_MAIN = """\
{user}
daemon off;
pid {folder}/pid;
worker_processes 1;
error_log stderr;
events {{}}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


def _user_line() -> str:
    """Let the workers of root's nginx be root's: the folder of a test is nobody else's."""
    return "user root;" if os.geteuid() == 0 else ""


def _adapted(folder: Path, server_port: int, port: int, plain_port: int) -> str:
    changes = {
        r" *listen \[::\].*\n": "",
        r"listen 80;": f"listen 127.0.0.1:{plain_port};",
        r"listen 443 ": f"listen 127.0.0.1:{port} ",
        r"https://ddlplan.example\$": f"https://{NAME}:{port}$",
        r"/etc/ssl/(certs|private)": str(folder),
        r"/var/log/nginx": str(folder),
        r"127\.0\.0\.1:8765": f"127.0.0.1:{server_port}",
    }
    text = (ROOT / "deploy/nginx.conf").read_text()
    for pattern, new in changes.items():
        text, times = re.subn(pattern, new, text)
        assert times, f"nothing to replace by {pattern}"
    return text


def _make_certificate(folder: Path) -> None:
    openssl = require("openssl", package="openssl")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={NAME}"),
            *("-addext", f"subjectAltName=DNS:{NAME}"),
            *("-keyout", str(folder / "ddlplan.key"), "-out", str(folder / "ddlplan.pem")),
        ],
        check=True,
        capture_output=True,
    )


@contextlib.contextmanager
def _running(command: list[str], port: int, errors: Path) -> Iterator[None]:
    """Run a program from when it listens on, until the end of the block."""
    with errors.open("w") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        deadline = time.monotonic() + _GUARD_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, errors.read_text()
            assert time.monotonic() < deadline, f"{command[0]} does not listen"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(timeout=_GUARD_S)
