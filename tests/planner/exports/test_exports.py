"""An exported plan runs by itself: its processes really start, with what the plan sets."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sample_plan
import slurm_stand_in

from launch.plan import Plan
from planner.errors import UsageError
from planner.exports.formats import JSON, TEXT_FORMATS, export_text, find_format
from planner.exports.head import settings_of_script
from planner.plans.plain_commands import plain_commands
from planner.scripts.naming import STRATEGY, script_name
from probes.cpu import read_cpu

PLAN = Plan(
    strategy="processes",
    node_batch=65,
    processes=2,
    replicas=2,
    micro_batches=4,
    memory_format="channels_last",
    allocator="retain",
    fused_optimizer=True,
    input="cache",
)
STORED = replace(sample_plan.FOUND, id=7, plan=PLAN)
ON_GPUS = Plan(
    strategy="gpu_data",
    node_batch=64,
    processes=2,
    replicas=2,
    threads_per_process=4,
    devices=("cuda:1", "cuda:3"),
    precision="bf16",
    options={"cudnn_benchmark": True},
)
PLANS = {
    "processes": PLAN,
    "threads": Plan(
        strategy="threads",
        node_batch=64,
        replicas=2,
        threads_per_process=4,
        allocator="tcmalloc",
        precision="bf16_internal",
        onednn_linear=True,
    ),
    "stages": Plan(
        strategy="pipeline",
        node_batch=64,
        processes=2,
        micro_batches=8,
        compile=False,
        options={"schedule": "gpipe", "cut": "measured"},
    ),
    "GPUs": ON_GPUS,
    "compiled": Plan(strategy="sequential", node_batch=8, compile=True, allocator="jemalloc"),
}
GUARD_S = 240

SUM = """
import json, os, sys
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(rank)
about = {name: os.environ[name] for name in os.environ if name.startswith(("PLAN_", "MALLOC_"))}
about |= {"cores": sorted(os.sched_getaffinity(0)), "host": os.uname().nodename}
about |= {"sum": rank.item(), "threads": torch.get_num_threads(), "more": sys.argv[2:]}
Path(sys.argv[1], os.environ["LOCAL_RANK"]).write_text(json.dumps(about))
dist.barrier()  # PyTorch may end a rank by SIGABRT that leaves while others are in a collective
dist.destroy_process_group()
"""

BY_MODULE = """
import json, os, sys
from pathlib import Path
import plan_settings as plan
import torch

