import sys
from types import SimpleNamespace

import pytest

from probes.cuda_devices import _describe_torch, number_gpus, predict_order, query_torch
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
        ("1, 0", ("GPU-b3", "GPU-b2")),
        ("1gpu,+0", ("GPU-b3", "GPU-b2")),
        ("1, GPU-b2", ("GPU-b3",)),  # the first entry decides whether there are numbers
        ("GPU-b3,0", ("GPU-b3",)),
        ("GPU-b3, GPU-b2", ("GPU-b3",)),
        ("b3", ()),
        ("1,1", ()),  # what comes twice hides all
        ("GPU-b3,GPU-b3", ()),
        ("0,7,1", ("GPU-b2",)),  # what follows a wrong entry is not shown
        ("GPU-b", ()),  # beginning of two
        ("-1", ()),
        ("", ()),
    ],
)
def test_visible_devices_are_chosen_as_torch_does(visible, expected):
    assert predict_order(ALIKE, {"CUDA_VISIBLE_DEVICES": visible}) == expected


def test_parts_of_gpus_that_are_named_are_not_predicted():
    """The story: a container shows one part, and may not ask NVML whether its GPU is cut up."""
    assert predict_order(ALIKE, {"CUDA_VISIBLE_DEVICES": "MIG-c4"}) is None


def test_torch_is_asked_in_a_process_of_its_own():
    devices = query_torch(script("""print('a banner'); print('{"uuids": ["b2", "a1"]}')"""))
    assert devices.uuids == ("b2", "a1")
    assert devices.reason is None


def test_torch_without_gpus_says_why():
    devices = query_torch(script("""print('{"uuids": [], "reason": "built without CUDA"}')"""))
    assert devices.reason == "built without CUDA"


def torch_that_counts(count, properties=None, init=None):
    """Give a torch that counts by NVML, and has the properties of what CUDA can use."""
    cuda = SimpleNamespace(device_count=lambda: count, get_device_properties=properties, init=init)
    return SimpleNamespace(version=SimpleNamespace(cuda="13.0"), cuda=cuda)


def test_gpus_that_nvml_counts_and_cuda_does_not_show_hide_no_others(monkeypatch):
    """The story: of two GPUs, a container may use one, and torch's "Invalid device id" of the
    other left none to plan for."""

    def properties(index):
        assert index < 1, "Invalid device id"
        return SimpleNamespace(uuid="b2")

    monkeypatch.setitem(sys.modules, "torch", torch_that_counts(2, properties))
    assert _describe_torch() == {"uuids": ["b2"]}


def test_torch_that_can_use_none_of_those_it_counts_says_why(monkeypatch):
    def properties(_):
        raise RuntimeError("The NVIDIA driver on your system is too old.\nGo to https://...")

    monkeypatch.setitem(sys.modules, "torch", torch_that_counts(1, properties))
    said = "torch can use no GPU: The NVIDIA driver on your system is too old."
    assert _describe_torch() == {"uuids": [], "reason": said}


TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040)."
NO_GPU = "No CUDA GPUs are available"


@pytest.mark.parametrize(
    ("visible", "said", "reason"),
    [
        ("MIG-c4", TOO_OLD, f"torch can use no GPU: {TOO_OLD}"),
        (None, TOO_OLD, f"torch can use no GPU: {TOO_OLD}"),
        ("-1", NO_GPU, "CUDA_VISIBLE_DEVICES='-1' hides every GPU"),
        (None, NO_GPU, f"torch can use no GPU: {NO_GPU}"),
    ],
)
def test_variable_hides_gpus_only_where_cuda_says_nothing_else(visible, said, reason, monkeypatch):
    """The story: beside a driver that was too old, the part of a GPU that a variable named was said
    to be hidden by it."""

    def init():
        raise RuntimeError(f"{said}\nGo to https://...")

    monkeypatch.setitem(sys.modules, "torch", torch_that_counts(0, init=init))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert _describe_torch() == {"uuids": [], "reason": reason}


def test_torch_that_hangs_is_given_up_with_a_reason():
    devices = query_torch(script("import time; time.sleep(60)"), limit_s=0.2)
    assert devices.uuids == ()
    assert devices.reason == "torch was asked for its GPUs: not done after 0.2 s"
    assert devices.is_late


def test_torch_that_crashes_is_a_reason():
    devices = query_torch(script("raise SystemExit('libcudart is missing')"))
    assert "libcudart is missing" in devices.reason
    assert not devices.is_late
