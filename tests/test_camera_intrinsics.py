"""Intrinsics that differ among environments from the start, in every render backend."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from gl_drivers import needs_gl
from test_simulation import OPTIONS, TOP, XML, open_context

from scene_data.camera import Pinhole
from scene_data.registry import renderers
from scene_data.renderers import CameraDescriptor, PlaneKind

torch = pytest.importorskip("torch")

WIDTH, HEIGHT = TOP.width, TOP.height
LENS = Pinhole(fx=(20, 40, 30), fy=(25, 20, 30), cx=(10.2, 20.3, 16), cy=(12.1, 8.3, 14.6))
CAMERA = replace(TOP, data_types=("depth", "distance_to_camera", "segmentation"), intrinsics=LENS)

BACKENDS = [
    "mujoco_warp",
    pytest.param("mujoco_gl", marks=needs_gl),
    pytest.param("newton", marks=pytest.mark.skipif("newton" not in dict(renderers.installed()), reason="no newton")),
]


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def rays() -> tuple[np.ndarray, np.ndarray]:
    """Right and down of the rays through the pixel centres, 1 m in front, in each environment (3, H, W)."""
    fx, fy, cx, cy = (column[:, None, None] for column in LENS.rows(3).T)
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)
    return (u - cx) / fx, (v - cy) / fy


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_environment_projects_as_it_was_configured_to(model, backend):
    right, down = rays()
    slab = (np.abs(right * 2.4) < 0.3) & (np.abs(down * 2.4) < 0.3)  # its upper side, 2.4 m below the camera
    with open_context(model, num_envs=3, cameras=(CAMERA,), render_backend=backend) as sim:
        data = sim.cameras["top"].data
        seen = data["segmentation"][..., 0].numpy() == 1
        np.testing.assert_array_equal(seen, slab)
        depth = data["depth"][..., 0].numpy()
        np.testing.assert_allclose(depth[slab], 2.4, rtol=1e-4)
        distance = data["distance_to_camera"][..., 0].numpy()
        np.testing.assert_allclose(distance, depth * np.sqrt(right**2 + down**2 + 1), rtol=1e-4)
        fx, fy, cx, cy = LENS.rows(3)[1]
        np.testing.assert_allclose(data.info.intrinsic_matrices[1].numpy(), [[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_is_as_if_they_had_been_set_and_the_others_stay_when_some_are_set(model, backend):
    k = np.zeros((3, 3, 3))
    k[:, [0, 1, 0, 1], [0, 1, 2, 2]], k[:, 2, 2] = LENS.rows(3), 1.0
    plain = replace(CAMERA, intrinsics=None)
    with open_context(model, num_envs=3, cameras=(plain,), render_backend=backend) as sim:
        sim.cameras["top"].set_intrinsic_matrices(k)
        expected = {name: tensor.clone() for name, tensor in sim.cameras["top"].data.items()}
    with open_context(model, num_envs=3, cameras=(CAMERA,), render_backend=backend) as sim:
        camera = sim.cameras["top"]
        for name, tensor in camera.data.items():
            assert torch.equal(tensor, expected[name])
        camera.set_intrinsic_matrices(k[0], env_ids=[2])
        for name, tensor in camera.data.items():
            assert torch.equal(tensor[:2], expected[name][:2])
            assert not torch.equal(tensor[2], expected[name][2])


def test_another_number_of_environments_is_refused(model):
    with pytest.raises(ValueError, match="'top' has intrinsics for 3 environments, but there are 2"):
        open_context(model, num_envs=2, cameras=(CAMERA,))


def test_a_backend_refuses_it_too(model):
    from scene_data.backends.mjcf_scene import describe_model
    from scene_data.renderers.render_core.placement import check_scene

    camera = CameraDescriptor(1, "top", 8, 6, (PlaneKind.DEPTH,), 2, intrinsics=LENS, options=OPTIONS)
    with pytest.raises(ValueError, match="'top' has intrinsics for 3 environments, not for 2"):
        check_scene(renderers.get("mujoco_warp"), "mujoco_warp", describe_model(model, 2), [camera])
