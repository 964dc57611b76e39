"""The render backend with MuJoCo's own look: its OpenGL renderer, off screen, fed by snapshots alone."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from .gl_contexts import GlUnavailableError
from .mujoco_gl_painter import GlPainter, ProjectedCamera
from .mujoco_gl_state import PosedModel, SnapshotOnHost
from .mujoco_looks import MODEL_RANDOMIZATIONS
from .render_core.backend import RenderBackend, RenderConfiguration
from .render_core.layout import PlaneKind
from .render_core.placement import camera_mount, camera_projection, check_scene, check_snapshot
from .render_core.status import RenderStatus, RenderStatusCode
from .render_core.turn_frames import TurnFrames

if TYPE_CHECKING:
    from scene_data.scene import SceneDescription

    from .render_core.camera import CameraDescriptor
    from .render_core.demand import RenderPlan
    from .render_core.frames import FrameBoundary
    from .render_core.snapshots import RenderSnapshot

__all__ = ["MujocoGlRenderBackend"]

_log = logging.getLogger(__name__)

# What a plane shows of an environment whose poses are not finite.
_BLANK = {PlaneKind.DEPTH: np.inf, PlaneKind.DISTANCE_TO_CAMERA: np.inf, PlaneKind.SEGMENTATION: -1}


class MujocoGlRenderBackend(RenderBackend):
    """Draws with `mjv_updateScene` and `mjr_render`, one environment and one camera after the other.

    The OpenGL context is made through EGL, GLFW or OSMesa: the first of them that draws here. It lives on the render
    thread and is shared with nobody. Skins, transparency and smooth edges are drawn as MuJoCo draws them; sites and
    tendons are not drawn. Depth and objects are those at the pixel centres.

    Args:
        platform: `"egl"`, `"glfw"` or `"osmesa"`; None is what the environment variable `MUJOCO_GL` names, or else the
            first that works.
        effects: Whether to draw MuJoCo's reflections and haze too, which no other render backend draws.
    """

    requires = ("mujoco_model",)
    draws_extra_geometry = True
    applies_camera_settings = True
    supported_randomizations = MODEL_RANDOMIZATIONS
    supported_planes = frozenset(
        {PlaneKind.RGB, PlaneKind.RGBA, PlaneKind.DEPTH, PlaneKind.DISTANCE_TO_CAMERA, PlaneKind.SEGMENTATION}
    )

    def __init__(self, platform: str | None = None, effects: bool = False):
        self._wanted = platform
        self._effects = effects
        self._scene: SceneDescription | None = None
        self._posed: PosedModel | None = None
        self._painter: GlPainter | None = None
        self._cameras: dict[int, ProjectedCamera] = {}
        self._uses_model_cameras = False
        self._stopping = threading.Event()
        self.blank_environments: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def platform(self) -> str | None:
        """The way to OpenGL that is used; None before there is a context."""
        return None if self._painter is None else self._painter.platform

    @classmethod
    def validate(cls, scene: "SceneDescription | None", cameras: Sequence["CameraDescriptor"]) -> "SceneDescription":
        """Return the scene if these cameras can be drawn in it, on any thread; it raises what `check_scene` does."""
        return check_scene(cls, "mujoco_gl", scene, cameras)

    def initialize(self, scene: "SceneDescription | None", configuration: RenderConfiguration) -> RenderStatus:
        """Find a way to OpenGL, upload the model, and get ready for the configuration's cameras."""
        self._close()
        try:
            self._scene = self.validate(scene, configuration.cameras)
            self._posed = PosedModel(self._scene)
            self._painter = GlPainter(self._posed, self._wanted, self._effects)
            _log.info("MuJoCo draws through %s, on %s", self._painter.platform, self._painter.renderer)
        except GlUnavailableError as error:
            self._close()
            return RenderStatus(RenderStatusCode.BACKEND_UNAVAILABLE, str(error))
        except Exception as error:
            self._close()
            return RenderStatus(RenderStatusCode.BACKEND_FAILURE, f"{type(error).__name__}: {error}")
        return self.resize(configuration)

    def resize(self, configuration: RenderConfiguration) -> RenderStatus:
        """Get ready for other cameras in the same scene."""
        if self._painter is None or self._scene is None:
            return RenderStatus(RenderStatusCode.NOT_INITIALIZED, "resize before initialize")
        try:
            cameras, scene = configuration.cameras, self.validate(self._scene, configuration.cameras)
            self._painter.resize(max(camera.width for camera in cameras), max(camera.height for camera in cameras))
            self._cameras = {
                camera.id: ProjectedCamera(camera, camera_projection(camera, scene), scene.near, scene.far)
                for camera in cameras
            }
            self._uses_model_cameras = any(camera_mount(camera, scene)[0] >= 0 for camera in cameras)
        except Exception as error:
            return RenderStatus(RenderStatusCode.BACKEND_FAILURE, f"{type(error).__name__}: {error}")
        return RenderStatus(RenderStatusCode.OK)

    def render(
        self, snapshot: "RenderSnapshot", plans: Sequence["RenderPlan"], boundary: "FrameBoundary"
    ) -> RenderStatus:
        """Draw what the plans ask for, as far as there is room, and commit it. The status names the first failure.

        Raises:
            ContextIntegrityError: The OpenGL context is lost.
            ValueError: The snapshot is of another scene.
        """
        if self._painter is None or self._posed is None or self._scene is None:
            return RenderStatus(RenderStatusCode.NOT_INITIALIZED, "render before initialize")
        check_snapshot(snapshot, self._scene, self._uses_model_cameras)
        with TurnFrames(snapshot, plans, boundary) as turn:
            host = SnapshotOnHost(snapshot)
            with _on_host(turn.frames) as frames:
                for env in range(snapshot.num_envs):
                    if self._stopping.is_set():
                        return RenderStatus(RenderStatusCode.STOPPED, "the render was asked to end")
                    self._draw(host, env, frames)
            self.blank_environments = np.flatnonzero(~host.is_finite)
            boundary.note_blank_environments(self.blank_environments)
            return turn.commit()

    def request_stop(self) -> None:
        """End a render in progress after the image that is being drawn."""
        self._stopping.set()

    def shutdown_on_render_thread(self) -> None:
        """Free what was uploaded and end the context."""
        self._close()

    def _draw(self, host: SnapshotOnHost, env: int, frames: dict[int, dict[PlaneKind, NDArray[Any]]]) -> None:
        """Draw the due cameras in one environment."""
        assert self._painter is not None
        assert self._posed is not None
        if host.is_finite[env]:
            self._posed.pose(host, env)
            for camera_id, planes in frames.items():
                self._painter.draw(self._cameras[camera_id], {plane: frame[env] for plane, frame in planes.items()})
            return
        for camera_id, planes in frames.items():
            colour = np.round(255 * np.array(self._cameras[camera_id].descriptor.options.background))
            for plane, frame in planes.items():
                frame[env] = _BLANK.get(plane, (*colour, 0) if plane is PlaneKind.RGBA else colour)

    def _close(self) -> None:
        if self._painter is not None:
            self._painter.close()
        self._scene = self._posed = self._painter = None
        self._cameras = {}


@contextmanager
def _on_host(frames: dict[int, dict[PlaneKind, wp.array]]) -> Iterator[dict[int, dict[PlaneKind, NDArray[Any]]]]:
    """The planes as NumPy arrays: on the CPU the frames' own memory, else copied there at the end."""
    arrays = {
        camera_id: {
            plane: frame.numpy() if frame.device.is_cpu else np.empty(frame.shape, wp.dtype_to_numpy(frame.dtype))
            for plane, frame in planes.items()
        }
        for camera_id, planes in frames.items()
    }
    yield arrays
    for camera_id, planes in frames.items():
        for plane, frame in planes.items():
            if not frame.device.is_cpu:
                frame.assign(arrays[camera_id][plane])
