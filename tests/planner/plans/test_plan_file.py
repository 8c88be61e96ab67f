"""A plan file gives the same plan back; anything else is refused with the key at fault."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace

import pytest
import sample_plan

from launch.plan import Plan
from planner.errors import PlanFileError
from planner.plans.plan_file import plan_from_json, read_plan_file
from planner.plans.stored_plan import ComparedPlan

FOUND = replace(
    sample_plan.FOUND,
    id=7,
    plan=Plan(
        strategy="processes",
        node_batch=128,
        processes=2,
        replicas=2,
        memory_format="channels_last",
        options={"wait_policy": "passive"},
    ),
)


@pytest.fixture
def read(tmp_path):
    def read(content):
        path = tmp_path / "plan.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return read_plan_file(path)

    return read


def test_a_plan_has_the_keys_that_scripts_rely_on():
    assert FOUND.to_json(stale=False) == {
        "id": 7,
        "use_case": "simplebig",
        "use_case_digest": "sha256:cc",
        "node": "vm",
        "fingerprint": "sha256:aa",
        "strategy": "processes",
        "processes": 2,
        "threads_per_process": 1,
        "replicas": 2,
        "node_batch": 128,
        "micro_batches": 1,
        "loader_workers": 0,
        "allocator": "default",
        "devices": ["cpu"],
        "precision": "fp32",
        "memory_format": "channels_last",
        "input": "files",
        "lr_scaling": "none",
        "fused_optimizer": False,
        "onednn_linear": False,
        "compile": False,
        "cuda_graph": False,
        "options": {"wait_policy": "passive"},
        "throughput_samples_per_s": {
            "median": 42.8,
            "ci_low": 42.1,
            "ci_high": 43.3,
            "samples": 24,
        },
        "speedup": {"median": 2.02, "ci_low": 1.97, "ci_high": 2.06},
        "baseline": {
            "strategy": "sequential",
            "node_batch": 32,
            "throughput_samples_per_s": 21.2,
        },
        "peak_memory_bytes": 1234567890,
        "peak_device_memory_bytes": None,
        "step_time": {
            "fixed_s": FOUND.step_time.step_time.fixed_s,
            "per_sample_s": pytest.approx(1.4 / 64),
            "points": [
                {"node_batch": 64, "step_s": 1.6, "peak_memory_bytes": 800_000_000},
                {"node_batch": 128, "step_s": 3.0, "peak_memory_bytes": None},
            ],
        },
        "gradient_bytes": 228_000_000,
        "comparisons": [],
        "begins_early": True,
        "objective": None,
        "is_generated": None,
        "created_at": "2026-11-20T12:00:00Z",
        "software": {"python": "3.11.7", "torch": "2.15.0", "ddlplan": "0.1.0"},
        "stale": False,
    }


def test_an_exported_plan_comes_back_the_same_but_for_its_id(read):
    assert read(FOUND.to_json(stale=True)) == replace(FOUND, id=None)


def test_every_setting_of_a_plan_comes_back_the_same(read):
    plan = replace(
        FOUND.plan,
        precision="bf16_internal",
        input="cache",
        allocator="tcmalloc",
        fused_optimizer=True,
        compile=True,
    )
    stored = replace(FOUND, id=None, plan=plan, peak_device_memory_bytes=9 * 2**30)
    assert read(stored.to_json(stale=False)) == stored


@pytest.mark.parametrize(
    ("key", "value"), [("noise_low", -128.0), ("noise_high", -1e9), ("target_samples", 0)]
)
def test_objective_that_cannot_be_is_refused(key, value):
    """The story: plans show divided by 0, or took the logarithm of a number below it."""
    noise = {"noise_scale": 100.0, "noise_low": 50.0, "noise_high": 200.0}
    rest = {"name": "time-to-loss", "base_batch": 32, "steps": 9, "target_samples": 1e6}
    objective = noise | rest
    document = FOUND.to_json(stale=False)
    assert plan_from_json(document | {"objective": objective}).objective is not None
    with pytest.raises(PlanFileError, match=rf"objective\.{key}=.*: expected a number"):
        plan_from_json(document | {"objective": objective | {key: value}})


def test_a_plan_without_baseline_comes_back_the_same(read):
    bare = replace(FOUND, id=None, speedup=None, baseline=None, peak_memory_bytes=None)
    bare = replace(bare, step_time=None, gradient_bytes=None, begins_early=None)
    assert read(bare.to_json(stale=False)) == bare


def test_loader_workers_that_only_a_script_knows_are_null_in_all_its_plans(read):
    """Those it was compared with said 0, and a file in which they were null was refused."""
    own = Plan(strategy="script", node_batch=128)
    defaults = ComparedPlan(
        name="defaults", plan=own, throughput_samples_per_s=20.0, speedup=FOUND.speedup
    )
    words = replace(FOUND, id=None, use_case="script:python train.py", plan=own)
    stored = replace(words, comparisons=(defaults,))
    document = stored.to_json(stale=False)
    (compared,) = document["comparisons"]
    assert (document["loader_workers"], compared["plan"]["loader_workers"]) == (None, None)
    assert read(document) == stored
    compared["plan"]["node_batch"] = "x"
    with pytest.raises(PlanFileError, match=r"comparisons\[0\]\.plan: node_batch='x': expected a"):
        plan_from_json(document)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python 'train.py", "No closing quotation"),
        ("", "name a program"),
        ("python train.py {", "has a brace alone"),
        ("python train.py {batch}", "placeholder {batch} without a value"),
    ],
)
def test_command_that_its_plan_cannot_start_is_refused(command, expected):
    """The story: the first was called a bug of ddlplan, the last broke the page of its plan."""
    own = Plan(strategy="script", node_batch=128)
    document = replace(FOUND, use_case="script:python train.py", plan=own).to_json(stale=False)
    with pytest.raises(PlanFileError) as refused:
        plan_from_json(document | {"use_case": f"script:{command}"}, source="plan file x")
    assert expected in str(refused.value)


def test_the_document_that_json_output_is_can_be_imported(read):
    document = {"schema_version": 1, "command": "plans export", "warnings": []}
    plan = FOUND.to_json(stale=False)
    assert read(document | {"data": plan}) == replace(FOUND, id=None)
    assert read(document | {"data": {"plan": plan, "command": "x"}}) == replace(FOUND, id=None)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("loader_worker", "loader_worker is no key of a plan: did you mean loader_workers?"),
        ("speedup.ci_hihg", "speedup.ci_hihg is no key of a plan: did you mean ci_high?"),
        ("energy_j", "energy_j is no key of a plan: leave it out, or update ddlplan"),
        ("a\x1b[31m", r"a\x1b[31m is no key of a plan: leave it out, or update ddlplan"),
    ],
)
def test_misspelt_key_is_refused_with_the_nearest_one(path, expected):
    """The story: ``loader_worker`` was passed over, and the plan had no loader processes."""
    with pytest.raises(PlanFileError) as refused:
        plan_from_json(changed(path, 2), source="plan file x")
    assert str(refused.value) == f"plan file x: {expected}"


def test_exported_plan_with_its_commands_comes_back_the_same(read):
    commands = {"torchrun": "torchrun --nproc-per-node 2 script.py"}
    assert read(FOUND.to_json(stale=False) | {"commands": commands}) == replace(FOUND, id=None)


def test_keys_that_an_earlier_release_lacks_have_their_defaults(read):
    values = FOUND.to_json(stale=False)
    settings = ("threads_per_process", "replicas", "loader_workers", "micro_batches", "input")
    settings += ("allocator", "lr_scaling", "onednn_linear", "fused_optimizer", "compile")
    added = ("step_time", "gradient_bytes", "use_case_digest", "objective", "is_generated")
    added += ("cuda_graph", "comparisons", "peak_device_memory_bytes", "begins_early")
    for key in ("id", "stale", *settings, *added):
        del values[key]
    older = replace(FOUND, id=None, step_time=None, gradient_bytes=None, begins_early=None)
    assert read(values) == replace(older, use_case_digest=None)


def test_a_byte_order_mark_is_passed_over(read):
    assert read(b"\xef\xbb\xbf" + json.dumps(FOUND.to_json(stale=False)).encode()).node == "vm"


def changed(path, value):
    values = copy.deepcopy(FOUND.to_json(stale=False))
    *outer, last = path.split(".")
    inner = values
    for key in outer:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("use_case", ..., "is missing"),
        ("use_case", "", "printable"),
        ("use_case", 3, "use_case=3: expected a text"),
        ("node", "a\x1b[31mb", "printable"),
        ("node", "a\nb", "printable"),
        ("fingerprint", None, "fingerprint=None: expected a text"),
        ("strategy", ["sequential"], "strategy=['sequential']: expected a text"),
        ("node_batch", ..., "is missing"),
        ("node_batch", 0, "at least 1"),
        ("node_batch", 1.5, "whole number"),
        ("node_batch", "128", "whole number"),
        ("node_batch", True, "whole number"),
        ("node_batch", 10**400, "whole number"),
        ("processes", -1, "at least 1"),
        ("processes", "2", "whole number"),
        ("loader_workers", -1, "at least 0"),
        ("precision", "fp8", "precision='fp8'"),
        ("memory_format", "nhwc", "memory_format='nhwc'"),
        ("allocator", 1, "allocator=1: expected a text"),
        ("allocator", "mimalloc", "choose one of default, retain, jemalloc, tcmalloc"),
        ("input", "tape", "choose one of files, cache, device"),
        ("input", "device", "needs GPUs"),
        ("fused_optimizer", 1, "true or false"),
        ("compile", "yes", "true or false"),
        ("cuda_graph", [], "true or false"),
        ("cuda_graph", True, "needs GPUs"),
        ("devices", "cpu", "devices='cpu': expected a list"),
        ("devices", [], "devices"),
        ("devices", ["tpu"], "devices hold 'tpu': use cpu, or cuda:0"),
        ("devices", ["cuda:x"], "devices hold 'cuda:x': use cpu, or cuda:0"),
        ("devices", [0], "devices[0]=0: expected a text"),
        ("options", [], "object"),
        ("options.deep", {"a": 1}, "expected true or false or a number or a text"),
        ("options.none", None, "expected true or false or a number or a text"),
        (
            "options.large",
            1e999,
            "options.large=infinity: expected 0, or a number from 1e-30 to 1e+30",
        ),
        ("options.a\x1bb", 1, "printable keys"),
        ("options.a\x1bb", None, r"options.a\x1bb=None: expected"),
        ("options.mode", "a\x1b[31mb", "printable"),
        ("peak_memory_bytes", 0, "at least 1"),
        ("throughput_samples_per_s", ..., "is missing"),
        ("throughput_samples_per_s", 42.8, "object"),
        ("throughput_samples_per_s.median", ..., "is missing"),
        ("throughput_samples_per_s.median", "fast", "median='fast': expected a number"),
        ("throughput_samples_per_s.median", 0, "above 0"),
        ("throughput_samples_per_s.median", -1, "above 0"),
        ("throughput_samples_per_s.median", True, "median=True: expected a number"),
        ("throughput_samples_per_s.median", 99, "ci_high=43.3"),
        ("throughput_samples_per_s.ci_low", 43, "ci_low=43"),
        ("throughput_samples_per_s.samples", 0, "at least 1"),
        ("speedup", [], "object"),
        ("speedup.ci_low", ..., "is missing"),
        ("baseline.node_batch", "x", "whole number"),
        ("baseline.throughput_samples_per_s", ..., "is missing"),
        ("peak_memory_bytes", "1 GiB", "whole number"),
        ("step_time", 3, "object"),
        ("step_time.points", ..., "is missing"),
        ("step_time.points", [], "at least one measured batch"),
        ("step_time.points", [3], "points[0]=3: expected an object"),
        ("step_time.points", [{"node_batch": 4, "step_s": -1}], "points[0].step_s=-1"),
        ("gradient_bytes", 1.5, "whole number"),
        ("begins_early", 1, "true or false"),
        ("created_at", ..., "is missing"),
        ("created_at", "yesterday", "time with its zone"),
        ("created_at", "2026-11-20T12:00:00", "time with its zone"),
        ("created_at", "0001-01-01T00:00:00+14:00", "time with its zone"),
        ("software", ..., "is missing"),
        ("software.torch", 2.15, "software.torch=2.15: expected a text"),
        ("micro_batches", 1000, "micro-batch"),
        ("strategy", "procesess", "did you mean processes"),
        ("strategy", "sequential", "use processes=1"),
        ("strategy", "script", "a command has both strategy=script and a use_case that begins"),
        ("use_case", "script:python train.py", "a command has both strategy=script and a use_case"),
        ("processes", 3, "use replicas=3"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_in_one_line(path, value, expected):
    with pytest.raises(PlanFileError, match=r"^plan file x: ") as refused:
        plan_from_json(changed(path, value), source="plan file x")
    message = str(refused.value)
    assert expected in message
    assert path.rpartition(".")[2].partition("\x1b")[0][:5] in message or "*" in message
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"{", "no JSON"),
        (b"[" * 100000, "no JSON"),
        (b'{"node_batch": NaN}', "NaN is no JSON number"),
        (b"[]", "expected an object"),
        (b"3", "expected an object"),
        (b"null", "expected an object"),
        (b'{"schema_version": 2, "data": {}}', "update ddlplan"),
        (b'{"schema_version": 1}', "expected an object"),
        (b'{"schema_version": 1, "data": []}', "expected an object"),
        (b'{"schema_version": 1, "error": {"code": 3}}', "expected an object"),
        (b" " * (2**20 + 1), "at most"),
    ],
)
def test_a_file_without_a_plan_is_refused(read, content, expected):
    with pytest.raises(PlanFileError, match=r"plan\.json") as refused:
        read(content)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_missing_files_directories_and_devices_are_refused(tmp_path):
    with pytest.raises(PlanFileError, match="no such file"):
        read_plan_file(tmp_path / "none.json")
    with pytest.raises(PlanFileError, match="no regular file"):
        read_plan_file(tmp_path)
    with pytest.raises(PlanFileError, match="no regular file"):
        read_plan_file("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PlanFileError, match="no regular file"):
        read_plan_file(tmp_path / "pipe")


@pytest.mark.parametrize("step_s", [1e-300, 1e300, 5e-324])
def test_times_whose_squares_are_no_numbers_are_refused(step_s):
    # The line through them was fitted before they were looked at: OverflowError, exit code 8.
    document = FOUND.to_json(stale=False)
    document["step_time"]["points"][0]["step_s"] = step_s
    with pytest.raises(PlanFileError, match=r"step_time.points\[0\].step_s"):
        plan_from_json(document)


@pytest.mark.parametrize("times_s", [(1e-30, 1e30), (1e30, 1e-30), (1e-30, 1e-30)])
def test_extreme_times_are_taken(times_s):
    document = FOUND.to_json(stale=False)
    for point, time_s in zip(document["step_time"]["points"], times_s, strict=True):
        point["step_s"] = time_s
    document["step_time"]["points"][1]["node_batch"] = 2**53
    assert plan_from_json(document).step_time is not None


def test_a_plan_file_with_too_much_in_it_is_refused():
    document = {**FOUND.to_json(stale=False), "software": {f"k{n}": "1" for n in range(300)}}
    with pytest.raises(PlanFileError, match=r"software=.*at most 256"):
        plan_from_json(document)
