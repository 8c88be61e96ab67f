"""`ddlplan launch --hosts FILE -- torchrun ...`: one training, on each host with its own plan."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.plan import Plan
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan, utc_now
from planner.scripts.naming import script_name
from planner.store import Store
from probes.timing import Interval

TRAIN = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist

steps, size = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
pathlib.Path(f"pid{rank}").write_text(str(os.getpid()))

def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

def train_by_hand(model, batches):
    for batch in batches:
        grads = torch.autograd.grad(model(batch).square().mean(), list(model.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(model.parameters(), grads):
                parameter -= 0.1 * grad

def make():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4)

shown = torch.randn(40, world * size, 8, generator=torch.Generator().manual_seed(1))
own = shown[:, rank * size : (rank + 1) * size]
model = make()
train(torch.nn.parallel.DistributedDataParallel(model), (own[n % 40] for n in range(steps)))
alone = make()
train_by_hand(alone, (shown[n % 40] for n in range(steps)))
torch.testing.assert_close(model.weight, alone.weight)
every = [torch.empty_like(model.weight) for _ in range(world)]
dist.all_gather(every, model.weight.detach())
assert all(torch.equal(one, every[0]) for one in every)
threads = torch.get_num_threads()
line = f"rank {rank} of {world} with {threads} threads: equal, {os.uname().nodename}\\n"
os.write(1, line.encode())
# PyTorch may end a rank that leaves while others are still in a collective: SIGABRT, "terminate
# called without an active exception". Of plain torchrun's runs it did so in 7 of 36.
dist.barrier()
dist.destroy_process_group()
"""
COMMAND = (
    *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "{processes}"),
    *("train.py",),
)
ENDLESS = """
import os, pathlib, time
pathlib.Path(f"pid{os.environ['RANK']}").write_text(str(os.getpid()))
time.sleep(1000)
"""
"""Ranks that load no torch, which takes seconds, and none of which ends because another one has."""

PART = "launch.scripts.host_part"
BATCH = 16


@pytest.fixture
def bed(ddlplan: Any, testbed: Any):
    """Two hosts, of one core and of two, and a script."""
    bed = testbed(2, cores=["0", "0-1"])
    bed.write_host_file(ddlplan.folder / "hosts")
    (ddlplan.folder / "train.py").write_text(TRAIN)
    yield bed
    assert bed.left_over() == set()


def save_plans(folder: Path, bed: Any, command: tuple[str, ...]) -> None:
    code = "from probes.node import probe; n = probe(quick=True); print(n.node, n.fingerprint())"
    with Store.open(str(folder / "planner.db")) as store:
        for processes, host in enumerate(bed.hosts, 1):
            found = host.run([sys.executable, "-c", code])
            node, fingerprint = found.stdout.split()
            rate = 100.0 * processes
            store.plans.save(
                StoredPlan(
                    use_case=script_name(command),
                    node=node,
                    fingerprint=fingerprint,
                    plan=Plan(
                        strategy="script",
                        processes=processes,
                        node_batch=processes * BATCH,
                        options={"batch": BATCH, "wait_policy": "passive"},
                    ),
                    throughput_samples_per_s=Interval(median=rate, low=rate, high=rate, count=9),
                    speedup=None,
                    baseline=None,
                    peak_memory_bytes=None,
                    created_at=utc_now(),
                    software=current_software(),
                )
            )


def words(bed: Any, command: tuple[str, ...], *options: str) -> list[str]:
    hosts = ("--hosts", "hosts", "--ssh-config", str(bed.ssh_config))
    return ["launch", *hosts, *options, "--", *command]


def test_processes_of_unequal_hosts_train_as_one_with_the_whole_batch(ddlplan: Any, bed: Any):
    """And not at all once the script is gone from a host."""
    command = (*COMMAND, "60", "{batch}")
    save_plans(ddlplan.folder, bed, command)
    dry = ddlplan.run(*words(bed, command, "--dry-run", "--json"))
    assert dry.code == 0, dry.err
    first, second = dry.document["data"]["hosts"]
    assert "--nproc-per-node 1 train.py 60 16" in " ".join(first["command"])
    assert "--nproc-per-node 2 train.py 60 16" in " ".join(second["command"])
    at = first["command"].index("--nnodes")
    assert first["command"][at : at + 4] == ["--nnodes", "2", "--node-rank", "0"]
    assert (first["cores"], second["cores"]) == ([0], [0, 1])
    assert first["environment"]["OMP_WAIT_POLICY"] == "PASSIVE"
    assert first["environment"]["GLOO_SOCKET_IFNAME"] not in ("", "lo")
    assert not list(ddlplan.folder.glob("pid*"))

    ended = ddlplan.run(*words(bed, command, "--json"))
    assert ended.code == 0, ended.err
    said = sorted(line for line in ended.err.splitlines() if line.startswith("rank "))
    assert said == [
        f"rank {rank} of 3 with 1 threads: equal, {host}"
        for rank, host in enumerate(("node1", "node2", "node2"))
    ]
    data = ended.document["data"]
    assert data["bound_samples_per_s"] == pytest.approx(300.0)
    assert data["throughput_samples_per_s"] > 0
    (training,) = ddlplan.data("runs", "list")
    assert training["state"] == "done"
    assert [host["host"] for host in training["hosts"]] == ["node1", "node2"]
    assert training["steps"] == 60

    (ddlplan.folder / "train.py").unlink()
    error = ddlplan.run(*words(bed, command)).refusal()
    assert "no file 'train.py'" in error
    assert "host node" in error
    assert ddlplan.data("runs", "list") == [training]


def test_end_of_any_process_ends_all_of_them_on_all_hosts(ddlplan: Any, bed: Any):
    command = (*COMMAND, "{batch}")
    (ddlplan.folder / "train.py").write_text(ENDLESS)
    save_plans(ddlplan.folder, bed, command)

    def begun() -> list[Path]:
        """Give the files of ranks, but for those that are made and not written yet."""
        return [file for file in ddlplan.folder.glob("pid*") if file.read_text()]

    def launched() -> Any:
        for file in ddlplan.folder.glob("pid*"):
            file.unlink()
        process = ddlplan.start(*words(bed, command))
        ddlplan.wait_until(lambda: len(begun()) == 3 or process.poll() is not None, "three ranks")
        assert process.poll() is None, process.communicate()[1]
        return process

    process = launched()
    os.kill(int((ddlplan.folder / "pid2").read_text()), signal.SIGKILL)
    ended = ddlplan.end(process)
    assert ended.code == 1, ended.err
    assert any("the script has ended on node2" in line for line in ended.errors)
    assert bed.left_over() == set()

    process = launched()
    lines = bed.hosts[1].command_lines().items()
    (part,) = [pid for pid, words in lines if PART in words and words[0] == sys.executable]
    os.kill(part, signal.SIGKILL)
    ended = ddlplan.end(process)
    assert ended.code == 1, ended.err
    assert bed.left_over() == set()

    process = launched()
    process.send_signal(signal.SIGINT)
    ended = ddlplan.end(process)
    assert ended.code == 130, ended.err
    assert bed.left_over() == set()

    process = launched()
    process.kill()
    process.communicate()
    assert bed.left_over() == set()
    states = [training["state"] for training in ddlplan.data("runs", "list")]
    assert sorted(states) == ["cancelled", "failed", "failed", "interrupted"]