model = plan.prepare(torch.nn.Conv2d(3, 4, 3))
plan.prepare(torch.nn.Conv3d(1, 1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **plan.OPTIMIZER)
with plan.autocast():
    loss = model(torch.ones(plan.BATCH, 3, 8, 8)).mean()
loss.backward()
optimizer.step()
about = {
    "batch": plan.BATCH,
    "threads": torch.get_num_threads(),
    "cores": sorted(os.sched_getaffinity(0)),
    "is_channels_last": model.weight.is_contiguous(memory_format=torch.channels_last),
    "ddlplan": [name for name in sys.modules if name.partition(".")[0] in ("planner", "launch")],
}
Path(sys.argv[1], str(plan.LOCAL_RANK)).write_text(json.dumps(about))
"""

VARIABLES = """
import json, os, sys
from pathlib import Path

about = {**os.environ, "cores": sorted(os.sched_getaffinity(0)), "more": sys.argv[2:]}
Path(sys.argv[1], os.environ.get("LOCAL_RANK", "OMPI")).write_text(json.dumps(about))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder for scripts, with the programs of this environment and of Slurm in front."""
    slurm_stand_in.install(tmp_path / "slurm")
    programs = f"{tmp_path / 'slurm'}:{Path(sys.executable).parent}"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    (tmp_path / "out").mkdir()
    return tmp_path


def run(place: Path, *command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=GUARD_S, check=False
    )
    assert ended.returncode == code, ended.stderr
    return ended


def reports(place: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted((place / "out").iterdir())]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("text_format", TEXT_FORMATS)
def test_every_plan_is_exported_as_code_that_can_be_read(plan, text_format, place):
    text = export_text(replace(STORED, plan=plan), text_format)
    assert text.endswith("\n")
    if text_format == "python":
        compile(text, "plan.py", "exec")
    else:
        file = place / "plan.sh"
        file.write_text(text)
        run(place, "bash", "-n", str(file))


HOSTILE = 'x\'\n$(touch owned)\n"""\nimport os;`touch owned`\x1b[2J\u2028#'


@pytest.mark.parametrize("text_format", ["sbatch", "shell", "python"])
def test_names_that_are_code_stay_comments_and_arguments(text_format, place):
    text = export_text(replace(STORED, use_case=HOSTILE, node=HOSTILE), text_format)
    assert text.replace("\n", "").replace("\t", "").isprintable()
    plain = export_text(STORED, text_format)
    assert len(text.splitlines()) == len(plain.splitlines())
    (place / "plan").write_text(text)
    if text_format == "python":
        run(place, sys.executable, "plan")
    else:
        for word in ("ddlplan", "torchrun"):  # what it would start says what it got
            (place / "slurm" / word).write_text('#!/bin/sh\nprintf "%s\\n" "$@" > got\n')
            (place / "slurm" / word).chmod(0o755)
        run(place, "bash", "plan", *(["x.py"] if text_format == "shell" else []))
    assert not (place / "owned").exists()
    if text_format == "sbatch":
        assert "$(touch owned)" in (place / "got").read_text()


def test_a_script_is_told_what_to_do_without_an_argument(place):
    (place / "plan.sh").write_text(export_text(STORED, "shell"))
    assert "usage: sh plan.sh YOUR_SCRIPT.py" in run(place, "sh", "plan.sh", code=2).stderr


def test_what_only_ddlplan_does_is_said(place):
    assert "input=cache" in export_text(STORED, "shell")
    threads = export_text(replace(STORED, plan=PLANS["threads"]), "python")
    assert "2 replicas in one process" in threads
    assert "onednn_linear" in threads
    assert "cut into 2 stages" in export_text(replace(STORED, plan=PLANS["stages"]), "sbatch")


def test_scaling_of_the_learning_rate_is_handed_on():
    """The story: exports of a plan that scales it had its batch and no word of that."""
    scaled = replace(STORED, plan=replace(PLAN, lr_scaling="linear"))
    for text_format in ("shell", "sbatch"):
        assert "export PLAN_LR_SCALING=linear\n" in export_text(scaled, text_format)
    assert 'LR_SCALING = "linear"\n' in export_text(scaled, "python")
    assert "learning rate scaling linear" in settings_of_script(scaled.plan)
    assert "learning rate scaling" not in " ".join(settings_of_script(PLAN))


def test_a_script_is_told_whether_cudnn_times_its_algorithms():
    """The story: only the Python module said it."""
    texts = {name: export_text(replace(STORED, plan=ON_GPUS), name) for name in TEXT_FORMATS}
    for text_format in ("shell", "sbatch"):
        assert "export PLAN_CUDNN_BENCHMARK=1\n" in texts[text_format]
        assert "export PLAN_CUDNN_BENCHMARK=0\n" in export_text(STORED, text_format)
    assert "torch.backends.cudnn.benchmark = True\n" in texts["python"]


def test_without_channels_last_tensors_stay_as_the_script_made_them():
    """The story: those that were in another order than torch's own were put into that."""
    moving = "tensor.data.to(memory_format=MEMORY_FORMAT)"
    assert moving in export_text(STORED, "python")
    assert moving not in export_text(replace(STORED, plan=ON_GPUS), "python")


def test_gpus_are_counted_for_slurm_and_chosen_where_the_export_runs():
    """The story: exports put the numbers that GPUs had in the search in the place of the user's."""
    texts = {name: export_text(replace(STORED, plan=ON_GPUS), name) for name in TEXT_FORMATS}
    assert [name for name, text in texts.items() if "CUDA_VISIBLE_DEVICES" in text] == []
    assert "#SBATCH --gres=gpu:2\n" in texts["sbatch"]
    assert "torchrun --standalone --nproc-per-node=2" in texts["torchrun"]


def test_an_allocator_is_preloaded_by_its_name_alone():
    commands = plain_commands(PLANS["threads"])
    assert "LD_PRELOAD=libtcmalloc_minimal.so.4 " in commands["torchrun"]
    assert "-x LD_PRELOAD=libtcmalloc_minimal.so.4 " in commands["mpirun"]
    script = export_text(replace(STORED, plan=PLANS["threads"]), "shell")
    assert "libtcmalloc_minimal.so.4${LD_PRELOAD:+:$LD_PRELOAD}\n" in script


def test_module_looks_for_its_allocator_beside_files_whose_names_are_no_text():
    """The story: in a folder with such a name, its import ended with a UnicodeDecodeError."""
    text = export_text(replace(STORED, plan=PLANS["compiled"]), "python")
    assert 'b"libjemalloc" not in Path("/proc/self/maps").read_bytes()' in text
    assert "read_text" not in text.partition("torch.set_num_interop_threads")[2]


def test_every_format_is_in_the_help_by_each_of_its_names(ddlplan):
    """``slurm`` was taken, and only a page said so."""
    shown = re.findall(r"\w+", ddlplan.run("plans", "export", "--help").out)
    assert {JSON, *TEXT_FORMATS, "slurm"} <= {*shown}


def test_an_unknown_format_is_refused_with_those_there_are():
    assert find_format("slurm") == "sbatch"
    with pytest.raises(UsageError, match="one of json, mpirun, torchrun, sbatch, shell, python"):
        find_format("yaml")


@pytest.mark.long
def test_the_shell_script_starts_processes_that_sum_by_gloo_in_the_python_of_torchrun(place):
    for name in ("python", "python3"):  # of another environment
        (place / "slurm" / name).symlink_to("/bin/false")
    (place / "plan.sh").write_text(export_text(STORED, "shell"))
    (place / "train.py").write_text(SUM)
    run(place, "sh", "plan.sh", "train.py", "out", "--lr", "0.1 and more")
    first, second = reports(place)
    cores = first.pop("cores"), second.pop("cores")
    assert first == second
    if read_cpu().usable_cores >= 2 and read_cpu().may_pin:
        assert cores == tuple([core] for core in read_cpu().choose_cores(2))
    assert first["sum"] == 3.0
    assert first["threads"] == 1
    assert first["more"] == ["--lr", "0.1 and more"]
    assert first["PLAN_NODE_BATCH"] == "65"
    assert first["PLAN_MEMORY_FORMAT"] == "channels_last"
    assert first["MALLOC_MMAP_MAX_"] == "0"


def run_script_plan(place: Path, text_format: str, options: dict[str, bool]) -> dict:
    """Run the export of a script's plan with one thread; give what its process was."""
    (place / "train.py").write_text(VARIABLES)
    plan = Plan(strategy=STRATEGY, node_batch=8, options=options)
    name = script_name([sys.executable, "train.py", "out"])
    file = place / "plan"
    file.write_text(export_text(replace(STORED, use_case=name, plan=plan), text_format))
    file.chmod(0o755)
    run(
        place,
        *{"shell": ["sh"], "python": [sys.executable], "sbatch": ["sbatch"]}[text_format],
        "./plan",
    )
    (found,) = reports(place)
    return found


@pytest.mark.parametrize("text_format", ["shell", "python", "sbatch"])
def test_a_script_runs_on_as_many_cores_as_its_plan_has_threads(text_format, place):
    found = run_script_plan(place, text_format, {})
    assert found["OMP_NUM_THREADS"] == "1"
    cpu = read_cpu()
    expected = cpu.choose_cores(1) if cpu.may_pin else os.sched_getaffinity(0)
    assert found["cores"] == sorted(expected)


@pytest.mark.parametrize("text_format", ["shell", "python", "sbatch"])
def test_a_script_as_it_is_keeps_the_cores_that_it_has(text_format, place):
    found = run_script_plan(place, text_format, {"own_settings": True})
    assert found["cores"] == sorted(os.sched_getaffinity(0))


def test_a_script_runs_unpinned_where_there_is_no_python_to_pin_it(place, monkeypatch):
    (place / "slurm/sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(place / "slurm"))
    found = run_script_plan(place, "shell", {})
    assert found["cores"] == sorted(os.sched_getaffinity(0))


@pytest.mark.long
def test_the_module_sets_up_the_processes_of_the_torchrun_line(place):
    (place / "plan_settings.py").write_text(export_text(STORED, "python"))
    (place / "train.py").write_text(BY_MODULE)
    line = export_text(STORED, "torchrun").strip().replace("YOUR_SCRIPT.py", "train.py out")
    run(place, "bash", "-c", line)
    first, second = reports(place)
    assert (first["batch"], second["batch"]) == (33, 32)
    assert first["threads"] == second["threads"] == 1
    assert first["is_channels_last"]
    assert first["ddlplan"] == []
    if len(os.sched_getaffinity(0)) >= 2:
        assert len(first["cores"]) == len(second["cores"]) == 1
        assert first["cores"] != second["cores"]


def mpirun_line(script: str) -> str:
    line = export_text(STORED, "mpirun").strip().replace("YOUR_SCRIPT.py", script)
    if len(os.sched_getaffinity(0)) < 2:
        line = line.replace("mpirun", "mpirun --oversubscribe", 1)
    return line


def test_the_mpirun_line_gives_ranks_what_torchrun_would_give(place):
    (place / "train.py").write_text(VARIABLES)
    run(place, "sh", "-c", mpirun_line("train.py out 'a b'"))
    found = reports(place)
    assert [one["RANK"] for one in found] == [one["LOCAL_RANK"] for one in found] == ["0", "1"]
    for one in found:
        assert one["WORLD_SIZE"] == one["LOCAL_WORLD_SIZE"] == "2"
        assert (one["MASTER_ADDR"], one["MASTER_PORT"]) == ("127.0.0.1", "29500")
        assert one["OMP_NUM_THREADS"] == "1"
        assert one["MALLOC_ARENA_MAX"] == "1"
        assert one["more"] == ["a b"]


def test_a_second_job_of_the_mpirun_line_may_have_a_port_of_its_own(place, monkeypatch):
    """The story: all had port 29500, and a second one on the host died of that."""
    monkeypatch.setenv("MASTER_PORT", "29501")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    (place / "train.py").write_text(VARIABLES)
    words = shlex.split(mpirun_line("train.py out"))
    run(place, *words[words.index("sh") :])  # as mpirun starts it
    (found,) = reports(place)
    assert found["MASTER_PORT"] == "29501"
    assert "MASTER_PORT" not in " ".join(words[: words.index("sh")])


@pytest.mark.hosts
def test_ranks_of_the_mpirun_line_on_two_hosts_sum_by_gloo(place, testbed):
    bed = testbed(2)
    first, second = bed.hosts
    (place / "train.py").write_text(SUM.replace("LOCAL_RANK", "RANK"))
    login = shlex.quote(f"-F {bed.ssh_config}")
    more = f"--host {first.name},{second.name} --prtemca plm_ssh_args {login}"
    more += f" --prefix {sys.prefix} --wdir {place} -x PATH"
    line = mpirun_line("train.py out").replace("mpirun", f"mpirun {more}", 1)
    ended = first.run(["sh", "-c", line.replace("127.0.0.1", first.address)], timeout=GUARD_S)
    assert ended.returncode == 0, ended.stderr
    found = reports(place)
    assert [one["sum"] for one in found] == [3.0, 3.0]
    assert [one["host"] for one in found] == [first.name, second.name]
    assert bed.left_over() == set()


def test_the_batch_script_gives_srun_what_torchrun_would_give(place):
    (place / "plan.sbatch").write_text(export_text(STORED, "sbatch"))
    (place / "plan.sbatch").chmod(0o755)
    (place / "train.py").write_text(VARIABLES)
    run(place, "sbatch", "./plan.sbatch", "train.py", "out", "a b")
    found = reports(place)
    assert [one["RANK"] for one in found] == [one["LOCAL_RANK"] for one in found] == ["0", "1"]
    for one in found:
        assert one["WORLD_SIZE"] == one["LOCAL_WORLD_SIZE"] == "2"
        assert one["MASTER_ADDR"] == one["SLURM_JOB_NODELIST"]
        assert one["MASTER_PORT"] == "24711"
        assert one["OMP_NUM_THREADS"] == "1"
        assert one["PLAN_MICRO_BATCHES"] == "4"
        assert one["more"] == ["a b"]
    if len(os.sched_getaffinity(0)) >= 2:
        assert found[0]["cores"] != found[1]["cores"]


@pytest.mark.long
def test_the_batch_script_without_a_script_trains_by_ddlplan(place, tuned):
    ended = tuned.run("plans", "export", 1, "--format", "slurm")
    assert ended.code == 0, ended.err
    batch = tuned.folder / "plan.sbatch"
    batch.write_text(ended.out)
    batch.chmod(0o755)
    trained = run(tuned.folder, "sbatch", "./plan.sbatch")
    assert "epoch 1/1" in trained.stdout
    assert (tuned.folder / "runs/1/weights.safetensors").exists()


def test_a_format_is_chosen_on_the_command_line(tuned, import_for):
    document = tuned.data("plans", "export", 1)
    assert set(document["commands"]) == {"mpirun", "torchrun"}
    ended = tuned.run("plans", "export", 1, "--format", "torchrun")
    assert ended.out == document["commands"]["torchrun"] + "\n"
    made_up = tuned.run("plans", "export", import_for(is_generated=True), "--format", "torchrun")
    assert made_up.out == ended.out
    assert "the data of plan 2 were generated" in made_up.err
    as_json = tuned.data("plans", "export", 1, "--format", "slurm")
    assert as_json["format"] == "sbatch"
    assert as_json["text"].startswith("#!/bin/bash\n")
    refused = tuned.run("plans", "export", 1, "--format", "yaml")
    assert refused.code == 2
    assert len(refused.errors) == 1
