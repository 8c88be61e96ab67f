import os
from types import SimpleNamespace

import pytest
from recorded_nvml import NvmlError, RecordedNvml

from probes.gpu import read_gpus
from probes.hardware import GpuLink, GpuProcess

GIB = 2**30


def a100s():
    """Two A100 joined by NVLink, and a small card for the screen behind a host bridge."""
    return RecordedNvml(
        3,
        Name={0: "NVIDIA T400", 1: "NVIDIA A100", 2: b"NVIDIA A100"},
        UUID={0: "GPU-a", 1: "GPU-b", 2: "GPU-c"},
        MemoryInfo={
            0: SimpleNamespace(total=4 * GIB, free=3 * GIB),
            1: SimpleNamespace(total=80 * GIB, free=79 * GIB),
            2: SimpleNamespace(total=80 * GIB, free=40 * GIB),
        },
        CudaComputeCapability={0: (7, 5), 1: (8, 0), 2: (8, 0)},
        MaxPcieLinkGeneration={0: 3, 1: 4, 2: 4},
        MaxPcieLinkWidth={0: 16, 1: 16, 2: 16},
        MigMode={1: [0, 0], 2: [0, 1]},
        ComputeMode={0: 2, 1: 0, 2: 3},
        NvLinkState={1: [1] * 12 + [0] * 24, 2: [1] * 12 + [0] * 24},
        ComputeRunningProcesses={
            0: [],
            1: [SimpleNamespace(pid=os.getpid(), usedGpuMemory=GIB)],
            2: [
                SimpleNamespace(pid=os.getpid(), usedGpuMemory=GIB),
                SimpleNamespace(pid=77, usedGpuMemory=38 * GIB),
                SimpleNamespace(pid=78, usedGpuMemory=None),
            ],
        },
        pairs={
            "P2PStatus": {(0, 1): 1, (0, 2): 1, (1, 2): 0},
            "TopologyCommonAncestor": {(0, 1): 30, (0, 2): 50, (1, 2): 50},
        },
    )


def test_gpus_are_described_and_nvml_is_closed_again():
    nvml = a100s()
    found = read_gpus(nvml)
    assert not nvml.is_open
    assert found.reason is None
    assert found.driver == "550.54.15"
    gpu = found.gpus[1]
    assert (gpu.name, gpu.uuid, gpu.memory_bytes) == ("NVIDIA A100", "GPU-b", 80 * GIB)
    assert (gpu.compute_capability, gpu.pcie_generation, gpu.pcie_width) == ((8, 0), 4, 16)
    assert (gpu.mig_enabled, gpu.compute_mode, gpu.nvlinks) == (False, "default", 12)
    assert [gpu.compute_mode for gpu in found.gpus] == [
        "prohibited",
        "default",
        "exclusive_process",
    ]


def test_name_given_as_bytes_by_an_old_library_is_text():
    assert read_gpus(a100s()).gpus[2].name == "NVIDIA A100"


def test_processes_of_others_are_kept_apart_from_ours():
    gpus = read_gpus(a100s()).gpus
    assert gpus[1].other_processes == ()
    assert gpus[2].other_processes == (
        GpuProcess(pid=77, used_bytes=38 * GIB),
        GpuProcess(pid=78),
    )


def test_busy_gpu_is_warned_about_with_a_remedy():
    warnings = read_gpus(a100s()).warnings
    assert (
        "GPU 2 is used by 2 other processes (38.0 GiB): "
        "times measured on it will vary; wait for them to end"
    ) in warnings
    assert "GPU 0 has compute mode prohibited: run nvidia-smi -i 0 -c DEFAULT" in warnings


def test_links_tell_nvlink_from_pci():
    assert read_gpus(a100s()).links == (
        GpuLink(first_uuid="GPU-a", second_uuid="GPU-b", kind="host_bridge"),
        GpuLink(first_uuid="GPU-a", second_uuid="GPU-c", kind="system"),
        GpuLink(first_uuid="GPU-b", second_uuid="GPU-c", kind="nvlink"),
    )


def test_field_that_is_not_supported_is_absent():
    gpu = read_gpus(RecordedNvml(1, UUID={0: "GPU-a"})).gpus[0]
    assert gpu.uuid == "GPU-a"
    assert gpu.name is None
    assert gpu.memory_bytes is None
    assert gpu.mig_enabled is None
    assert gpu.nvlinks is None
    assert gpu.other_processes is None


def test_gpu_that_fell_off_the_bus_is_left_out_with_a_warning():
    nvml = a100s()
    nvml.answers["HandleByIndex"] = {1: NvmlError("GPU is lost")}
    found = read_gpus(nvml)
    assert [gpu.nvml_index for gpu in found.gpus] == [0, 2]
    assert "GPU 1 cannot be reached (GPU is lost): it is left out" in found.warnings


def test_driver_without_gpus_gives_a_reason():
    found = read_gpus(RecordedNvml(0))
    assert found.gpus == ()
    assert found.reason == "the driver shows no GPU; training uses the CPU"


@pytest.mark.parametrize(
    "message", ["Driver/library version mismatch", "Driver Not Loaded", "Unknown Error"]
)
def test_broken_driver_gives_no_gpus_and_the_reason(message, tree):
    class Broken:
        def nvmlInit(self):  # noqa: N802
            raise NvmlError(message)

    files = {
        "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
        "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    }
    found = read_gpus(Broken(), root=tree(files))
    assert found.gpus == ()
    assert found.reason == (
        f"an NVIDIA GPU is here, but its driver does not answer ({message}); training uses the CPU"
    )


def test_amd_gpu_is_named_as_the_reason(tree):
    class Absent:
        def nvmlInit(self):  # noqa: N802
            raise NvmlError("NVML Shared Library Not Found")

    files = {
        "sys/bus/pci/devices/0000:03:00.0/class": "0x030000\n",
        "sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n",
        "sys/bus/pci/devices/0000:00:01.0/class": "0x020000\n",
        "sys/bus/pci/devices/0000:00:01.0/vendor": "0x10de\n",
    }
    assert "AMD GPU" in read_gpus(Absent(), root=tree(files)).reason


def test_this_machine_has_gpus_or_a_reason():
    found = read_gpus()
    assert bool(found.gpus) != bool(found.reason)
