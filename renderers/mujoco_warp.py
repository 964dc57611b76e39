"""The default render backend: MuJoCo Warp's batched ray tracer, fed by snapshots alone."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import warp as wp

from .mujoco_looks import MODEL_RANDOMIZATIONS
from .mujoco_warp_scene import TracerModel
from .mujoco_warp_shards import ShardedTracer
from .mujoco_warp_views import CameraRig, Shot
from .render_core.backend import RenderBackend, RenderConfiguration
from .render_core.layout import PlaneKind
from .render_core.placement import check_scene, check_snapshot
from .render_core.status import RenderStatus, RenderStatusCode
from .render_core.turn_frames import TurnFrames

if TYPE_CHECKING:
    from scene_data.scene import SceneDescription

    from .render_core.camera import CameraDescriptor
    from .render_core.demand import RenderPlan
    from .render_core.frames import FrameBoundary
    from .render_core.snapshots import RenderSnapshot

__all__ = ["MujocoWarpRenderBackend"]


class MujocoWarpRenderBackend(RenderBackend):
    """Ray traces all environments and all due cameras of a turn together, on the CPU or on CUDA.

    On the CPU the environments are split over threads; pixels do not depend on the split. Depth is the distance along
    the optical axis, and what lies beyond the model's far plane (`zfar * extent`, as in OpenGL) is a miss. An
    environment with a pose that is not finite shows the background alone. It draws geoms, flexes and skins of the
    groups that a camera shows, but no sites or tendons, no reflections and no haze; only what is fully transparent is
    seen through.

    Args:
        shards: Threads that draw, on the CPU; None is one per core. Never more than there are environments.
    """

    requires = ("mujoco_model",)
    draws_extra_geometry = True
    applies_camera_settings = True
    supported_randomizations = MODEL_RANDOMIZATIONS
    supported_planes = frozenset(
        {PlaneKind.RGB, PlaneKind.RGBA, PlaneKind.DEPTH, PlaneKind.DISTANCE_TO_CAMERA, PlaneKind.SEGMENTATION}
    )

    def __init__(self, shards: int | None = None):
        if shards is not None and shards < 1:
            raise ValueError(f"shards must be at least 1, got {shards}")
        self._max_shards = shards or os.cpu_count() or 1
        self._scene: SceneDescription | None = None
        self._model: TracerModel | None = None
        self._tracer: ShardedTracer | None = None

    @property
    def shard_count(self) -> int:
        """Shards that the present configuration is drawn in; 0 before there is one."""
        return 0 if self._tracer is None else self._tracer.shard_count

    @property
    def blank_environments(self) -> np.ndarray:
        """Environments that the last turn blanked because a pose was not finite, ascending, int64."""
        return np.flatnonzero([] if self._tracer is None else self._tracer.diverged.numpy())

    @classmethod
    def validate(cls, scene: "SceneDescription | None", cameras: Sequence["CameraDescriptor"]) -> "SceneDescription":
        """Return the scene if these cameras can be drawn in it, on any thread; it raises what `check_scene` does."""
        return check_scene(cls, "mujoco_warp", scene, cameras)

    def initialize(self, scene: "SceneDescription | None", configuration: RenderConfiguration) -> RenderStatus:
        """Upload the scene's geometry and appearance, and get ready for the configuration's cameras."""
        self._model = None
        return self._build(scene, configuration)

    def resize(self, configuration: RenderConfiguration) -> RenderStatus:
        """Get ready for other cameras in the same scene."""
        if self._model is None:
            return RenderStatus(RenderStatusCode.NOT_INITIALIZED, "resize before initialize")
        return self._build(self._scene, configuration)

    def render(
        self, snapshot: "RenderSnapshot", plans: Sequence["RenderPlan"], boundary: "FrameBoundary"
    ) -> RenderStatus:
        """Draw what the plans ask for, as far as there is room, and commit it. The status names the first failure."""
        if self._tracer is None or self._scene is None:
            return RenderStatus(RenderStatusCode.NOT_INITIALIZED, "render before initialize")
        check_snapshot(snapshot, self._scene, self._tracer.rig.uses_model_cameras)
        index_of_id = self._tracer.rig.index_of_id
        with TurnFrames(snapshot, plans, boundary) as turn:
            shots = {Shot(index_of_id[camera], tuple(frames)): frames for camera, frames in turn.frames.items()}
            self._tracer.draw(snapshot, shots)
            boundary.note_blank_flags(self._tracer.diverged)
            return turn.commit()

    def shutdown_on_render_thread(self) -> None:
        """End the threads and free what was uploaded."""
        self._close()
        self._scene = self._model = None

    def _build(self, scene: "SceneDescription | None", configuration: RenderConfiguration) -> RenderStatus:
        self._close()
        try:
            self._scene = scene = self.validate(scene, configuration.cameras)
            device = wp.get_device(configuration.device)
            if self._model is None or self._model.device != device:
                self._model = TracerModel(scene, device)
            rig = CameraRig(scene, configuration.cameras, device)
            threads = min(self._max_shards, configuration.threads or self._max_shards)
            self._tracer = ShardedTracer(self._model, rig, scene.num_envs, threads)
        except Exception as error:
            return RenderStatus(RenderStatusCode.BACKEND_FAILURE, f"{type(error).__name__}: {error}")
        return RenderStatus(RenderStatusCode.OK)

    def _close(self) -> None:
        if self._tracer is not None:
            self._tracer.close()
            self._tracer = None
