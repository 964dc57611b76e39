"""Where viewers put instances: on their bodies, and what belongs to the world itself where it stands."""

import numpy as np
import pytest
import warp as wp

newton = pytest.importorskip("newton", reason="newton is not installed")

from scene_data import SceneDataProvider  # noqa: E402
from scene_data.backends import NewtonSceneDataBackend  # noqa: E402
from scene_data.scene import ShapeType  # noqa: E402
from scene_data.visualizers.instance_poses import InstancePoses  # noqa: E402
from scene_data.visualizers.instancing import instance_groups  # noqa: E402

NUM_ENVS = 3
POST, BALL = (0.5, -1.0, 0.25), (0.0, 0.0, 2.0)


def newton_world(has_ball: bool) -> newton.ModelBuilder:
    """A post that stands in the world itself, and perhaps a ball."""
    world = newton.ModelBuilder()
    world.add_shape_box(-1, xform=wp.transform(POST, wp.quat_identity()), hx=0.1, hy=0.1, hz=0.25)
    if has_ball:
        ball = world.add_body(xform=wp.transform(BALL, wp.quat_identity()))
        world.add_shape_sphere(ball, radius=0.1)
    return world


@pytest.mark.parametrize("has_ball", [True, False])
def test_shapes_of_the_world_stand_still_in_every_environment(has_ball):
    builder = newton.ModelBuilder()
    builder.replicate(newton_world(has_ball), NUM_ENVS)
    model = builder.finalize(device="cpu")
    state = model.state()
    provider = SceneDataProvider(NewtonSceneDataBackend(model, state))
    scene = provider.backend.describe_scene()
    groups, envs = instance_groups(scene, endless=5.0), np.arange(NUM_ENVS)
    poses = InstancePoses(provider, scene, [group.instances for group in groups], [envs] * len(groups), envs)
    offsets = np.array([(10.0 * env, 0.0, 0.0) for env in envs])
    poses.set_offsets(offsets)
    if has_ball:
        moved = state.body_q.numpy()
        moved[:, 2] = 7.0, 8.0, 9.0
        state.body_q.assign(moved)
    placed = poses.read()
    assert placed is not None
    for group, start, end in zip(groups, poses.starts, poses.starts[1:], strict=False):
        is_post = group.shape.type is ShapeType.BOX
        assert group.is_static == is_post
        expected = np.array([POST] * NUM_ENVS if is_post else [(0.0, 0.0, height) for height in (7.0, 8.0, 9.0)])
        np.testing.assert_allclose(placed.positions[start:end], expected + offsets, atol=1e-6)
        np.testing.assert_array_equal(placed.wxyz[start:end], [(1.0, 0.0, 0.0, 0.0)] * NUM_ENVS)
    again = poses.read()  # Newton's states are published anew at every read
    assert again is None or not again.has_moved.any()
