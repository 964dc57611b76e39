"""PosedModel: a model of our own, put into the poses that a snapshot has, one environment after the other."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.appearance_state import NOTHING_SET, AppearanceState
from scene_data.scene import SceneDescription

from .mujoco_looks import MODEL_FIELDS, distinct_colors
from .render_core.camera import CameraDescriptor
from .render_core.camera_settings import POSITION_SET, QUATERNION_SET, CameraSetting
from .render_core.placement import camera_mount, rotation_matrices

if TYPE_CHECKING:
    from .render_core.snapshots import RenderSnapshot

__all__ = ["PosedModel", "SnapshotOnHost"]

# MuJoCo's own bound on what a healthy state holds (mjMAXVAL).
_MAX_VALUE = 1e10


class SnapshotOnHost:
    """A snapshot's arrays in the host's memory, by environment; on the CPU they are the snapshot's own.

    Attributes:
        body_positions, camera_positions, light_positions, light_directions, points: (N, count, 3) float32.
        body_rotations, camera_rotations: (N, count, 3, 3) float32.
        is_finite: Environments in which all of that is finite (N,) bool.
        camera_settings: What was set about cameras at run time, by camera id.
        extra_geometry: What is drawn beside the model, or None.
        appearance: What was set about the looks of environments.
        model_looks: What the engine's own model has for each environment, (N, count, ...) by field.
    """

    def __init__(self, snapshot: "RenderSnapshot"):
        def by_environment(array: Any, *shape: int) -> NDArray[np.float32]:
            values = np.zeros((0, *shape), np.float32) if array is None else array.numpy()
            return values.reshape(snapshot.num_envs, -1, *shape)

        bodies, cameras, lights = snapshot.transforms, snapshot.cameras, snapshot.lights
        snapshot.begin_read()
        self.body_positions = by_environment(bodies.positions, 3)
        self.body_rotations = by_environment(bodies.orientations, 3, 3)
        self.camera_positions = by_environment(cameras and cameras.positions, 3)
        self.camera_rotations = by_environment(cameras and cameras.orientations, 3, 3)
        self.light_positions = by_environment(lights and lights.positions, 3)
        self.light_directions = by_environment(lights and lights.directions, 3)
        self.points = by_environment(snapshot.points, 3)
        looks = {name: array.numpy() for name, array in snapshot.model_looks.items()}
        snapshot.end_read()
        is_finite = np.ones(snapshot.num_envs, bool)
        for values in vars(self).values():  # comparisons with NaN are false
            is_finite &= (np.abs(values) <= _MAX_VALUE).reshape(snapshot.num_envs, -1).all(axis=1)
        self.is_finite = is_finite
        self.camera_settings: Mapping[int, CameraSetting] = snapshot.camera_settings
        self.extra_geometry = snapshot.extra_geometry
        self.appearance = snapshot.appearance
        self.model_looks = looks


class PosedModel:
    """What MuJoCo's visualizer reads of a model and its state, and nobody else writes.

    Attributes:
        model: A copy of the user's model, which may change at any time.
        data: The state, with just the fields filled that are drawn.
    """

    def __init__(self, scene: SceneDescription):
        self.model: Any = copy.copy(scene.native("mujoco_model"))
        self.data: Any = mujoco.MjData(self.model)
        self._scene = scene
        self._initial = {field: getattr(self.model, field).copy() for field in MODEL_FIELDS.values()}
        self._is_dressed = False
        self._geom_rotations = rotation_matrices(self.model.geom_quat[:, [1, 2, 3, 0]])
        self._host: SnapshotOnHost | None = None
        self._env = 0

    def pose(self, host: SnapshotOnHost, env: int) -> None:
        """Put bodies, geoms, lights and flexes where an environment has them, and give them its looks."""
        model, data = self.model, self.data
        self._host, self._env = host, env
        positions, rotations = host.body_positions[env].astype(float), host.body_rotations[env].astype(float)
        data.xpos[:], data.xmat[:] = positions, rotations.reshape(-1, 9)
        if model.nskin:
            data.xquat[:] = _quaternions_wxyz(rotations)
        carrier = rotations[model.geom_bodyid]
        data.geom_xpos[:] = positions[model.geom_bodyid] + (carrier @ model.geom_pos[:, :, None])[..., 0]
        data.geom_xmat[:] = (carrier @ self._geom_rotations).reshape(-1, 9)
        data.light_xpos[:], data.light_xdir[:] = host.light_positions[env], host.light_directions[env]
        data.flexvert_xpos[:] = host.points[env]
        if host.appearance is not NOTHING_SET or host.model_looks or self._is_dressed:
            self._dress(host.appearance, host.model_looks, env)

    def _dress(self, appearance: AppearanceState, looks: Mapping[str, NDArray[Any]], env: int) -> None:
        """Give the model the looks of an environment, and lights that were moved their poses."""
        model, data = self.model, self.data
        for field in looks.keys() - self._initial.keys():
            self._initial[field] = getattr(model, field).copy()
        for field, initial in self._initial.items():
            getattr(model, field)[:] = looks[field][env] if field in looks else initial
        for table, field in MODEL_FIELDS.items():
            values, present = getattr(appearance, table), getattr(model, field)
            if values is not None and field == "mat_texid":
                present[:, mujoco.mjtTextureRole.mjTEXROLE_RGB] = values[env]
            elif values is not None:
                present[:] = distinct_colors(model, values[env]) if field == "geom_rgba" else values[env]
        # Without any light MuJoCo draws as if there were some from everywhere: what is put out stays, and is black.
        put_out = (self._initial["light_active"] != 0) & (model.light_active == 0)
        model.light_active[put_out] = 1
        for field in ("light_ambient", "light_diffuse", "light_specular"):
            getattr(model, field)[put_out] = 0.0
        for moved, place in (
            (appearance.light_positions, data.light_xpos),
            (appearance.light_directions, data.light_xdir),
        ):
            if moved is not None:
                place[:] = np.where(np.isnan(moved[env]), place, moved[env])
        self._is_dressed = appearance is not NOTHING_SET or bool(looks)

    def camera_pose(self, camera: CameraDescriptor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Position (3,) and rotation (3, 3) of a camera in the environment that was posed last."""
        host, env = self.present
        position, rotation = self._mounted_pose(camera)
        setting = host.camera_settings.get(camera.id)
        if setting is not None and setting.pose_set[env] & POSITION_SET:
            position = setting.positions[env].astype(float)
        if setting is not None and setting.pose_set[env] & QUATERNION_SET:
            rotation = rotation_matrices(setting.quaternions[env])
        return position, rotation

    @property
    def present(self) -> tuple[SnapshotOnHost, int]:
        """The snapshot and the environment that was posed last."""
        if self._host is None:
            raise RuntimeError("no environment was posed")
        return self._host, self._env

    def _mounted_pose(self, camera: CameraDescriptor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        index, body, positions, quaternions = camera_mount(camera, self._scene)
        host, env = self.present
        if index >= 0:
            return host.camera_positions[env, index].astype(float), host.camera_rotations[env, index].astype(float)
        position = positions[env % len(positions)]
        rotation = rotation_matrices(quaternions[env % len(quaternions)])
        carrier = host.body_rotations[env, body].astype(float)
        return host.body_positions[env, body] + carrier @ position, carrier @ rotation


def _quaternions_wxyz(rotations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unit quaternions (n, 4) of rotation matrices (n, 3, 3), in MuJoCo's order."""
    m = np.moveaxis(rotations, 0, -1)
    # Four times the outer product of the quaternion with itself: its row with the largest diagonal is the safest.
    w = np.stack([1 + m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]])
    x = np.stack([w[1], 1 + m[0, 0] - m[1, 1] - m[2, 2], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]])
    y = np.stack([w[2], x[2], 1 - m[0, 0] + m[1, 1] - m[2, 2], m[1, 2] + m[2, 1]])
    z = np.stack([w[3], x[3], y[3], 1 - m[0, 0] - m[1, 1] + m[2, 2]])
    outer = np.stack([w, x, y, z])
    best = np.argmax(np.einsum("iin->in", outer), axis=0)
    rows = outer[best, :, np.arange(len(best))]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
