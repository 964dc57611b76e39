"""Kept launches do what launches do, and pack their arguments once."""

import weakref

import numpy as np
import pytest
import warp as wp

from scene_data.formats import SceneDataFormat
from scene_data.launches import KeptLaunch

CPU = wp.get_device("cpu")


@wp.kernel(module="unique", enable_backward=False)
def _scale(factors: SceneDataFormat.Points, values: wp.array[wp.float32], offset: int, scaled: wp.array[wp.float32]):
    i = wp.tid()
    scaled[i] = factors.points[i][0] * values[i] + float(offset)


def factors_of(factor: float) -> SceneDataFormat.Points:
    struct = SceneDataFormat.Points()
    struct.points = wp.full(3, factor, dtype=wp.vec3, device=CPU)
    return struct


@pytest.fixture
def packed(monkeypatch) -> list:
    """The arguments that were packed since."""
    calls, launch = [], wp.launch

    def counted(*arguments, **options):
        calls.append(arguments)
        return launch(*arguments, **options)

    monkeypatch.setattr(wp, "launch", counted)
    return calls


def values_of(*values: float) -> wp.array:
    return wp.array(values, dtype=wp.float32, device=CPU)


def test_arguments_are_packed_once_and_what_they_contain_is_followed(packed):
    kept, factors, values, scaled = KeptLaunch(_scale, CPU), factors_of(2.0), values_of(1, 2, 3), values_of(0, 0, 0)
    kept.launch(3, [factors, values, 1], [scaled])
    np.testing.assert_array_equal(scaled.numpy(), [3, 5, 7])
    values.assign([4, 5, 6])
    factors.points.fill_(wp.vec3(10.0))
    kept.launch(3, [factors, values, 1], [scaled])
    np.testing.assert_array_equal(scaled.numpy(), [41, 51, 61])
    assert len(packed) == 1


def test_buffers_that_alternate_are_packed_once_each(packed):
    kept, scaled = KeptLaunch(_scale, CPU), values_of(0, 0, 0)
    slots = [(factors_of(factor), values_of(1, 2, 3)) for factor in (1.0, -1.0)]
    for _ in range(3):
        for sign, (factors, values) in zip((1, -1), slots, strict=True):
            kept.launch(3, [factors, values, 0], [scaled])
            np.testing.assert_array_equal(scaled.numpy(), [sign, 2 * sign, 3 * sign])
    assert len(packed) == 2


def test_other_arguments_and_other_sizes_are_taken_for_what_they_are():
    kept, factors, values = KeptLaunch(_scale, CPU), factors_of(1.0), values_of(1, 2, 3)
    for offset in range(9):
        scaled = values_of(0, 0, 0)
        kept.launch(3, [factors, values, offset], [scaled])
        np.testing.assert_array_equal(scaled.numpy(), [1 + offset, 2 + offset, 3 + offset])
    scaled.zero_()
    kept.launch(2, [factors, values, offset], [scaled])
    np.testing.assert_array_equal(scaled.numpy(), [1 + offset, 2 + offset, 0])


def test_what_was_packed_lives_on_but_only_for_a_few_sets():
    kept, factors = KeptLaunch(_scale, CPU), factors_of(1.0)
    arrays = [values_of(index, 0, 0) for index in range(9)]
    alive = [weakref.ref(array) for array in arrays]
    scaled = values_of(0, 0, 0)
    for array in arrays:
        kept.launch(3, [factors, array, 0], [scaled])
    del array, arrays
    # An array that was gone could leave its address, and what was packed for it, to another one.
    assert alive[-1]() is not None
    assert sum(each() is not None for each in alive) <= 4
