"""AlexNet of torchvision in Keras, with its photos read by TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from launch.data.images.dataset import (
    CROP_SIDE,
    MEAN,
    RESIZE_SIDE,
    STD,
    PhotoDataset,
)
from planner.peers.scripts._task import PeerTask

_CLASSES = 3
_LAYERS = tf.keras.layers
_INIT = "he_uniform"


def make_model() -> Any:
    """Make AlexNet with the weights' scale of the use case."""

    def convolution(filters: int, side: int, stride: int = 1, padding: int = 0) -> list[Any]:
        layer = _LAYERS.Conv2D(
            filters, side, strides=stride, activation="relu", kernel_initializer=_INIT
        )
        return [*([_LAYERS.ZeroPadding2D(padding)] if padding else []), layer]

    def pool() -> Any:
        return _LAYERS.MaxPooling2D(3, strides=2)

    def dense(units: int, activation: str | None = "relu") -> Any:
        return _LAYERS.Dense(units, activation=activation, kernel_initializer=_INIT)

    return tf.keras.Sequential(
        [
            _LAYERS.Input((CROP_SIDE, CROP_SIDE, 3)),
            *convolution(64, 11, stride=4, padding=2),
            pool(),
            *convolution(192, 5, padding=2),
            pool(),
            *convolution(384, 3, padding=1),
            *convolution(256, 3, padding=1),
            *convolution(256, 3, padding=1),
            pool(),
            _LAYERS.Flatten(),
            _LAYERS.Dropout(0.5),
            dense(4096),
            _LAYERS.Dropout(0.5),
            dense(4096),
            dense(_CLASSES, activation=None),
        ]
    )


def make_optimizer() -> Any:
    """Make the optimizer of the use case."""
    return tf.keras.optimizers.SGD(0.001, momentum=0.9)


def make_batches(task: PeerTask, global_batch: int) -> Any:
    """Give batches of photos without end."""
    photos = task.make_dataset()
    assert isinstance(photos, PhotoDataset)
    files = [str(photos.folder / name) for name, _ in photos.photos]
    targets = [label for _, label in photos.photos]

    def read(file: Any, target: Any) -> tuple[Any, Any]:
        photo = tf.io.decode_image(tf.io.read_file(file), channels=3, expand_animations=False)
        size = tf.cast(tf.shape(photo)[:2], tf.float32)
        scaled = tf.cast(tf.round(size * (RESIZE_SIDE / tf.reduce_min(size))), tf.int32)
        photo = tf.image.resize(photo, scaled)
        photo = tf.image.resize_with_crop_or_pad(photo, CROP_SIDE, CROP_SIDE)
        photo = tf.image.random_flip_left_right(photo)
        return (photo / 255.0 - tf.constant(MEAN)) / tf.constant(STD), target

    return (
        tf.data.Dataset.from_tensor_slices((files, targets))
        .shuffle(len(files), seed=0)
        .repeat()
        .map(read, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(global_batch, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
