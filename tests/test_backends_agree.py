"""Renderers that share no line of code, ray tracers and OpenGL, show the same of models that others made."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from gl_drivers import needs_gl
from real_models import REAL_MODELS, load, model_id
from rendering import Frames, Studio

from scene_data.backends.mjcf_scene import describe_model
from scene_data.camera import ModelCamera, Pinhole, WorldPose
from scene_data.renderers.mujoco_gl import MujocoGlRenderBackend
from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.render_core.backend import RenderBackend
from scene_data.renderers.render_core.camera import CameraDescriptor
from scene_data.renderers.render_core.layout import PlaneKind

pytestmark = needs_gl

RGB, DEPTH, SEG = PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION
WIDTH, HEIGHT = 160, 120
SKIN = int(mujoco.mjtObj.mjOBJ_SKIN)

# Meshes and textures, tendons, a height field, cloth and other flexes, a skin. From the free view and from the first
# camera, colours differ by at most this much, of 255, averaged over the image: by edges, shadows, highlights and strong
# light, which docs/backends.md explains. The first camera of the kitchen sees a shadow that OpenGL does not draw.
COLOUR_LIMITS = {
    "aloha_pot/scene": (10, 21),
    "flex/multiflex": (6, 7),
    "hfield/hfield": (4,),
    "humanoid/humanoid": (5, 4),
    "adroit_hand/adroit_door": (4, 8),
    "adroit_hand/adroit_relocate": (4, 5),
    "fetch/pick_and_place": (3, 1),
    "hand/manipulate_block": (2,),
    "kitchen_assets/kitchen_env_model": (11, 39),
    "suite/quadruped": (6, 6),
    "suite/humanoid_CMU": (5, 5),
    "suite/dog": (7, 15),
    "kinova/jaco_arm": (1,),
}
ON_NEWTON = ("aloha_pot/scene", "adroit_hand/adroit_door", "hfield/hfield", "suite/quadruped", "kinova/jaco_arm")
MODELS = [path for path in REAL_MODELS if model_id(path) in COLOUR_LIMITS]


def views(model: mujoco.MjModel, from_above: bool = False) -> list[CameraDescriptor]:
    """MuJoCo's free view, or one from straight above, and the model's first camera."""
    free = describe_model(model).free_camera
    pose = WorldPose(tuple(free.position), tuple(free.quaternion))
    if from_above:
        pose = WorldPose.looking_at(free.lookat + free.distance * np.array([0.0, 0.0, 1.0]), free.lookat)
    lens = Pinhole.from_fovy(free.fovy, WIDTH, HEIGHT)
    cameras = [CameraDescriptor(1, "free", WIDTH, HEIGHT, (RGB, DEPTH, SEG), mount=pose, intrinsics=lens)]
    if model.ncam:
        cameras.append(CameraDescriptor(2, "first", WIDTH, HEIGHT, (RGB, DEPTH, SEG), mount=ModelCamera(0)))
    return cameras


def shoot(backend: RenderBackend, model: mujoco.MjModel, cameras: list[CameraDescriptor]) -> Frames:
    """The frames of a model in its first keyframe."""
    state = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, state, 0)
    mujoco.mj_forward(model, state)
    studio = Studio(backend, model, cameras)
    frames = studio.shoot([state])
    studio.close()
    return frames


def intersection_over_union(one: np.ndarray, other: np.ndarray) -> float:
    """Mean over the objects and the background in two lists of (id, type), each weighted by its size."""
    overlap, size = 0, 0
    for thing in np.unique(np.concatenate([one, other]), axis=0):
        here, there = (one == thing).all(axis=-1), (other == thing).all(axis=-1)
        overlap += int((here & there).sum())
        size += int((here | there).sum())
    return overlap / size


def check_geometry(camera: CameraDescriptor, traced: Frames, drawn: Frames) -> None:
    """Depth and objects agree."""
    objects = [frames[camera.id, SEG][0].reshape(-1, 2) for frames in (traced, drawn)]
    assert intersection_over_union(*objects) >= 0.98, camera.name
    depths = [frames[camera.id, DEPTH][0].reshape(-1) for frames in (traced, drawn)]
    hit = np.isfinite(depths[0]) & np.isfinite(depths[1])
    assert (np.isfinite(depths[0]) == np.isfinite(depths[1])).mean() > 0.995, camera.name
    error = np.abs(depths[0][hit] - depths[1][hit])
    assert np.median(error / depths[1][hit] * 2.0) < 1e-3, camera.name  # as if it were 2 m away


@pytest.mark.parametrize("path", MODELS, ids=model_id)
def test_the_ray_tracer_and_opengl_agree(path):
    model = load(path)
    # MuJoCo Warp does not draw a height field's sides.
    cameras = views(model, from_above=model_id(path) == "hfield/hfield")
    traced, drawn = shoot(MujocoWarpRenderBackend(), model, cameras), shoot(MujocoGlRenderBackend(), model, cameras)
    for camera, limit in zip(cameras, COLOUR_LIMITS[model_id(path)], strict=True):
        check_geometry(camera, traced, drawn)
        colours = [frames[camera.id, RGB][0].astype(int) for frames in (traced, drawn)]
        assert np.abs(colours[0] - colours[1]).mean() <= limit, camera.name
    assert ((drawn[1, SEG][0, ..., 1] == SKIN).mean() > 0.1) == bool(model.nskin)


@pytest.mark.parametrize("path", [path for path in MODELS if model_id(path) in ON_NEWTON], ids=model_id)
def test_newtons_ray_tracer_and_opengl_agree_on_geometry(path):
    newton = pytest.importorskip("scene_data.renderers.newton", exc_type=ImportError)
    model = load(path)
    cameras = [replace(camera, planes=(DEPTH, SEG)) for camera in views(model)]
    traced = shoot(newton.NewtonRenderBackend(), model, cameras)
    drawn = shoot(MujocoGlRenderBackend(), model, cameras)
    for camera in cameras:
        check_geometry(camera, traced, drawn)


def test_there_are_ten_models_with_all_that_matters():
    models = [load(path) for path in MODELS]
    assert len(models) >= 10
    for count in ("nmesh", "ntex", "nskin", "nhfield", "nflex", "ntendon"):
        assert any(getattr(model, count) for model in models), count
    assert any(2 in model.flex_dim for model in models)  # cloth
