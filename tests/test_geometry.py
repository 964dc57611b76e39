"""Points: views where they are native, one fused launch where they are interpolated or reordered."""

import gc
import weakref
from unittest.mock import Mock

import numpy as np
import pytest
import warp as wp
from publishing import PoseBackend

from scene_data import SceneDataFormat as Format
from scene_data import SceneDataProvider

NODES = np.arange(15, dtype=np.float32).reshape(5, 3)
INDICES = np.array([[0, 1, 2, 3], [4, 3, 2, 1], [0, 0, 0, 0]], dtype=np.int32)
WEIGHTS = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0]], dtype=np.float32)


@pytest.fixture
def launches(monkeypatch) -> Mock:
    counted = Mock(wraps=wp.launch)
    monkeypatch.setattr(wp, "launch", counted)
    return counted


@pytest.fixture
def backend() -> PoseBackend:
    """Native cloths `/a` and `/b`, and an interpolated `/skin` over the same nodes."""
    points = Format.Points()
    points.points = wp.array(NODES, dtype=wp.vec3f, device="cpu")
    weighted = Format.WeightedPoints()
    weighted.points = points.points
    weighted.indices = wp.array(INDICES, dtype=wp.int32, device="cpu")
    weighted.weights = wp.array(WEIGHTS, dtype=wp.float32, device="cpu")
    batches = [(points, {"/a": (0, 2), "/b": (2, 3)}), (weighted, {"/skin": (0, 2), "/tip": (2, 1)})]
    return PoseBackend(geometry_timestamp=0, get_geometry_batches=lambda output_format=Format.Points: batches)


def skin(nodes: np.ndarray) -> np.ndarray:
    return np.einsum("vn,vnd->vd", WEIGHTS, nodes[INDICES])


def move(backend: PoseBackend, nodes: np.ndarray) -> None:
    points = backend.get_geometry_batches()[0][0]
    points.points.assign(nodes)
    backend.mark_geometry_written()


def test_native_ranges_alias_the_engine_and_others_are_computed_once(backend, launches):
    provider = SceneDataProvider(backend)
    views = provider.get_geometry_points()
    assert set(views) == {"/a", "/b", "/skin", "/tip"}
    engine = backend.get_geometry_batches()[0][0].points
    assert views["/b"].ptr == engine.ptr + 2 * 12
    first = dict(views)
    for nodes, count in ((NODES, 1), (NODES + 1, 2), (NODES * 2, 3)):
        if count > 1:
            move(backend, nodes)
        for _ in range(2):
            views = provider.get_geometry_points()
        assert all(views[path] is first[path] for path in first)
        np.testing.assert_allclose(views["/b"].numpy(), nodes[2:])
        np.testing.assert_allclose(views["/skin"].numpy(), skin(nodes)[:2], rtol=1e-6)
        np.testing.assert_allclose(views["/tip"].numpy(), skin(nodes)[2:], rtol=1e-6)
        assert launches.call_count == count


def test_views_follow_a_swapped_array(backend):
    provider = SceneDataProvider(backend)
    provider.get_geometry_points()
    backend.get_geometry_batches()[0][0].points = wp.array(NODES + 5, dtype=wp.vec3f, device="cpu")
    backend.mark_geometry_written()
    np.testing.assert_array_equal(provider.get_geometry_points()["/a"].numpy(), NODES[:2] + 5)


def test_a_destination_is_filled_in_its_own_order_by_one_launch_per_batch(backend, launches):
    provider = SceneDataProvider(backend)
    output = wp.array(np.full((8, 3), -1.0), dtype=wp.vec3f, device="cpu")
    offsets = {"/b": 0, "/a": 3, "/skin": 6}
    for nodes, count in ((NODES, 2), (NODES + 1, 4)):
        if count > 2:
            move(backend, nodes)
        for same in (offsets, dict(offsets)):
            assert provider.get_geometry_points(output=output, offsets=same) is output
        expected = np.concatenate([nodes[2:], nodes[:2], [[-1] * 3], skin(nodes)[:2]])
        np.testing.assert_allclose(output.numpy(), expected, rtol=1e-6)
        assert launches.call_count == count
    assert provider.get_geometry_points(output=output, offsets={"/a": 5}) is output
    np.testing.assert_array_equal(output.numpy()[5:7], NODES[:2] + 1)
    assert launches.call_count == 5


def test_a_failed_write_is_tried_again(backend, monkeypatch):
    provider = SceneDataProvider(backend)
    output = wp.zeros(2, dtype=wp.vec3f, device="cpu")
    for arguments in ({}, {"output": output, "offsets": {"/a": 0}}):
        with monkeypatch.context() as broken:
            broken.setattr(wp, "launch", Mock(side_effect=RuntimeError("no device")))
            with pytest.raises(RuntimeError, match="no device"):
                provider.get_geometry_points(**arguments)
        provider.get_geometry_points(**arguments)
    np.testing.assert_array_equal(output.numpy(), NODES[:2])
    np.testing.assert_allclose(provider.get_geometry_points()["/skin"].numpy(), skin(NODES)[:2])


def test_a_destination_is_held_weakly(backend):
    provider = SceneDataProvider(backend)
    output = wp.zeros(2, dtype=wp.vec3f, device="cpu")
    provider.get_geometry_points(output=output, offsets={"/a": 0})
    gone = weakref.ref(output)
    del output
    gc.collect()
    assert gone() is None


def test_destinations_that_do_not_fit_are_refused(backend, launches):
    provider = SceneDataProvider(backend)
    output = wp.zeros(4, dtype=wp.vec3f, device="cpu")
    with pytest.raises(KeyError, match="/nobody"):
        provider.get_geometry_points(output=output, offsets={"/a": 0, "/nobody": 0})
    for offset in (2, -1):
        with pytest.raises(ValueError, match=f"'/b' has 3 points, which from {offset} on"):
            provider.get_geometry_points(output=output, offsets={"/b": offset})
    with pytest.raises(ValueError, match="given together"):
        provider.get_geometry_points(output=output)
    with pytest.raises(ValueError, match="given together"):
        provider.get_geometry_points(offsets={"/a": 0})
    assert not launches.called


def test_batches_that_cannot_be_read_are_refused(backend):
    provider = SceneDataProvider(backend)
    batches = backend.get_geometry_batches()
    output = wp.zeros(9, dtype=wp.vec3f, device="cpu")
    batches[0][1]["/b"] = (2, 4)
    with pytest.raises(ValueError, match="'/b' is said to end at point 6 of 5"):
        provider.get_geometry_points(output=output, offsets={"/b": 0})
    with pytest.raises(ValueError, match="'/b' is said to end at point 6 of 5"):
        provider.get_geometry_points()
    batches[:] = batches[1:]
    batches[0] = (Format.CapsuleEndpoints(), {"/rope": (0, 2)})
    with pytest.raises(ValueError, match="cannot be read from CapsuleEndpoints"):
        provider.get_geometry_points(output=output, offsets={"/rope": 0})
    with pytest.raises(ValueError, match="cannot be read from CapsuleEndpoints"):
        provider.get_geometry_points()


def test_without_geometry_there_are_no_views():
    assert SceneDataProvider(PoseBackend()).get_geometry_points() == {}
