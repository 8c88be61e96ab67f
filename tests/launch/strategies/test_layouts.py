"""Which ways to part the cores are worth trying."""

from __future__ import annotations

import pytest

from launch.strategies._base import layouts


@pytest.mark.parametrize("cores", [2, 3, 7, 47, 64, 96])
def test_every_layout_fits_and_uses_most_or_half_of_the_cores(cores):
    for parts, threads in layouts(cores, at_least=1):
        assert parts * threads <= cores
        assert parts * threads >= 0.9 * cores or parts * threads == cores // 2


@pytest.mark.parametrize("cores", [7, 47])
def test_number_of_cores_without_divisors_has_a_middle_way(cores):
    parts = {parts for parts, _ in layouts(cores, at_least=2)}
    assert parts & set(range(2, cores // 2 + 1))


def test_layouts_with_all_cores_come_first():
    assert layouts(4, at_least=1)[:3] == [(1, 4), (2, 2), (4, 1)]
