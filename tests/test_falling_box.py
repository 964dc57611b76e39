"""One consumer sees the same fall in every engine, and knows none of them."""

from collections.abc import Iterator

import falling_box
import numpy as np
import pytest
import warp as wp
from falling_box import GRAVITY, HALF_SIZE, START_HEIGHT, TIMESTEP, FallingBoxes

from scene_data import SceneDataFormat, SceneDataProvider

LIBRARIES = {"ovphysx": "ovphysx", "newton": "newton", "mujoco_warp": "mujoco_warp"}


@pytest.fixture(params=falling_box.ENGINES)
def boxes(request: pytest.FixtureRequest) -> Iterator[FallingBoxes]:
    library = LIBRARIES.get(request.param, "mujoco")
    pytest.importorskip(library, reason=f"{library!r} is not installed")
    boxes = falling_box.ENGINES[request.param]()
    yield boxes
    boxes.close()


def read_heights(provider: SceneDataProvider, mapping: wp.array | None) -> np.ndarray:
    poses = SceneDataFormat.Vec3_Quat()
    assert provider.get_transforms(poses, mapping, count=provider.num_envs)
    return poses.positions.numpy()[:, 2]


def test_a_box_falls_and_rests_where_physics_says(boxes: FallingBoxes):
    provider = SceneDataProvider(boxes.backend)
    mapping = provider.create_mapping([f"/World/envs/env_{env}/box" for env in range(provider.num_envs)])

    np.testing.assert_allclose(read_heights(provider, mapping), START_HEIGHT, atol=1e-6)
    steps = 160
    for step in range(1, steps + 1):
        boxes.step()
        if step % 40 == 0:
            # Half a step is what a first-order integrator is off by, in speed.
            time = step * TIMESTEP
            expected = START_HEIGHT - GRAVITY * time**2 / 2
            np.testing.assert_allclose(read_heights(provider, mapping), expected, atol=GRAVITY * time * TIMESTEP)
    for _ in range(1000):
        boxes.step()
    np.testing.assert_allclose(read_heights(provider, mapping), HALF_SIZE, atol=2e-3)
