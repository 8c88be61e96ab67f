"""How fast a folder of data is read is measured on some of its own files."""

from __future__ import annotations

import errno
import os

import pytest

from probes.errors import DataProbeError
from probes.storage.data_speed import _measure, _measure_copy, _Supply, measure_data
from probes.storage.files import DataFile, list_data
from probes.storage.reading import forget, read_rate


@pytest.fixture
def folder(tmp_path):
    """Forty small files in two folders, a large one, and what is none."""
    for number in range(40):
        file = tmp_path / "data" / f"class{number % 2}" / f"{number}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(1000 + number))
    (tmp_path / "data" / "large.bin").write_bytes(os.urandom(5 << 20))
    (tmp_path / "data" / "empty").write_bytes(b"")
    (tmp_path / "data" / ".hidden").write_bytes(b"x")
    (tmp_path / "data" / "nowhere").symlink_to("missing")
    (tmp_path / "data" / "circle").symlink_to(".")
    return tmp_path / "data"


def test_files_are_counted_and_drawn(folder):
    files = list_data(folder)
    assert files.num_files == 42
    assert files.num_bytes == sum(1000 + number for number in range(40)) + (5 << 20)
    assert files.is_complete
    assert len({file.path for file in files.sample}) == 41  # the empty one says nothing
    assert files.largest is not None
    assert files.largest.path.endswith("large.bin")
    (one,) = list_data(folder / "large.bin").sample
    assert one.num_bytes == 5 << 20


def test_listing_that_takes_too_long_has_no_totals(folder):
    assert not list_data(folder, limit_s=-1.0).is_complete


def test_rates_of_a_local_folder_are_measured_and_nothing_is_left(folder, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    found = measure_data(folder, cores=2, local=tmp_path, budget_s=0.5)
    assert sorted(tmp_path.rglob("*")) == before
    assert found.path == str(folder)
    assert found.file_system
    assert not found.is_network
    assert (found.num_files, found.num_bytes) == (42, sum(range(1000, 1040)) + (5 << 20))
    assert [rate.readers for rate in found.cold] == [1, 2, 4]
    assert [rate.readers for rate in found.warm] == [1, 4]
    assert all(rate.files_per_s > 0 and rate.bytes_per_s > 0 for rate in found.cold + found.warm)
    assert found.open_s is not None
    assert found.sequential_bytes_per_s is not None
    assert found.random_bytes_per_s is not None
    assert found.local is None


def test_files_that_cannot_be_opened_are_counted_and_the_others_measured(folder, tmp_path):
    """The story: the first of them ended the measurement without a word."""
    steps = _measure(folder, cores=2, local=tmp_path, budget_s=0.5)
    next(steps)  # all are listed
    for file in [*(folder / "class0").iterdir(), folder / "large.bin"]:
        file.unlink()
    *_, found = steps
    assert found.num_unreadable == 21
    assert [rate.readers for rate in found.cold] == [1, 2, 4]
    assert all(rate.files_per_s > 0 for rate in found.cold + found.warm)
    assert found.sequential_bytes_per_s is None


def test_data_of_which_no_file_can_be_opened_have_no_rates(folder, tmp_path):
    steps = _measure(folder / "large.bin", cores=2, local=tmp_path, budget_s=0.5)
    next(steps)
    (folder / "large.bin").unlink()
    (found,) = steps
    assert (found.num_unreadable, found.open_s, found.cold) == (1, None, ())


def test_copy_of_some_files_is_made_measured_and_removed(folder, tmp_path):
    local = tmp_path / "local"
    local.mkdir()
    found = _measure_copy(_Supply(list_data(folder).sample), local, [1, 2], 0.2)
    assert found is not None
    assert found.copy_files_per_s > 0
    assert found.free_bytes is not None
    assert found.free_bytes > 1 << 20
    assert [rate.readers for rate in found.cold] == [1, 2]
    assert list(local.iterdir()) == []
    assert _measure_copy(_Supply(list_data(folder).sample), tmp_path / "none", [1], 0.2) is None


def test_data_that_cannot_be_read_are_one_line(tmp_path):
    with pytest.raises(DataProbeError, match=r"^data .*/missing cannot be measured: exit code 1"):
        measure_data(tmp_path / "missing", cores=1, local=tmp_path, budget_s=0.1)


def test_forgotten_file_is_not_in_the_page_cache(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20))
    file = DataFile(path=str(path), num_bytes=1 << 20)

    def is_cached():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return bool(os.preadv(descriptor, [bytearray(4096)], 0, os.RWF_NOWAIT))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            pytest.skip("this file system does not say what is in the page cache")
        finally:
            os.close(descriptor)

    rate = read_rate([file], readers=1, limit_s=1.0)
    assert rate.bytes_per_s / rate.files_per_s == 1 << 20
    assert is_cached()
    forget([file])
    if is_cached():
        pytest.skip("this file system is in memory")
