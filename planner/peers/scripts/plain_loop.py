"""Training loop in plain PyTorch: one process, all its threads."""

from __future__ import annotations

from planner.peers.scripts._task import PeerTask, StepClock, parse


def main() -> None:
    """Train."""
    task = PeerTask(parse())
    model = task.make_model()
    optimizer = task.case.optimizer(model.parameters())
    loader = task.make_loader(task.make_dataset())
    clock = StepClock(task, processes=1, is_first=True)
    for _ in clock.epochs():
        for batch in clock.timed(loader):
            optimizer.zero_grad()
            loss = task.loss(model, batch)
            loss.backward()
            clock.note_backward()
            optimizer.step()
            clock.note_step(loss, task.case.size(batch))


if __name__ == "__main__":
    main()
