"""The render backend on Newton's camera sensor: a ray tracer that draws the scenes of every engine."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import warp as wp

from scene_data.appearance import Randomization

from .newton_tracer import NewtonTracer
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

__all__ = ["NewtonRenderBackend"]


class NewtonRenderBackend(RenderBackend):
    """Draws the scene description with `newton.sensors.SensorCamera`, all environments of a camera together.

    On the CPU threads share the rows of the images; pixels do not depend on that.

    It needs nothing of the engine but poses, and offers normals, albedo and linear colours. The light is Newton's own:
    a sun and an ambient light instead of the scene's, no sky, and no textures on primitives. Neither skins, cables,
    tendons, one-dimensional flexes nor extra geometry are drawn.

    Args:
        threads: Threads that draw, on the CPU; None is one per core.
    """

    applies_camera_settings = True
    supported_randomizations = frozenset(
        {Randomization.MATERIAL_COLORS, Randomization.SHAPE_COLORS, Randomization.SHAPE_SIZES}
    )
    supported_planes = frozenset(
        {
            PlaneKind.RGB,
            PlaneKind.RGBA,
            PlaneKind.RGB_HDR,
            PlaneKind.DEPTH,
            PlaneKind.DISTANCE_TO_CAMERA,
            PlaneKind.NORMALS,
            PlaneKind.ALBEDO,
            PlaneKind.SEGMENTATION,
        }
    )

    def __init__(self, threads: int | None = None):
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        self._threads = threads or os.cpu_count() or 1
        self._scene: SceneDescription | None = None
        self._tracer: NewtonTracer | None = None

    @property
    def blank_environments(self) -> np.ndarray:
        """Environments that the last turn blanked because a pose was not finite, ascending, int64."""
        return np.flatnonzero([] if self._tracer is None else self._tracer.diverged.numpy())

    @classmethod
    def validate(cls, scene: "SceneDescription | None", cameras: Sequence["CameraDescriptor"]) -> "SceneDescription":
        """Return the scene if these cameras can be drawn in it, on any thread; it raises what `check_scene` does.

        Raises:
            ValueError: Also where a camera asks for the segmentation of several deformables.
        """
        scene = check_scene(cls, "newton", scene, cameras)
        surfaces = [flex for flex in scene.flexes if flex.dim >= 2]
        for camera in cameras:
            shown = [flex for flex in surfaces if flex.group in camera.options.geom_groups]
            if PlaneKind.SEGMENTATION in camera.planes and len(shown) > 1:
                raise ValueError(
                    f"render backend 'newton' cannot tell deformables apart, and camera {camera.name!r} asks for the "
                    f"segmentation of {len(shown)}: {[flex.name or flex.path_name for flex in shown]}"
                )
        return scene

    def initialize(self, scene: "SceneDescription | None", configuration: RenderConfiguration) -> RenderStatus:
        """Build Newton models of the scene, and get ready for the configuration's cameras."""
        self._close()
        try:
            self._scene = scene = self.validate(scene, configuration.cameras)
            device = wp.get_device(configuration.device)
            threads = min(self._threads, configuration.threads or self._threads)
            self._tracer = NewtonTracer(scene, configuration.cameras, device, threads)
        except Exception as error:
            return RenderStatus(RenderStatusCode.BACKEND_FAILURE, f"{type(error).__name__}: {error}")
        return RenderStatus(RenderStatusCode.OK)

    def resize(self, configuration: RenderConfiguration) -> RenderStatus:
        """Get ready for other cameras in the same scene."""
        if self._tracer is None:
            return RenderStatus(RenderStatusCode.NOT_INITIALIZED, "resize before initialize")
        return self.initialize(self._scene, configuration)

    def render(
        self, snapshot: "RenderSnapshot", plans: Sequence["RenderPlan"], boundary: "FrameBoundary"
    ) -> RenderStatus:
        """Draw what the plans ask for, as far as there is room, and commit it. The status names the first failure."""
        if self._tracer is None or self._scene is None:
            return RenderStatus(RenderStatusCode.NOT_INITIALIZED, "render before initialize")
        check_snapshot(snapshot, self._scene, self._tracer.tables.uses_model_cameras)
        with TurnFrames(snapshot, plans, boundary) as turn:
            self._tracer.draw(snapshot, turn.frames)
            boundary.note_blank_flags(self._tracer.diverged)
            return turn.commit()

    def shutdown_on_render_thread(self) -> None:
        """End the threads and free the models."""
        self._close()
        self._scene = None

    def _close(self) -> None:
        if self._tracer is not None:
            self._tracer.close()
            self._tracer = None
