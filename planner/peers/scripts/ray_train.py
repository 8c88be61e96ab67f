"""Ray Train: a TorchTrainer that starts the processes, each with Ray's own DDP and sampler."""

from __future__ import annotations

import time
from typing import Any

import ray
import ray.train
import ray.train.torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from planner.peers.scripts._task import PeerTask, StepClock, make_parser, parse


def train(arguments: dict[str, Any]) -> None:
    """Train, in a worker of Ray."""
    task = PeerTask(arguments)
    model = ray.train.torch.prepare_model(task.make_model())
    optimizer = task.case.optimizer(model.parameters())
    loader = ray.train.torch.prepare_data_loader(task.make_loader(task.make_dataset()))
    context = ray.train.get_context()
    processes = context.get_world_size()
    clock = StepClock(
        task,
        processes=processes,
        is_first=context.get_world_rank() == 0,
        waits_for=model if processes > 1 else None,
    )
    for epoch in clock.epochs():
        if processes > 1:
            loader.sampler.set_epoch(epoch)
        for batch in clock.timed(loader):
            optimizer.zero_grad()
            loss = task.loss(model, batch)
            loss.backward()
            clock.note_backward()
            optimizer.step()
            clock.note_step(loss, task.case.size(batch))


def main() -> None:
    """Start Ray, or join it, and train."""
    parser = make_parser()
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--cores", type=int, required=True, help="that Ray is told of on a host")
    parser.add_argument("--address", help="of the Ray that runs")
    parser.add_argument("--nodes", type=int, default=1, help="that have to have joined it")
    arguments = parse(parser)
    folder = arguments["reports"]
    if arguments["address"] is None:
        ray.init(
            num_cpus=arguments["cores"],
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(folder / "ray"),
        )
    else:
        join(arguments["address"], arguments["nodes"])
    trainer = TorchTrainer(
        train,
        train_loop_config=arguments,
        torch_config=TorchConfig(backend="gloo"),
        # Packed, one host would have as many as it has room for.
        scaling_config=ScalingConfig(
            num_workers=arguments["workers"], use_gpu=False, placement_strategy="SPREAD"
        ),
        run_config=RunConfig(storage_path=str(folder / "results")),
    )
    trainer.fit()


def join(address: str, nodes: int) -> None:
    """Join a Ray that is just being started, once all its nodes are there."""
    give_up = time.monotonic() + 120.0
    while True:
        try:
            if not ray.is_initialized():
                ray.init(address=address)
            if sum(node["Alive"] for node in ray.nodes()) >= nodes:
                return
        except ConnectionError:
            pass
        if time.monotonic() > give_up:
            raise TimeoutError(f"fewer than {nodes} nodes at {address}")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
