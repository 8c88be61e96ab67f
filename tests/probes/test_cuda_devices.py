import sys

import pytest

from probes.cuda_devices import number_gpus, predict_order, query_torch
from probes.hardware import Gpu

MIXED = (
    Gpu(nvml_index=0, name="T400", uuid="GPU-a1"),
    Gpu(nvml_index=1, name="A100", uuid="GPU-b2"),
    Gpu(nvml_index=2, name="A100", uuid="GPU-b3"),
)
ALIKE = MIXED[1:]


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def numbers(gpus) -> list[int | None]:
    return [gpu.cuda_index for gpu in gpus]


def test_gpus_are_numbered_as_cuda_does_and_not_as_nvml_does():
    # the fastest first, and without NVML's prefix
    assert numbers(number_gpus(MIXED, ["b2", "b3", "a1"])) == [2, 0, 1]


def test_gpu_that_cuda_hides_has_no_number():
    assert numbers(number_gpus(MIXED, ["GPU-b3"])) == [None, None, 0]


def test_gpu_that_hides_its_uuid_has_no_number():
    assert numbers(number_gpus([Gpu(nvml_index=0)], ["a1"])) == [None]


def test_order_of_equal_gpus_is_that_of_the_bus():
    assert predict_order(ALIKE, {}) == ("GPU-b2", "GPU-b3")


def test_order_of_unequal_gpus_is_cudas_secret():
    assert predict_order(MIXED, {}) is None
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert predict_order(MIXED, by_bus) == ("GPU-a1", "GPU-b2", "GPU-b3")


def test_order_of_parts_of_a_gpu_is_not_predicted():
    assert predict_order([Gpu(nvml_index=0, uuid="GPU-a1", mig_enabled=True)], {}) is None


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1,0", ("GPU-b3", "GPU-b2")),
        ("GPU-b3", ("GPU-b3",)),
        ("1, GPU-b2", ("GPU-b3", "GPU-b2")),
        ("0,7,1", ("GPU-b2",)),  # what follows a wrong entry is not shown
        ("GPU-b", ()),  # beginning of two
        ("-1", ()),
        ("", ()),
    ],
)
def test_visible_devices_are_chosen_as_cuda_does(visible, expected):
    assert predict_order(ALIKE, {"CUDA_VISIBLE_DEVICES": visible}) == expected


def test_torch_is_asked_in_a_process_of_its_own():
    devices = query_torch(script("""print('a banner'); print('{"uuids": ["b2", "a1"]}')"""))
    assert devices.uuids == ("b2", "a1")
    assert devices.reason is None


def test_torch_without_gpus_says_why():
    devices = query_torch(script("""print('{"uuids": [], "reason": "built without CUDA"}')"""))
    assert devices.reason == "built without CUDA"


def test_torch_that_hangs_is_given_up_with_a_reason():
    devices = query_torch(script("import time; time.sleep(60)"), limit_s=0.2)
    assert devices.uuids == ()
    assert devices.reason == "torch was asked for its GPUs: not done after 0.2 s"
    assert devices.is_late


def test_torch_that_crashes_is_a_reason():
    devices = query_torch(script("raise SystemExit('libcudart is missing')"))
    assert "libcudart is missing" in devices.reason
    assert not devices.is_late
