"""The adapter to Omniverse RTX, on a stand-in for the libraries, which need a card that few machines have."""

import os
import sys
from importlib import import_module

import mujoco
import numpy as np
import pytest
from film_set import NUM_ENVS, XML, all_cameras
from rendering import Studio

pytest.importorskip("pxr", reason="usd-core is not installed")

from ovrtx_stand_in import Stage, installed
from pxr import UsdGeom

from scene_data import registry
from scene_data.errors import MissingDependencyError
from scene_data.renderers.render_core.backend import RenderConfiguration
from scene_data.renderers.render_core.camera import CameraDescriptor
from scene_data.renderers.render_core.layout import PlaneKind
from scene_data.renderers.render_core.status import RenderStatusCode

PLANES = tuple(
    PlaneKind(plane) for plane in ("rgb", "rgba", "rgb_hdr", "albedo", "normals", "depth", "distance_to_camera")
)


@pytest.fixture
def backend(monkeypatch):
    installed(monkeypatch)
    Stage.made.clear()
    return import_module("scene_data.renderers.ovrtx").OvrtxRenderBackend(warmup_steps=2)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML.format(option=""))


def states_of(model) -> list[mujoco.MjData]:
    states = [mujoco.MjData(model) for _ in range(NUM_ENVS)]
    for env, state in enumerate(states):
        state.qpos[:3] = 1.0 + env, 2.0, 3.0
        mujoco.mj_forward(model, state)
    return states


def cameras_of(model) -> list[CameraDescriptor]:
    chosen = all_cameras(model)
    return [
        CameraDescriptor(c.id, c.name, 8, 6, PLANES, NUM_ENVS, c.mount, c.intrinsics)
        for c in (chosen[name] for name in ("eye", "mounted eye", "off centre", "lanes"))
    ]


def test_each_camera_of_each_environment_is_seen_from_its_place(model, backend):
    states, cameras = states_of(model), cameras_of(model)
    studio = Studio(backend, model, cameras)
    frames = studio.shoot(states)
    places = {
        "eye": [state.camera("eye").xpos for state in states],
        "mounted eye": [state.camera("eye").xpos for state in states],
        "off centre": [(0, -3, 1)] * NUM_ENVS,
        "lanes": [(0.2 * env, -3, 1) for env in range(NUM_ENVS)],
    }
    for camera in cameras:
        for env, place in enumerate(places[camera.name]):
            colour = np.round(10 * np.array(place)).astype(int)
            for plane in PLANES[:5]:
                image = frames[camera.id, plane][env]
                assert image.shape == (6, 8, 4 if plane is PlaneKind.RGBA else 3)
                expected = colour % 256 if image.dtype == np.uint8 else colour
                np.testing.assert_array_equal(image[..., :3], np.broadcast_to(expected, image[..., :3].shape))
            for plane in PLANES[5:]:
                image = frames[camera.id, plane][env, ..., 0]
                assert np.isposinf(image[0, 0])
                np.testing.assert_allclose(image.ravel()[1:], place[2], rtol=1e-6)
    studio.close()
    assert Stage.made[-1].destroyed


def test_bodies_are_sent_by_their_paths(model, backend):
    studio = Studio(backend, model, cameras_of(model)[:1])
    states = states_of(model)
    studio.turn(states)
    sent = Stage.made[-1].values
    for env, state in enumerate(states):
        matrix = sent[f"/World/envs/env_{env}/rover"]
        np.testing.assert_allclose(matrix[3], [*state.body("rover").xpos, 1], atol=1e-6)
        np.testing.assert_allclose(matrix[:3, :3], state.body("rover").xmat.reshape(3, 3).T, atol=1e-6)
    studio.close()


def test_projections_are_written_with_the_scene(model, backend):
    studio = Studio(backend, model, cameras_of(model))
    off_centre = studio.cameras[2]
    stage = Stage.made[-1].usd
    camera = UsdGeom.Camera(stage.GetPrimAtPath(f"/World/envs/env_1/render_camera_{off_centre.id}"))
    # The window on a plane 1 m away, from USD's own idea of it.
    window = camera.GetCamera().frustum.GetWindow()
    low, high = window.GetMin(), window.GetMax()
    lens = off_centre.intrinsics
    np.testing.assert_allclose([low[0], high[0]], [-lens.cx / lens.fx, (8 - lens.cx) / lens.fx], rtol=1e-5)
    np.testing.assert_allclose([low[1], high[1]], [-(6 - lens.cy) / lens.fy, lens.cy / lens.fy], rtol=1e-5)
    path = stage.GetRootLayer().realPath
    studio.close()
    assert not os.path.exists(path)


def test_what_cannot_be_drawn_is_refused_and_leaves_nothing(model, backend):
    camera = CameraDescriptor(1, "front", 8, 6, (PlaneKind.SEGMENTATION,), NUM_ENVS)
    studio = Studio(backend, model, [camera])
    assert studio.ready.code is RenderStatusCode.BACKEND_FAILURE
    assert "does not make ['segmentation']" in studio.ready.message
    assert not Stage.made
    assert (
        backend.initialize(None, RenderConfiguration(1, 1, (camera,), "cpu")).code is RenderStatusCode.BACKEND_FAILURE
    )
    assert backend.resize(RenderConfiguration(1, 1, (camera,), "cpu")).code is RenderStatusCode.NOT_INITIALIZED


def test_it_is_registered_and_names_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ovrtx", None)
    monkeypatch.delitem(sys.modules, "scene_data.renderers.ovrtx", raising=False)
    assert "ovrtx" in registry.renderers.names()
    with pytest.raises(MissingDependencyError, match=r"pip install 'scene-data\[ovrtx\]'"):
        registry.Registry("scene_data.renderers", "render backend").get("ovrtx")
