"""What render backends are tested with: states as snapshots, and turns without a render thread."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import warp as wp

from scene_data import SceneDataBackend, SceneDataProvider
from scene_data import SceneDataFormat as Format
from scene_data.backends.mjcf_scene import describe_model
from scene_data.renderers.render_core.backend import RenderBackend, RenderConfiguration
from scene_data.renderers.render_core.camera import CameraDescriptor
from scene_data.renderers.render_core.demand import RenderPlan
from scene_data.renderers.render_core.frames import FrameBoundary
from scene_data.renderers.render_core.layout import PlaneKind
from scene_data.renderers.render_core.snapshots import RenderSnapshot, SnapshotPool
from scene_data.renderers.render_core.status import RenderStatus

Frames = dict[tuple[int, PlaneKind], np.ndarray]


class StateBackend(SimpleNamespace, SceneDataBackend):
    """Publishes whatever some `MjData`s hold, environment by environment, without a look at it."""

    def __init__(self, model: mujoco.MjModel, states: Sequence[mujoco.MjData]):
        super().__init__(num_envs=len(states), transform_count=len(states) * model.nbody)

        def stack(data_format: Any, *fields: str) -> Any:
            data = data_format()
            for (name, variable), field in zip(data_format.vars.items(), fields, strict=True):
                dtype = variable.type.dtype
                values = np.stack([getattr(state, field) for state in states]).reshape(-1, *dtype._shape_)
                setattr(data, name, wp.array(values, dtype=dtype, device="cpu"))
            return data

        self.transforms = stack(Format.Vec3d_Matrix33d, "xpos", "xmat")
        self.cameras = stack(Format.Vec3d_Matrix33d, "cam_xpos", "cam_xmat") if model.ncam else None
        self.lights = stack(Format.Vec3d_Direction, "light_xpos", "light_xdir") if model.nlight else None
        self.points = stack(Format.Points, "flexvert_xpos") if model.nflexvert else None

    def get_camera_poses(self) -> Any:
        return self.cameras

    def get_light_poses(self) -> Any:
        return self.lights

    def get_geometry_batches(self, output_format: Any = Format.Points) -> list[Any]:
        return [] if self.points is None else [(self.points, {"/points": (0, self.points.points.shape[0])})]


def snapshot_of(model: mujoco.MjModel, states: Sequence[mujoco.MjData], simulation_time_ns: int = 0) -> RenderSnapshot:
    """A snapshot of these states."""
    provider, pool = SceneDataProvider(StateBackend(model, states)), SnapshotPool()
    pool.activate(provider, 1)
    snapshot = pool.acquire(provider, 1, simulation_time_ns).snapshot
    assert snapshot is not None
    return snapshot


class Studio:
    """A render backend with its cameras, used on the test's own thread."""

    def __init__(
        self,
        backend: RenderBackend,
        model: mujoco.MjModel,
        cameras: Sequence[CameraDescriptor],
        max_slots: int = 200,
        max_bytes: int = 1 << 26,
    ):
        self.backend = backend
        self.model = model
        self.cameras = tuple(cameras)
        self.boundary = FrameBoundary(max_slots, max_bytes)
        longest = max(camera.layout(plane).byte_length for camera in cameras for plane in camera.planes)
        assert self.boundary.reconfigure(1, longest).ok
        scene = describe_model(model, self.cameras[0].num_envs)
        self.ready = backend.initialize(scene, RenderConfiguration(1, 1, self.cameras, "cpu"))

    def plan(self, camera: CameraDescriptor, planes: Sequence[PlaneKind] = ()) -> RenderPlan:
        """A plan for some of a camera's planes, by default all."""
        return RenderPlan(camera, tuple(planes) or camera.planes, (1,), 1, camera.id, 0)

    def turn(self, states: Sequence[mujoco.MjData], plans: Sequence[RenderPlan] = ()) -> RenderStatus:
        """Render; by default all cameras."""
        snapshot = snapshot_of(self.model, states)
        plans = tuple(plans) or tuple(self.plan(camera) for camera in self.cameras)
        return self.backend.render(snapshot, plans, self.boundary)

    def shoot(self, states: Sequence[mujoco.MjData], plans: Sequence[RenderPlan] = ()) -> Frames:
        """Render, and copy the frames by camera id and plane."""
        plans = tuple(plans) or tuple(self.plan(camera) for camera in self.cameras)
        assert self.ready.ok, self.ready
        status = self.turn(states, plans)
        assert status.ok, status
        return {(plan.camera_id, plane): self.frame(plan.camera_id, plane) for plan in plans for plane in plan.planes}

    def frame(self, camera_id: int, plane: PlaneKind) -> np.ndarray:
        """The latest frame of a plane (N, H, W, C), copied."""
        lease = self.boundary.acquire_latest(plane, camera_id)
        assert lease is not None
        return lease.numpy().copy()

    def close(self) -> None:
        """End the backend."""
        self.backend.shutdown_on_render_thread()
