"""TensorFlow's MultiWorkerMirroredStrategy with a loop of its own, as in TensorFlow's guide.

TF_CONFIG says which processes there are; without it this is the only one.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from planner.peers.scripts._task import PeerTask, StepClock, make_parser, parse

_STANDS_STILL_MS = 3_600_000


def main() -> None:
    """Train."""
    parser = make_parser()
    parser.add_argument("--threads", type=int, help="of this process; TensorFlow's choice else")
    arguments = parse(parser)
    task = PeerTask(arguments)
    # Only now: PyTorch and torchvision that are loaded after TensorFlow crash (2.14 and 2.21).
    import tensorflow as tf

    if arguments["threads"] is not None:
        tf.config.threading.set_intra_op_parallelism_threads(arguments["threads"])
    tf.keras.utils.set_random_seed(arguments["seed"])
    allow_standing_still()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index, processes = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
    keras = import_module(f"planner.peers.scripts.keras_{arguments['use_case']}")
    global_batch = task.batch_size * processes
    with strategy.scope():
        model, optimizer = keras.make_model(), keras.make_optimizer()
        compute_loss = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )
    batches = keras.make_batches(task, global_batch)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    shares = strategy.experimental_distribute_dataset(batches.with_options(options))

    def step(inputs: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = compute_loss(targets, model(inputs, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train(share: Any) -> Any:
        losses = strategy.run(step, args=share)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    clock = StepClock(task, processes=processes, is_first=index == 0)
    for share in clock.timed(shares):
        loss = train(share)
        clock.note_step(loss, task.batch_size)


def allow_standing_still() -> None:
    """Let the processes stand still while others have their turn: after 10 s they would be lost.

    TensorFlow has no public setting for that.
    """
    from tensorflow.python.eager import context

    here = context.context()
    here.configure_coordination_service = partial(
        here.configure_coordination_service, heartbeat_timeout_in_ms=_STANDS_STILL_MS
    )


if __name__ == "__main__":
    main()
