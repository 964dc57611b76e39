"""The Rerun viewer: the simulation on a time line, in the browser, in Rerun's own viewer, and in files."""

import time
import webbrowser
from collections.abc import Mapping, Sequence

import numpy as np
import rerun as rr
import rerun.blueprint as rrb
from numpy.typing import NDArray

from scene_data.geometry_sources import PackedGeometry
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from .base import BaseVisualizer, Point
from .layout import default_spacing, grid_offsets
from .rerun_blueprint import PLOTS, SIM_TIME, STEP, default_view, make_blueprint
from .rerun_cameras import RerunCameras, camera_paths
from .rerun_cfg import RerunVisualizerCfg
from .rerun_deformables import RerunDeformables
from .rerun_markers import RerunMarkers
from .rerun_scene import RerunScene
from .rerun_stream import RerunStream

__all__ = ["RerunVisualizer"]

_ROUNDING = 1e-6


class RerunVisualizer(BaseVisualizer):
    """Shows the simulation in Rerun, or records it, or both.

    Rerun does not tell who looks: all that is shown goes to its server, which keeps the last of it for whoever comes
    later.
    """

    cfg_type = RerunVisualizerCfg

    cfg: RerunVisualizerCfg

    def __init__(self, cfg: RerunVisualizerCfg):
        super().__init__(cfg)
        self._stream: RerunStream | None = None
        self._description: SceneDescription | None = None
        self._scene: RerunScene | None = None
        self._deformables: RerunDeformables | None = None
        self._markers: RerunMarkers | None = None
        self._cameras: RerunCameras | None = None
        self._offsets = np.zeros((0, 3))
        self._camera_paths: dict[str, list[str]] = {}
        self._timeline = SIM_TIME
        self._sent = 0
        self._unrecorded = 0.0
        self._images_due = -np.inf
        self._images_at: int | None = None

    @property
    def address(self) -> str | None:
        """Where people look at it."""
        return self._stream.url if self._stream is not None else None

    @property
    def recording(self) -> rr.RecordingStream | None:
        """The rerun recording stream, for what is not offered here; None unless it is open. A reload begins another."""
        return self._stream.recording if self._stream is not None else None

    def initialize(self, provider: SceneDataProvider) -> None:
        """Serve, connect, or open the file.

        Raises:
            PortInUseError: Somebody else listens on a port.
            RecordingFileError: The file cannot be written.
            NoViewerError: There is no viewer to connect to.
        """
        super().initialize(provider)
        scene = provider.backend.describe_scene()
        self._stream = RerunStream(self.cfg, self.cfg.app_id or scene.name or "scene")
        try:
            self._show(provider, scene)
            if self.cfg.open_browser and self._stream.url.startswith("http"):
                webbrowser.open(self._stream.url)
        except BaseException:
            self.close()
            raise

    def step(self, dt: float) -> None:
        """Send the present state."""
        if self._scene is None or self._deformables is None or self._stream is None or self.provider is None:
            return
        is_due = self.wants_poses(dt)
        self._unrecorded += dt
        if not is_due:
            return
        self._unrecorded = 0.0
        self._set_time()
        with self.provider.consistent_read():
            has_news = self._scene.update(dt > 0.0)
            self._deformables.read()
        has_news |= self._deformables.send(dt > 0.0)
        if dt > 0.0 and self.cfg.enable_live_plots:
            for name, read in self.cfg.live_plots.items():
                path = f"{PLOTS}/{rr.escape_entity_path_part(name)}"
                self._stream.recording.log(path, rr.Scalars(float(read())), strict=True)
        self._sent += has_news

    def wants_poses(self, dt: float) -> bool:
        """Whether something is sent: while recording, at the recording's rate; paused, what somebody moves by hand."""
        is_recording = self.cfg.record_to_rrd is not None
        return not is_recording or dt <= 0.0 or self._unrecorded + dt >= (1.0 - _ROUNDING) / self.cfg.record_fps

    def close(self) -> None:
        """Complete the file, and end the server."""
        stream, self._stream = self._stream, None
        self._scene = self._deformables = self._markers = self._cameras = None
        super().close()
        if stream is not None:
            stream.close()

    def reset(self, soft: bool = False) -> None:
        """Show the new model, if it is another, as another recording."""
        if self._stream is None or self.provider is None:
            return
        scene = self.provider.backend.describe_scene()
        self._unrecorded = np.inf
        self._images_due = -np.inf
        if scene is not self._description:
            self.env_ids = self._chosen_envs(max(self.provider.num_envs, 1))
            self._timeline = SIM_TIME
            self._show(self.provider, scene)
        elif not soft and self._timeline is SIM_TIME:
            # Simulation time begins again, where the first run has left its data.
            self._timeline = STEP
            self._stream.show_as(self._blueprint())

    def set_camera_view(self, eye: Point, target: Point) -> None:
        """Look from `eye` at `target` [m]."""
        super().set_camera_view(eye, target)
        if self._stream is not None:
            self._stream.show_as(self._blueprint())

    def is_running(self) -> bool:
        """Whether it is open; False where its server was ended."""
        return super().is_running() and (self._stream is None or self._stream.is_open)

    def real_time_factor(self) -> float | None:
        """The speed that was asked for."""
        return self.cfg.speed

    def wanted_cameras(self) -> Sequence[str]:
        """Cameras whose images are shown, when it is time for one."""
        if self._cameras is None or self.provider is None or not self.cfg.camera_images:
            return ()
        if self.provider.simulation_time_ns == self._images_at:
            return ()
        return self.cfg.camera_images if self._image_clock() >= self._images_due * (1.0 - _ROUNDING) else ()

    def show_camera_infos(self, infos: Mapping[str, object]) -> None:
        """Take where the cameras were."""
        if self._cameras is not None:
            self._cameras.place(infos)

    def show_camera_images(self, images: Mapping[str, NDArray[np.uint8]]) -> None:
        """Show images, uint8 (N, H, W, 3) by name."""
        if self._cameras is None or self.provider is None:
            return
        self._images_at = self.provider.simulation_time_ns
        self._images_due = self._image_clock() + 1.0 / self.cfg.image_frequency
        self._set_time()
        self._cameras.show(images)

    def wants_markers(self) -> bool:
        """Whether extra geometry is shown."""
        return self._markers is not None and self.cfg.enable_markers

    def show_markers(self, markers: PackedGeometry | None) -> None:
        """Show extra geometry in place of what was shown before."""
        if self._markers is not None and (markers is not None or self._markers.shows_any):
            self._set_time()
            self._markers.show(markers)

    def show_shape_colors(self, colors: NDArray[np.float32] | None) -> None:
        """Show shapes in other colours, all environments' `(N, S, 4)`."""
        if self._scene is not None:
            self._scene.show_colors(colors)

    # -- inside

    def _show(self, provider: SceneDataProvider, scene: SceneDescription) -> None:
        assert self._stream is not None
        self._description = scene
        cfg, envs = self.cfg, self.env_ids
        spacing = default_spacing(provider, scene) if cfg.env_spacing is None else cfg.env_spacing
        self._offsets = offsets = grid_offsets(len(envs), spacing)
        is_tree = len(envs) <= cfg.max_trees
        self._camera_paths = camera_paths(scene, envs, cfg.camera_images, is_tree)
        self._stream.start_recording(self._blueprint())
        recording = self._stream.recording
        recording.log("/World", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True, strict=True)
        self._set_time()
        with provider.consistent_read():
            self._scene = RerunScene(recording, provider, scene, envs, offsets, cfg.geom_groups, is_tree)
            self._deformables = RerunDeformables(recording, provider, scene, envs, offsets, cfg.geom_groups)
        self._markers = RerunMarkers(recording, envs, offsets)
        self._cameras = RerunCameras(recording, scene, envs, self._camera_paths, is_tree)
        self._sent += 1

    def _blueprint(self) -> rrb.Blueprint:
        scene = self._description
        assert scene is not None
        return make_blueprint(
            scene.name or "scene",
            *(self._camera_view or default_view(scene, self._offsets)),
            [path for paths in self._camera_paths.values() for path in paths],
            bool(self.cfg.live_plots) and self.cfg.enable_live_plots,
            self._timeline,
        )

    def _set_time(self) -> None:
        """What is sent next belongs to the present state."""
        assert self._stream is not None
        assert self.provider is not None
        self._stream.set_times(self.provider.simulation_time_ns, self._sent)

    def _image_clock(self) -> float:
        """The time that images are paced by [s]."""
        assert self.provider is not None
        is_recording = self.cfg.record_to_rrd is not None
        return self.provider.simulation_time_ns * 1e-9 if is_recording else time.monotonic()
