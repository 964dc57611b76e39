"""The viser viewer: the simulation in a browser, without a graphics card on this machine."""

import contextlib
import io
import time
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from scene_data.camera import WorldPose
from scene_data.cli.tiling import tile
from scene_data.formats import SceneDataFormat
from scene_data.geometry_sources import PackedGeometry
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from .base import BaseVisualizer, Point
from .headless_browser import headless_browser
from .layout import default_spacing, environments_text, grid_offsets
from .ports import reachable
from .viser_cfg import ViserVisualizerCfg
from .viser_contacts import ViserContacts
from .viser_panel import FREE_VIEW, PanelContents, ViserPanel
from .viser_scene import ViserScene
from .viser_server import open_server

__all__ = ["ViserVisualizer"]

_CLIENT_SECONDS = 60.0
_SETTLED_PICTURES = 3
_SETTLED_SECONDS = 0.5


class ViserVisualizer(BaseVisualizer):
    """Shows the simulation on a web page.

    Nothing is read and nothing is sent while nobody has the page open and nothing is recorded.

    Attributes:
        url: Address of the page, None before `initialize`.
        server: The viser server, for what is not offered here.
    """

    cfg_type = ViserVisualizerCfg

    cfg: ViserVisualizerCfg

    def __init__(self, cfg: ViserVisualizerCfg):
        super().__init__(cfg)
        self.url: str | None = None
        self.server: viser.ViserServer | None = None
        self._scene: ViserScene | None = None
        self._panel: ViserPanel | None = None
        self._description: SceneDescription | None = None
        self._recording: Any = None
        self._unrecorded = 0.0
        self._images_due = 0.0
        self._spacing = 0.0
        self._colors: NDArray[np.float32] | None = None

    @property
    def address(self) -> str | None:
        """The page's address."""
        return self.url

    def initialize(self, provider: SceneDataProvider) -> None:
        """Serve the page.

        Raises:
            PortInUseError: Somebody else listens on the port.
        """
        super().initialize(provider)
        scene = provider.backend.describe_scene()
        self.server = server = open_server(self.cfg, self.cfg.label or scene.name)
        try:
            self.url = f"http://{reachable(self.cfg.bind_address)}:{server.get_port()}"
            self._show(provider, scene)
            if self.cfg.record_to_viser is not None:
                self._recording = server.get_scene_serializer()
            if self.cfg.share:
                self.url = server.request_share_url(verbose=False) or self.url
            if self.cfg.open_browser:
                webbrowser.open(self.url)
        except BaseException:
            self.server = None
            server.stop()
            raise

    def step(self, dt: float) -> None:
        """Show the present state to whoever looks, and record it."""
        if self.server is None or self._scene is None or self._panel is None or self.provider is None:
            return
        self._follow_panel()
        clients = len(self.server.get_clients())
        is_frame = self._advance_recording(dt)
        if not clients and not is_frame:
            return
        self._update_scene(self._scene)
        seconds = self.provider.simulation_time_ns * 1e-9
        if clients:
            self._panel.show_status(seconds, len(self.env_ids), self.provider.num_envs)
            self._plot(self._panel, seconds)

    def close(self) -> None:
        """End the server, and write the recording."""
        server, self.server = self.server, None
        if server is None:
            super().close()
            return
        try:
            if self._recording is not None and self.cfg.record_to_viser is not None:
                path = Path(self.cfg.record_to_viser)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._recording.serialize())
        finally:
            self._recording = self._scene = self._panel = None
            super().close()
            with contextlib.redirect_stdout(io.StringIO()):
                server.stop()

    def reset(self, soft: bool = False) -> None:
        """Show the new model, if it is another."""
        if self.server is None or self.provider is None or self._scene is None:
            return
        scene = self.provider.backend.describe_scene()
        if scene is not self._description:
            self._colors = None
            self._scene.remove()
            self.env_ids = self._chosen_envs(max(self.provider.num_envs, 1))
            self.server.gui.reset()
            self._show(self.provider, scene)

    def set_camera_view(self, eye: Point, target: Point) -> None:
        """Look from `eye` at `target` [m], in every browser that is connected and in those to come."""
        super().set_camera_view(eye, target)
        if self.server is not None:
            self._set_initial_camera(eye, target)
            for client in self.server.get_clients().values():
                with client.atomic():
                    client.camera.up_direction = (0.0, 0.0, 1.0)
                    client.camera.position = eye
                    client.camera.look_at = target

    def is_training_paused(self) -> bool:
        """Whether somebody has pressed pause; a single step lets one through."""
        panel = self._panel
        return panel is not None and panel.is_paused and not panel.take_single_step()

    def consume_reset_request(self) -> bool:
        """Whether somebody pressed reset since."""
        if self._panel is not None and self._panel.reset_wanted:
            self._panel.reset_wanted = False
            return True
        return super().consume_reset_request()

    def real_time_factor(self) -> float | None:
        """The speed that was chosen."""
        return self._panel.speed if self._panel is not None else self.cfg.speed

    def wanted_cameras(self) -> Sequence[str]:
        """Cameras whose images are shown, when it is time for one and somebody looks."""
        if self._panel is None or self.server is None or time.monotonic() < self._images_due:
            return ()
        return self._panel.cameras_wanted if self.server.get_clients() else ()

    def show_camera_images(self, images: Mapping[str, np.ndarray]) -> None:
        """Show images, uint8 (N, H, W, 3) by name, those of the environments that are shown side by side."""
        if self._panel is None:
            return
        self._images_due = time.monotonic() + 1.0 / self.cfg.image_frequency
        for name, image in images.items():
            if name in self._panel.cameras_wanted and len(self.env_ids):
                self._panel.show_image(name, tile(image[self.env_ids]))

    def wants_poses(self, dt: float) -> bool:
        """Whether somebody looks, or a picture is due for the recording."""
        return self.server is not None and (bool(self.server.get_clients()) or self._is_recorded_after(dt))

    def wants_markers(self) -> bool:
        """Whether somebody looks, or will."""
        if self.server is None or not self.cfg.enable_markers:
            return False
        return self._recording is not None or bool(self.server.get_clients())

    def show_markers(self, markers: PackedGeometry | None) -> None:
        """Show extra geometry in place of what was shown before."""
        if self._scene is not None:
            self._scene.show_markers(markers)

    def show_shape_colors(self, colors: NDArray[np.float32] | None) -> None:
        """Show shapes in other colours, all environments' `(N, S, 4)`; what has a texture stays as it is."""
        self._colors = colors

    def screenshot(self, width: int, height: int) -> np.ndarray:
        """What a browser shows, uint8 (height, width, 3): one that is connected, else one that is started for it.

        Raises:
            RuntimeError: There is no browser, or it shows nothing.
        """
        if self.server is None or self._scene is None or self.url is None:
            raise RuntimeError("the viewer is not open")
        with contextlib.nullcontext() if self.server.get_clients() else headless_browser(self.url):
            client = self._wait_for_client()
            self._update_scene(self._scene)
            return self._settled_picture(client, width, height)

    # -- inside

    def _update_scene(self, scene: ViserScene) -> None:
        scene.show_colors(self._colors)
        scene.update()

    def _wait_for_client(self) -> viser.ClientHandle:
        assert self.server is not None
        deadline = time.monotonic() + _CLIENT_SECONDS
        while not (clients := self.server.get_clients()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no browser has opened {self.url} within {_CLIENT_SECONDS:g} s")
            time.sleep(0.05)
        return next(iter(clients.values()))

    def _settled_picture(self, client: viser.ClientHandle, width: int, height: int) -> np.ndarray:
        """A picture that stays as it is: a browser does not tell when all textures have arrived."""
        assert self.server is not None
        camera = self.server.initial_camera
        deadline = time.monotonic() + _CLIENT_SECONDS
        picture, unchanged = np.zeros(0), 0
        while unchanged < _SETTLED_PICTURES and time.monotonic() < deadline:
            self.server.flush()
            frame = client.get_render(
                height,
                width,
                wxyz=_looking_at(camera.position, camera.look_at),
                position=camera.position,
                fov=camera.fov,
                transport_format="png",
            )
            alpha = frame[..., 3:] / 255.0
            last, picture = picture, (frame[..., :3] * alpha + 255.0 * (1.0 - alpha)).round().astype(np.uint8)
            unchanged = unchanged + 1 if np.array_equal(last, picture) and picture.min() < 255 else 0
            time.sleep(_SETTLED_SECONDS)
        return picture

    def _show(self, provider: SceneDataProvider, scene: SceneDescription) -> None:
        assert self.server is not None
        self._description = scene
        spacing = self.cfg.env_spacing
        self._spacing = default_spacing(provider, scene) if spacing is None else spacing
        self._scene = ViserScene(self.server, provider, scene, self.env_ids, self._offsets())
        self._set_initial_camera(*(self._camera_view or self._default_view(scene)))
        views = [FREE_VIEW, *(camera.name or camera.path_name for camera in scene.cameras)]
        num_envs = provider.num_envs
        contents = PanelContents(
            title=self.cfg.label or scene.name or "scene",
            views=views,
            groups=self._scene.groups,
            spacing=self._spacing if num_envs > 1 else None,
            environments=environments_text(self.env_ids.tolist(), num_envs) if num_envs > 1 else None,
            num_envs=num_envs,
            cameras=self.cfg.camera_images,
            bodies=[body.path_name for body in scene.bodies if not body.is_static],
            has_contacts=ViserContacts.are_told_by(provider),
            has_plots=self.cfg.enable_live_plots,
        )
        is_paused = self.cfg.start_paused if self._panel is None else self._panel.is_paused
        self._panel = ViserPanel(self.server, contents, self.cfg.speed, is_paused)

    def _offsets(self) -> NDArray[np.float64]:
        return grid_offsets(len(self.env_ids), self._spacing)

    def _set_initial_camera(self, eye: Point, target: Point) -> None:
        assert self.server is not None
        camera = self.server.initial_camera
        camera.up = (0.0, 0.0, 1.0)
        camera.position, camera.look_at = eye, target
        if self._description is not None and self._description.free_camera.projection == "perspective":
            camera.fov = float(np.radians(self._description.free_camera.fovy))

    def _default_view(self, scene: SceneDescription) -> tuple[Point, Point]:
        """The model's own, from further away where environments are spread out."""
        free = scene.free_camera
        reach = float(np.abs(self._offsets()).max()) if len(self.env_ids) else 0.0
        away = (free.position - free.lookat) * (1.0 + 2.0 * reach / free.distance)
        return _point(free.lookat + away), _point(free.lookat)

    def _follow_panel(self) -> None:
        """Make the scene what the panel says."""
        panel = self._panel
        assert panel is not None
        shows_others = panel.env_ids is not None and panel.env_ids != self.env_ids.tolist()
        if shows_others or panel.spacing not in (None, self._spacing):
            self._rebuild(panel)
        scene = self._scene
        assert scene is not None
        for group, is_shown in panel.groups.items():
            if scene.groups[group] != is_shown:
                scene.show_group(group, is_shown)
        if scene.shows_frames != panel.shows_frames:
            scene.show_frames(panel.shows_frames)
        scene.contacts.is_shown = panel.shows_contacts
        while panel.views_wanted:
            self._look_through(*panel.views_wanted.pop(0))

    def _plot(self, panel: ViserPanel, seconds: float) -> None:
        """Add the present values to the plots, when it is time."""
        if panel.plots is None or not panel.plots.is_due():
            return
        panel.plots.add_scalars(seconds, self.cfg.live_plots)
        title = None if panel.plotted_body is None else f"{panel.plotted_body} [m]"
        for other in panel.plots.titles:
            if other not in self.cfg.live_plots and other != title:
                panel.plots.remove(other)
        if title is not None and (position := self._body_position(panel.plotted_body)) is not None:
            panel.plots.add(seconds, title, dict(zip("xyz", position, strict=True)))
        panel.plots.finish()

    def _body_position(self, path_name: str | None) -> list[float] | None:
        """Where a body of the first environment that is shown stands at present [m]."""
        poses = SceneDataFormat.Vec3_Quat()
        if self._description is None or self.provider is None or not len(self.env_ids):
            return None
        names = [body.path_name for body in self._description.bodies]
        if path_name not in names or not self.provider.get_transforms(poses):
            return None
        row = int(self.env_ids[0]) * len(names) + names.index(path_name)
        return poses.positions[row : row + 1].numpy()[0].tolist()

    def _rebuild(self, panel: ViserPanel) -> None:
        """Send the scene anew, for other environments or other places for them."""
        assert self.server is not None
        assert self.provider is not None
        assert self._scene is not None
        assert self._description is not None
        if panel.spacing is not None:
            self._spacing = panel.spacing
        if panel.env_ids is not None:
            self.env_ids = np.array(panel.env_ids, np.int64)
        self._scene.remove()
        self._scene = ViserScene(self.server, self.provider, self._description, self.env_ids, self._offsets())

    def _look_through(self, client_id: int, view: str) -> None:
        """Move one browser's camera to a view."""
        assert self.server is not None
        assert self.provider is not None
        assert self._description is not None
        client = self.server.get_clients().get(client_id)
        scene = self._description
        if client is None:
            return
        eye, target = self._camera_view or self._default_view(scene)
        up, fovy = np.array((0.0, 0.0, 1.0)), scene.free_camera.fovy
        poses = SceneDataFormat.Vec3_Matrix33()
        if view != FREE_VIEW and len(self.env_ids) and self.provider.get_camera_poses(poses):
            camera = scene.cameras[index := scene.camera_index(view)]
            row = int(self.env_ids[0]) * len(scene.cameras) + index
            position = poses.positions.numpy()[row] + self._offsets()[0]
            rotation = poses.orientations.numpy()[row]
            distance = max(float(np.linalg.norm(scene.center - position)), 0.1)
            eye, target, up = _point(position), _point(position - distance * rotation[:, 2]), rotation[:, 1]
            fovy = camera.fovy if camera.projection == "perspective" else scene.free_camera.fovy
        with client.atomic():
            client.camera.up_direction = _point(up)
            client.camera.position, client.camera.look_at = eye, target
            client.camera.fov = float(np.radians(fovy))

    def _advance_recording(self, dt: float) -> bool:
        """Whether a picture is due for the recording."""
        if self._recording is None:
            return False
        is_due = self._is_recorded_after(dt)
        self._unrecorded += dt
        if is_due:
            self._recording.insert_sleep(self._unrecorded)
            self._unrecorded = 0.0
        return is_due

    def _is_recorded_after(self, dt: float) -> bool:
        period = 1.0 / self.cfg.record_fps
        return self._recording is not None and self._unrecorded + dt >= period * (1.0 - 1e-6)


def _looking_at(eye: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orientation (w, x, y, z) of a camera that looks along +Z, with -Y upwards in its picture."""
    x, y, z, w = np.asarray(WorldPose.looking_at(tuple(eye), tuple(target)).quaternion, dtype=float)
    # Half a turn about X takes that frame to the one of `WorldPose`.
    return np.array((-x, w, z, -y))


def _point(values: NDArray[Any]) -> Point:
    x, y, z = (float(value) for value in values)
    return x, y, z
