"""The three engines behind one face, as a user's own loop holds them, for tests that say the same of each."""

import mujoco
import mujoco.batch
import numpy as np
import warp as wp

from scene_data.backends.mujoco import MujocoSceneDataBackend
from scene_data.backends.mujoco_batch import MujocoBatchSceneDataBackend


class HostRig:
    """The C engine."""

    num_envs = 1

    def __init__(self, model: mujoco.MjModel):
        self.model = model
        self.data = mujoco.MjData(model)
        self.backend = MujocoSceneDataBackend(model, self.data)

    def step(self) -> None:
        mujoco.mj_step(self.model, self.data)

    def forward(self) -> None:
        mujoco.mj_forward(self.model, self.data)

    def reset(self, env: int) -> None:
        mujoco.mj_resetData(self.model, self.data)

    def set(self, field: str, env: int, value: np.ndarray) -> None:
        getattr(self.data, field)[:] = value

    def get(self, field: str, env: int) -> np.ndarray:
        return getattr(self.data, field).copy()


class BatchRig:
    """The batch, two environments, persistent or not."""

    num_envs = 3

    def __init__(self, model: mujoco.MjModel, persistent: bool = False):
        self.model = model
        self.batch = mujoco.batch.Batch(model, self.num_envs, 2, persistent)
        self.backend = MujocoBatchSceneDataBackend(self.batch)

    def step(self) -> None:
        self.batch.step()

    def forward(self) -> None:
        self.batch.forward()

    def reset(self, env: int) -> None:
        self.batch.reset([env], stage=mujoco.mjtStage.mjSTAGE_NONE)

    def set(self, field: str, env: int, value: np.ndarray) -> None:
        self.batch.bind(field)[env] = value

    def get(self, field: str, env: int) -> np.ndarray:
        return self.batch.bind(field)[env].copy()


class WarpRig:
    """mujoco_warp, three environments on the CPU."""

    num_envs = 3

    def __init__(self, model: mujoco.MjModel, announces_writes: bool = False):
        import mujoco_warp as mjw

        from scene_data.backends.mujoco_warp import MujocoWarpSceneDataBackend

        self.mjw = mjw
        self.model = model
        with wp.ScopedDevice("cpu"):
            self.device_model = mjw.put_model(model)
            self.data = mjw.make_data(model, nworld=self.num_envs)
        self.backend = MujocoWarpSceneDataBackend(model, self.device_model, self.data, announces_writes)

    def step(self) -> None:
        with wp.ScopedDevice("cpu"):
            self.mjw.step(self.device_model, self.data)

    def forward(self) -> None:
        with wp.ScopedDevice("cpu"):
            self.mjw.forward(self.device_model, self.data)

    def reset(self, env: int) -> None:
        mask = wp.array(np.arange(self.num_envs) == env, dtype=bool, device="cpu")
        with wp.ScopedDevice("cpu"):
            self.mjw.reset_data(self.device_model, self.data, reset=mask)

    def set(self, field: str, env: int, value: np.ndarray) -> None:
        getattr(self.data, field).numpy()[env] = value

    def get(self, field: str, env: int) -> np.ndarray:
        return getattr(self.data, field).numpy()[env].astype(np.float64)


def full_state(rig) -> np.ndarray:
    """All that the next step of a host engine depends on."""
    if isinstance(rig, BatchRig):
        return rig.batch.state.copy()
    spec = mujoco.mjtState.mjSTATE_INTEGRATION
    state = np.zeros(mujoco.mj_stateSize(rig.model, spec))
    mujoco.mj_getState(rig.model, rig.data, state, spec)
    return state


def expected_poses(rig) -> dict[str, np.ndarray]:
    """What a fresh `mj_forward` of the present qpos and mocap poses gives, environment-major."""
    fields = ("xpos", "xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "flexvert_xpos")
    poses: dict[str, list[np.ndarray]] = {field: [] for field in fields}
    for env in range(rig.num_envs):
        fresh = mujoco.MjData(rig.model)
        for field in ("qpos", "mocap_pos", "mocap_quat"):
            getattr(fresh, field)[:] = rig.get(field, env)
        mujoco.mj_forward(rig.model, fresh)
        for field in fields:
            poses[field].append(getattr(fresh, field).copy())
    return {field: np.concatenate(values) for field, values in poses.items()}


def published_poses(backend) -> dict[str, np.ndarray]:
    """The same, read from a backend."""
    transforms, cameras, lights = backend.get_transforms(None), backend.get_camera_poses(), backend.get_light_poses()
    flexes = backend.describe_scene().point_ranges()
    batches = [batch for batch, ranges in backend.get_geometry_batches() if ranges.keys() <= flexes.keys()]
    empty = np.zeros((0, 3))
    return {
        "xpos": transforms.positions.numpy(),
        "xmat": transforms.orientations.numpy().reshape(-1, 9),
        "cam_xpos": cameras.positions.numpy() if cameras else empty,
        "cam_xmat": cameras.orientations.numpy().reshape(-1, 9) if cameras else np.zeros((0, 9)),
        "light_xpos": lights.positions.numpy() if lights else empty,
        "light_xdir": lights.directions.numpy() if lights else empty,
        "flexvert_xpos": np.concatenate([batch.points.numpy() for batch in batches]) if batches else empty,
    }


def assert_fresh(rig, tolerance: float = 1e-5) -> None:
    """The published poses are those of the present state."""
    published, expected = published_poses(rig.backend), expected_poses(rig)
    for field, values in expected.items():
        np.testing.assert_allclose(published[field], values, rtol=0, atol=tolerance, err_msg=field)
