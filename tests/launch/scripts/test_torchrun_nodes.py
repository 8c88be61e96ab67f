"""Torchrun on several hosts: what it is told, and commands that cannot be told."""

from __future__ import annotations

import pytest

from launch.errors import ScriptError
from launch.scripts.torchrun_nodes import TorchrunNodes, check_torchrun

ADDED = "--nnodes 3 --node-rank 2 --master-addr 10.0.0.1 --master-port 4242"


@pytest.mark.parametrize(
    "start", ["torchrun", "/opt/bin/torchrun", "python -m torch.distributed.run"]
)
def test_torchrun_is_told_of_the_other_hosts_before_its_own_options(start):
    words = [*start.split(), "--nproc-per-node", "2", "train.py", "--nnodes-of-mine"]
    check_torchrun(words)
    nodes = TorchrunNodes(count=3, rank=2, master_address="10.0.0.1")
    told = " ".join(nodes.add_to(words, 4242))
    assert told == f"{start} {ADDED} --nproc-per-node 2 train.py --nnodes-of-mine"


def test_address_of_ipv6_is_in_brackets():
    nodes = TorchrunNodes(count=2, rank=0, master_address="fd00::1")
    assert "[fd00::1]" in nodes.add_to(["torchrun", "train.py"], 1)


@pytest.mark.parametrize(
    "option",
    [
        *("--standalone", "--nnodes=2", "--node_rank=0", "--rdzv-backend=c10d", "--master_port=1"),
        *("--nnode=2", "--node_r=0", "--master-a=node1", "--standal"),  # which torchrun takes, too
    ],
)
def test_torchrun_that_names_hosts_by_itself_is_refused(option):
    with pytest.raises(ScriptError, match="leave it out"):
        check_torchrun(["torchrun", "--nproc-per-node", "2", option, "train.py"])


@pytest.mark.parametrize("command", ["python train.py", "accelerate launch train.py", "mpirun x"])
def test_other_programs_are_refused_with_the_way_out(command):
    with pytest.raises(ScriptError, match="begin the command with torchrun"):
        check_torchrun(command.split())


def test_value_that_is_glued_to_an_option_hides_none_behind_it():
    with pytest.raises(ScriptError, match="leave it out"):
        check_torchrun(["torchrun", "-r3", "--standalone", "train.py"])


def test_options_behind_the_script_are_its_own():
    check_torchrun(["torchrun", "--nproc-per-node=2", "train.py", "--standalone"])
    check_torchrun(["torchrun", "-m", "my.module", "--nnodes", "2"])
    check_torchrun(["torchrun", "--nproc_per_nod", "2", "--", "train.py", "--nnodes", "2"])
