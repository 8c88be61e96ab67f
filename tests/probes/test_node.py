import platform
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from probes.cuda_devices import CudaDevices, query_torch
from probes.hardware import ALL_HIDDEN, DataSpeed, Speeds
from probes.node import probe, probe_for_plans


def test_quick_probe_measures_nothing():
    hardware = probe(quick=True)
    assert hardware.speeds is None
    assert hardware.node == platform.node()
    assert bool(hardware.gpus) or hardware.gpu_reason is not None


@pytest.fixture
def one_gpu(monkeypatch):
    """A GPU of which NVML knows nothing but its UUID."""
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda _: "GPU-5e1f",
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    return nvml


@pytest.mark.usefixtures("one_gpu")
def test_only_speeds_are_taken_from_an_earlier_probe(monkeypatch):
    """A search trained on the GPUs that were visible when its machine was probed."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    speeds = Speeds(fp32_one_core_flop_per_s=5e9)
    hardware = probe(known_speeds=speeds)
    assert hardware.speeds == speeds
    (gpu,) = hardware.gpus
    assert (gpu.uuid, gpu.cuda_index) == ("GPU-5e1f", None)  # torch does not show it
    assert hardware.gpu_reason is not None


@pytest.mark.usefixtures("one_gpu")
def test_gpus_are_predicted_where_torch_is_loaded_too_slowly(monkeypatch):
    """A search would leave out the GPU of a machine whose disk takes ten seconds for torch."""
    late = partial(query_torch, [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr("probes.node.query_torch", lambda limit_s: late(limit_s=limit_s / 100))
    hardware = probe(known_speeds=Speeds())
    assert [gpu.cuda_index for gpu in hardware.gpus] == [0]
    assert hardware.gpu_reason is None
    assert (
        "torch did not say in time which GPUs it can use: they are predicted; probe again"
        in hardware.warnings
    )


def test_torch_is_queried_for_the_gpus_that_plans_name_only_where_it_must_be(monkeypatch, one_gpu):
    """The story: a search that named gpu_data was refused on a machine with GPUs of two kinds,
    whose order CUDA alone knows."""
    asked = []

    def answer():
        asked.append(True)
        return CudaDevices(uuids=("GPU-1", "GPU-0"))

    monkeypatch.setattr("probes.node.query_torch", answer)
    assert [gpu.cuda_index for gpu in probe_for_plans().gpus] == [0]
    assert not asked
    one_gpu.nvmlDeviceGetCount = lambda: 2
    one_gpu.nvmlDeviceGetUUID = "GPU-{}".format
    one_gpu.nvmlDeviceGetName = ("T4", "A100").__getitem__
    assert [gpu.cuda_index for gpu in probe(quick=True).gpus] == [None, None]
    hardware = probe_for_plans()
    assert [(gpu.name, gpu.cuda_index) for gpu in hardware.gpus] == [("T4", 1), ("A100", 0)]
    assert hardware.gpu_reason is None
    asked.clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert probe_for_plans().gpu_reason == ALL_HIDDEN  # in whatever order
    assert not asked


def test_two_probes_of_a_machine_have_one_fingerprint():
    assert probe(quick=True).fingerprint() == probe(quick=True).fingerprint()


def test_files_of_data_that_cannot_be_opened_are_a_warning(monkeypatch, tmp_path):
    speed = DataSpeed(path=str(tmp_path), file_system="ext4", num_unreadable=3)
    monkeypatch.setattr("probes.node.measure_data", lambda *_, **__: speed)
    found = probe(quick=True, data=tmp_path)
    assert found.data == (speed,)
    said = [warning for warning in found.warnings if warning.startswith("data ")]
    assert said == [
        f"data {tmp_path}: 3 of the files to be measured cannot be opened: let this user read them"
    ]


@pytest.mark.long
def test_whole_probe_measures_within_four_times_its_limit_and_without_importing_torch():
    text = (
        "import sys, time; start_s = time.monotonic()\n"
        "from probes.node import probe\n"
        "hardware = probe()\n"
        "print(time.monotonic() - start_s, 'torch' in sys.modules, hardware.speeds is not None)\n"
    )
    command = [sys.executable, "-c", text]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    elapsed_s, has_torch, has_speeds = output.split()
    assert float(elapsed_s) < 4 * 10  # a slow CI machine starts Python late, and shares its cores
    assert (has_torch, has_speeds) == ("False", "True")
