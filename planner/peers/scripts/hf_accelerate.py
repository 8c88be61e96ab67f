"""Training loop with Hugging Face Accelerate, on several CPU processes."""

from __future__ import annotations

from accelerate import Accelerator

from planner.peers.scripts._task import PeerTask, StepClock, parse


def main() -> None:
    """Train."""
    task = PeerTask(parse())
    accelerator = Accelerator(cpu=True)
    model = task.make_model()
    model, optimizer, loader = accelerator.prepare(
        model, task.case.optimizer(model.parameters()), task.make_loader(task.make_dataset())
    )
    clock = StepClock(
        task,
        processes=accelerator.num_processes,
        is_first=accelerator.is_main_process,
        waits_for=model if accelerator.num_processes > 1 else None,
    )
    for _ in clock.epochs():
        for batch in clock.timed(loader):
            optimizer.zero_grad()
            loss = task.loss(model, batch)
            accelerator.backward(loss)
            clock.note_backward()
            optimizer.step()
            clock.note_step(loss, task.case.size(batch))


if __name__ == "__main__":
    main()
