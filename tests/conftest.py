"""What all tests share: caches of their own, and no settings of the user."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

# Not their parent too: tests/launch is no launch.
sys.path.extend(
    str(Path(__file__).parent / name)
    for name in ("launch", "launch/cases", "launch/ranks", "hosts")
)

from testbed import Testbed, find_obstacle
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# Tests run beside one another: OpenMP's threads that compute while they wait for one whose core
# another test has would take several times as long. For torch here, and for workers.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background so, and programs inherit it: no test of Ctrl-C
    # would see one.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Wait for nothing else on this machine, from the first fixture on."""
    folder = tmp_path_factory.mktemp("locks")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DDLPLAN_LOCKS", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def _own_surroundings(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, own_locks: Path
):
    """Leave the user's cache and settings alone."""
    for name in os.environ:
        if name.startswith("DDLPLAN_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("DDLPLAN_LOCKS", str(own_locks))


@pytest.fixture
def install_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a release of lightning first on the import path, which nobody may import."""

    def install(release: str) -> None:
        package = tmp_path / release / "lightning"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise AssertionError('it was imported')\n")
        about = package.with_name(f"lightning-{release}.dist-info")
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: lightning\nVersion: {release}\n"
        )
        monkeypatch.syspath_prepend(package.parent)

    return install


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs several hosts; skip what needs a GPU where torch can use none."""
    for item in items:
        if "_testbed_is_possible" in getattr(item, "fixturenames", ()):
            item.add_marker("hosts")
    need_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if need_gpu and not _has_gpu():
        for item in need_gpu:
            item.add_marker(pytest.mark.skip(reason="no GPU that torch can use"))


def pytest_collection_finish() -> None:
    """Leave modules and tests out of all later collections of garbage, which they would slow."""
    gc.collect()
    gc.freeze()


def _has_gpu() -> bool:
    import torch  # only for those who test what needs it

    return torch.cuda.is_available()


TRAINING = re.compile("tests/launch/(checkpoints|strategies|training)/")
"""Folders whose tests let workers train all the time, which wait for each other by computing."""

WORKERS = re.compile(r"def \w+\([^)]*\b(home|training\w*|trained_pair|trained_apart)\s*[:,)]")
"""A function that takes one of the fixtures by which tests of these folders have workers."""


class OneAfterTheOther(LoadFileScheduling):
    """Files are run at once, but for those whose tests would take each other's cores.

    By a scheduler of its own: the marker ``xdist_group`` of xdist 3.8 does nothing in pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        has_workers = TRAINING.match(file) and _asks_for_workers(self.config.rootpath / file)
        return "workers" if has_workers else file


@cache
def _asks_for_workers(file: Path) -> bool:
    return WORKERS.search(file.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneAfterTheOther:
    # By default files of few tests are last, and these tests are long: two processes would have
    # nothing to do while a third comes to the end of one.
    config.option.loadscopereorder = False
    return OneAfterTheOther(config, log)


@pytest.fixture(scope="session")
def _testbed_is_possible():
    """Skip where hosts cannot be brought up; where CI promised that they can, fail."""
    if not os.environ.get("TESTBED"):
        pytest.skip("takes minutes and root, for several hosts on this machine: make test-hosts")
    if (obstacle := find_obstacle()) is not None:
        if os.environ.get("TESTBED") == "required":
            pytest.fail(f"TESTBED=required, but {obstacle}")
        pytest.skip(obstacle)


@pytest.fixture
def testbed(_testbed_is_possible) -> Iterator[Callable[..., Testbed]]:
    """Bring hosts up, as `Testbed` does, and take them down after the test."""
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(Testbed(*args, **options))


@pytest.fixture(scope="module")
def _shared_testbeds(_testbed_is_possible) -> Iterator[list[Testbed]]:
    """One, once a test has asked for it."""
    beds: list[Testbed] = []
    yield beds
    for bed in beds:
        bed.down()


@pytest.fixture
def shared_testbed(_shared_testbeds: list[Testbed]) -> Iterator[Testbed]:
    """Two hosts that tests of a file have one after the other: bringing some up takes a second.

    A test may cut them off, and leave no process there: then the next one has others.
    """
    if not _shared_testbeds:
        _shared_testbeds.append(Testbed(2))
    (bed,) = _shared_testbeds
    yield bed
    for host in bed.hosts:
        bed.mend(host)
    if left := bed.left_over():
        _shared_testbeds.remove(bed)
        bed.down()
    assert left == set()
