"""Two convolutions for MNIST in Keras, with the digits in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from planner.peers.scripts._task import PeerTask

_CLASSES = 10
_LAYERS = tf.keras.layers


def make_model() -> Any:
    """Make the network of the use case; its last layer gives what is in front of the softmax."""
    return tf.keras.Sequential(
        [
            _LAYERS.Input((28, 28, 1)),
            _LAYERS.Conv2D(20, 5, activation="relu"),
            _LAYERS.MaxPooling2D(2),
            _LAYERS.Conv2D(50, 5, activation="relu"),
            _LAYERS.MaxPooling2D(2),
            _LAYERS.Flatten(),
            _LAYERS.Dense(500, activation="relu"),
            _LAYERS.Dense(_CLASSES),
        ]
    )


def make_optimizer() -> Any:
    """Make the optimizer of the use case."""
    return tf.keras.optimizers.SGD(0.01)


def make_batches(task: PeerTask, global_batch: int) -> Any:
    """Give batches of digits without end."""
    dataset = task.make_dataset()
    samples = [dataset[number] for number in range(len(dataset))]  # type: ignore[arg-type]
    images = np.stack([np.asarray(image).transpose(1, 2, 0) for image, _ in samples])
    targets = np.array([int(target) for _, target in samples])
    return (
        tf.data.Dataset.from_tensor_slices((images, targets))
        .shuffle(len(images), seed=0)
        .repeat()
        .batch(global_batch, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
