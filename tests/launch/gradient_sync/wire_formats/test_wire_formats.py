"""Every wire format says the same to all who read a message, and loses nothing for good."""

from __future__ import annotations

import numpy as np
import pytest

from launch.gradient_sync.wire_formats import load_wire_format, wire_format_names
from launch.gradient_sync.wire_formats.bf16 import from_bfloat16, to_bfloat16
from launch.gradient_sync.wire_formats.int8 import BLOCK

LOSSY = [name for name in wire_format_names() if not load_wire_format(name).is_exact]
SIZES = [0, 1, 99, 101, BLOCK, BLOCK + 1, 2**16 + 3, 200_000]


def gradients(size: int, seed: int = 0) -> np.ndarray:
    """Layers of very different magnitude beside one another, as in a bucket."""
    random = np.random.default_rng(seed)
    layers = np.repeat(10.0 ** -np.arange(1, 9), -(-size // 8))[:size]
    return (random.standard_normal(size) * layers).astype(np.float32)


def read(name: str, message: np.ndarray, size: int) -> np.ndarray:
    values = np.full(size, 7.0, np.float32)
    load_wire_format(name).replace(message, values)
    return values


@pytest.mark.parametrize("name", wire_format_names())
def test_a_message_has_the_size_that_is_expected_of_it(name):
    wire_format = load_wire_format(name)
    for size in SIZES:
        message = wire_format.encode(gradients(size), np.zeros(size, np.float32))
        assert message.nbytes == wire_format.num_bytes(size) == wire_format.size_of(gradients(size))


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("size", SIZES)
def test_what_a_message_says_and_its_error_are_the_values(name, size):
    wire_format = load_wire_format(name)
    values, errors = gradients(size), gradients(size, seed=1) / 100
    wanted = values + errors
    message = wire_format.encode(values, errors)
    assert np.array_equal(values, gradients(size))
    assert np.allclose(read(name, message, size) + errors, wanted, rtol=1e-6, atol=1e-12)
    added = values.copy()
    wire_format.add(message, added)
    assert np.array_equal(added, values + read(name, message, size))


@pytest.mark.parametrize("name", LOSSY)
def test_over_many_steps_the_messages_say_the_whole(name):
    wire_format = load_wire_format(name)
    size = 5000
    errors, said, wanted = np.zeros(size, np.float32), np.zeros(size), np.zeros(size)
    for step in range(300):
        values = gradients(size, seed=step)
        wanted += values
        said += read(name, wire_format.encode(values, errors), size)
    assert np.allclose(said + errors, wanted, atol=1e-5)


def test_eight_bits_are_at_most_half_a_step_of_their_block_off():
    values = gradients(20_000)
    errors = np.zeros_like(values)
    load_wire_format("int8").encode(values, errors)
    for low in range(0, len(values), BLOCK):
        block = slice(low, low + BLOCK)
        step = np.abs(values[block]).max() / 127
        assert np.abs(errors[block]).max() <= step / 2 * 1.001


@pytest.mark.parametrize("size", [100, 5000, 300_000])
@pytest.mark.parametrize("values_of", [gradients, lambda size: np.round(gradients(size), 1)])
def test_the_largest_are_written_whatever_a_sample_says(size, values_of):
    values = values_of(size)
    values[::7] = 0.0
    values[:: max(1, size // 4096)] *= 1e-3  # what the sample sees
    errors = np.zeros_like(values)
    message = load_wire_format("top1").encode(values, errors)
    written = read("top1", message, size) != 0
    assert written.sum() <= size // 100
    assert np.abs(errors).max() <= np.abs(values[written]).min(initial=np.inf)
    assert np.array_equal(np.where(written, 0.0, values), errors)


def test_zeros_are_written_as_zeros():
    for name in LOSSY:
        zeros = np.zeros(5000, np.float32)
        assert not read(name, load_wire_format(name).encode(zeros, zeros.copy()), 5000).any()


def test_numbers_too_small_for_a_scale_wait():
    values, errors = np.full(BLOCK, 1e-37, np.float32), np.zeros(BLOCK, np.float32)
    assert not read("int8", load_wire_format("int8").encode(values, errors), BLOCK).any()
    assert np.array_equal(errors, values)


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 70_000])
def test_a_value_that_is_not_finite_arrives_and_leaves_no_error(name, bad, place):
    values, errors = gradients(70_001), np.zeros(70_001, np.float32)
    values[place] = bad
    message = load_wire_format(name).encode(values, errors)
    assert not np.isfinite(read(name, message, len(values))[place])
    assert np.isfinite(errors).all()


def test_more_infinite_values_than_are_written_leave_no_error_either():
    errors = np.zeros(1000, np.float32)
    load_wire_format("top1").encode(np.full(1000, np.nan, np.float32), errors)
    assert np.isfinite(errors).all()


@pytest.mark.parametrize("name", LOSSY)
def test_double_precision_is_written_too(name):
    values, errors = gradients(3000).astype(np.float64), np.zeros(3000, np.float32)
    message = load_wire_format(name).encode(values, errors)
    said = np.zeros(3000)
    load_wire_format(name).add(message, said)
    assert np.allclose(said + errors, values, rtol=1e-6, atol=1e-12)


def test_bfloat16_rounds_to_the_nearest_and_ties_to_even():
    ties = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], np.float32)
    assert from_bfloat16(to_bfloat16(ties)).tolist() == [1.0, 1 + 2**-6, 1 + 2**-7]
