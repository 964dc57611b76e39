"""Omniverse RTX as a render backend. Experimental: written from ovrtx's public documentation, tried on a stand-in only.

It needs an RTX card, and `ovrtx` with `ovstage` from NVIDIA. The scene is written as a USD file once, with a camera and
a render product for each camera of the render core in each environment; then only transforms are sent.
"""

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pxr import Gf, Sdf, UsdGeom, UsdRender

from scene_data.scene import SceneDescription
from scene_data.stage import SceneStage

from .render_core.backend import RenderBackend, RenderConfiguration
from .render_core.camera import CameraDescriptor, Intrinsics, Orthographic
from .render_core.layout import PlaneKind
from .render_core.placement import camera_mount, camera_projection, check_scene, check_snapshot, rotation_matrices
from .render_core.status import RenderStatus, RenderStatusCode
from .render_core.turn_frames import TurnFrames

# ovrtx looks for another build of OpenUSD in the process and refuses it; what is loaded here only writes a file.
os.environ.setdefault("OVRTX_SKIP_USD_CHECK", "1")
import ovrtx
import ovstage

if TYPE_CHECKING:
    from .render_core.demand import RenderPlan
    from .render_core.frames import FrameBoundary
    from .render_core.snapshots import RenderSnapshot

__all__ = ["OvrtxRenderBackend"]

_VARIABLES = {
    PlaneKind.RGB: "LdrColor",
    PlaneKind.RGBA: "LdrColor",
    PlaneKind.RGB_HDR: "HdrColor",
    PlaneKind.ALBEDO: "DiffuseAlbedoSD",
    PlaneKind.NORMALS: "NormalSD",
    PlaneKind.DEPTH: "DistanceToImagePlaneSD",
    PlaneKind.DISTANCE_TO_CAMERA: "DistanceToCameraSD",
}
_DISTANCES = (PlaneKind.DEPTH, PlaneKind.DISTANCE_TO_CAMERA)
_FOCAL_LENGTH = 24.0  # apertures are in the same unit, so it could be any
_TENTHS = 10.0
_SPACING = 20.0  # between environments, in extents of the scene: they share one stage
_DELTA_TIME = 1.0 / 60.0


class OvrtxRenderBackend(RenderBackend):
    """Path traces with Omniverse RTX.

    Environments stand side by side in one stage, far apart, and may show in each other's background. Geom groups are
    not told apart, deformables keep their rest shape, and settings at run time and extra geometry are not applied.

    Args:
        warmup_steps: Steps before the first frame, in which RTX loads and its denoiser settles.
    """

    supported_planes = frozenset(_VARIABLES)

    def __init__(self, warmup_steps: int = 8):
        self._warmup_steps = warmup_steps
        self._scene: SceneDescription | None = None
        self._cameras: dict[int, CameraDescriptor] = {}
        self._open = ExitStack()
        self._renderer: Any = None
        self._stage: Any = None
        self._transforms: _Transforms | None = None
        self._ordinal = 0

    def initialize(self, scene: "SceneDescription | None", configuration: RenderConfiguration) -> RenderStatus:
        """Write the scene with its cameras to a file, and let RTX open it."""
        self.shutdown_on_render_thread()
        try:
            self._scene = scene = check_scene(type(self), "ovrtx", scene, configuration.cameras)
            self._cameras = {camera.id: camera for camera in configuration.cameras}
            self._start(scene, configuration.cameras)
        except Exception as error:
            self.shutdown_on_render_thread()
            return RenderStatus(RenderStatusCode.BACKEND_FAILURE, f"{type(error).__name__}: {error}")
        return RenderStatus(RenderStatusCode.OK)

    def resize(self, configuration: RenderConfiguration) -> RenderStatus:
        """Write and open the scene again, with other cameras."""
        if self._scene is None:
            return RenderStatus(RenderStatusCode.NOT_INITIALIZED, "resize before initialize")
        return self.initialize(self._scene, configuration)

    def render(
        self, snapshot: "RenderSnapshot", plans: Sequence["RenderPlan"], boundary: "FrameBoundary"
    ) -> RenderStatus:
        """Send the poses, step the due render products, and copy what they show."""
        if self._scene is None or self._transforms is None:
            return RenderStatus(RenderStatusCode.NOT_INITIALIZED, "render before initialize")
        check_snapshot(snapshot, self._scene, self._transforms.uses_model_cameras)
        with TurnFrames(snapshot, plans, boundary) as turn:
            snapshot.begin_read()
            matrices = self._transforms.of(snapshot)
            snapshot.end_read()
            self._write(matrices)
            products = {_product(camera_id, env) for camera_id in turn.frames for env in range(self._scene.num_envs)}
            shown = self._step(products)
            for camera_id, planes in turn.frames.items():
                for plane, frame in planes.items():
                    images = [self._image(shown, camera_id, env, plane) for env in range(self._scene.num_envs)]
                    frame.assign(np.stack(images))
            return turn.commit()

    def shutdown_on_render_thread(self) -> None:
        """Close RTX and remove the file."""
        self._open.close()
        self._scene = self._renderer = self._stage = self._transforms = None

    def _start(self, scene: SceneDescription, cameras: Sequence[CameraDescriptor]) -> None:
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="scene_data_ovrtx_")))
        written = SceneStage(scene, folder / "scene.usdc", env_spacing=_SPACING * scene.extent)
        for camera in cameras:
            for env in range(scene.num_envs):
                _define_camera(written.stage, scene, camera, env)
        written.save()
        self._renderer = ovrtx.Renderer()
        self._open.callback(self._renderer.destroy)
        self._stage = ovstage.Stage("scene_data")
        self._open.callback(self._stage.destroy)
        self._renderer.attach_ovstage(self._stage)
        self._open.callback(self._renderer.detach_ovstage)
        self._ordinal = 1
        ovstage.population.open_usd(self._stage, str(folder / "scene.usdc"), ordinal=self._ordinal)
        self._publish()
        self._transforms = _Transforms(scene, cameras)
        names = self._open.enter_context(ovstage.PathDictionary(self._stage))
        listed = names.create_path_list_from_strings(self._transforms.paths)
        self._query = self._open.enter_context(self._stage.query_from_path_list(listed))
        self._attribute = names.intern_token("omni:xform")
        products = {_product(camera.id, env) for camera in cameras for env in range(scene.num_envs)}
        for _ in range(self._warmup_steps):
            self._step(products)

    def _write(self, matrices: NDArray[np.float64]) -> None:
        self._ordinal += 1
        kind = ovstage.numpy_to_dldatatype(matrices.dtype, lanes=16)
        tensor = ovstage.make_dltensor(matrices, dtype=kind, shape=[len(matrices)], ndim=1)
        self._stage.write_attribute(
            self._query,
            self._attribute,
            ordinal=self._ordinal,
            tensors=tensor,
            is_array=False,
            semantic=ovstage.AttributeSemantic.MATRIX,
        ).wait()
        self._publish()

    def _publish(self) -> None:
        self._stage.advance_write_floor(self._ordinal, ovstage.Scope.ALL).wait()

    def _step(self, products: set[str]) -> Any:
        return self._renderer.step(render_products=products, delta_time=_DELTA_TIME, ordinal=self._ordinal)

    def _image(self, shown: Any, camera_id: int, env: int, plane: PlaneKind) -> NDArray[Any]:
        """One environment's image (H, W, C) by our conventions."""
        assert self._scene is not None
        product, channels = _product(camera_id, env), self._cameras[camera_id].layout(plane).channels
        mapped = shown[product].frames[0].render_vars[f"{product}/{_VARIABLES[plane]}"].map(device=ovrtx.Device.CPU)
        try:
            pixels = np.array(np.from_dlpack(mapped))[..., :channels]  # a copy: what is mapped goes with `unmap`
        finally:
            mapped.unmap()
        if plane in _DISTANCES:
            is_hit = np.isfinite(pixels) & (pixels > 0.0) & (pixels <= self._scene.far)
            pixels = np.where(is_hit, pixels, np.inf)
        return pixels.astype(np.uint8 if pixels.dtype == np.uint8 else np.float32)


class _Transforms:
    """What is sent each turn: bodies and cameras, as matrices of USD, relative to their environment.

    Attributes:
        paths: The prims, bodies first.
        uses_model_cameras: Whether any camera's pose is the engine's to say.
    """

    def __init__(self, scene: SceneDescription, cameras: Sequence[CameraDescriptor]):
        self._mounts = [camera_mount(camera, scene) for camera in cameras]
        self.uses_model_cameras = any(mount[0] >= 0 for mount in self._mounts)
        self.paths = [path for env in range(scene.num_envs) for path in scene.body_paths(env)]
        self.paths += [_camera_path(scene, camera.id, env) for camera in cameras for env in range(scene.num_envs)]

    def of(self, snapshot: "RenderSnapshot") -> NDArray[np.float64]:
        """Matrices (len(paths), 4, 4), translations in the last row."""
        envs = snapshot.num_envs
        positions = snapshot.transforms.positions.numpy().reshape(envs, -1, 3).astype(float)
        rotations = snapshot.transforms.orientations.numpy().reshape(envs, -1, 3, 3).astype(float)
        parts = [_matrices(positions.reshape(-1, 3), rotations.reshape(-1, 3, 3))]
        for index, body, local, quaternion in self._mounts:
            if index >= 0:
                origin = snapshot.cameras.positions.numpy().reshape(envs, -1, 3)[:, index]
                turn = snapshot.cameras.orientations.numpy().reshape(envs, -1, 3, 3)[:, index]
            else:
                carrier = rotations[:, body]
                origin = positions[:, body] + (carrier @ local[:, :, None])[..., 0]
                turn = carrier @ rotation_matrices(quaternion)
            parts.append(_matrices(origin, turn))
        return np.concatenate(parts)


def _matrices(positions: NDArray[Any], rotations: NDArray[Any]) -> NDArray[np.float64]:
    matrices = np.tile(np.eye(4), (len(positions), 1, 1))
    matrices[:, :3, :3], matrices[:, 3, :3] = np.swapaxes(rotations, 1, 2), positions
    return matrices


def _product(camera_id: int, env: int) -> str:
    return f"/Render/camera_{camera_id}_env_{env}"


def _camera_path(scene: SceneDescription, camera_id: int, env: int) -> str:
    return f"{scene.env_path(env)}/render_camera_{camera_id}"


def _define_camera(stage: Any, scene: SceneDescription, camera: CameraDescriptor, env: int) -> None:
    """A camera in its environment, and the render product with a variable for each plane."""
    defined = UsdGeom.Camera.Define(stage, _camera_path(scene, camera.id, env))
    defined.MakeMatrixXform().Set(Gf.Matrix4d(1.0))
    defined.CreateClippingRangeAttr(Gf.Vec2f(scene.near, scene.far))
    _set_projection(defined, camera_projection(camera, scene), camera, env)
    path = _product(camera.id, env)
    product = UsdRender.Product.Define(stage, path)
    product.CreateResolutionAttr(Gf.Vec2i(camera.width, camera.height))
    product.CreateCameraRel().AddTarget(defined.GetPath())
    for name in sorted({_VARIABLES[plane] for plane in camera.planes}):
        variable = UsdRender.Var.Define(stage, f"{path}/{name}")
        variable.CreateSourceNameAttr(name)
        product.CreateOrderedVarsRel().AddTarget(Sdf.Path(f"{path}/{name}"))


def _set_projection(defined: UsdGeom.Camera, projection: Intrinsics, camera: CameraDescriptor, env: int) -> None:
    """USD has one focal length: pixels that are not square become an aperture of another height."""
    width, height = camera.width, camera.height
    defined.CreateFocalLengthAttr(_FOCAL_LENGTH)
    if isinstance(projection, Orthographic):
        defined.CreateProjectionAttr(UsdGeom.Tokens.orthographic)
        aperture = projection.height * _TENTHS
        defined.CreateVerticalApertureAttr(aperture)
        defined.CreateHorizontalApertureAttr(aperture * width / height)
        return
    fx, fy, cx, cy = projection.rows(camera.num_envs)[env]
    defined.CreateHorizontalApertureAttr(_FOCAL_LENGTH * width / fx)
    defined.CreateVerticalApertureAttr(_FOCAL_LENGTH * height / fy)
    defined.CreateHorizontalApertureOffsetAttr(_FOCAL_LENGTH * (0.5 * width - cx) / fx)
    defined.CreateVerticalApertureOffsetAttr(_FOCAL_LENGTH * (cy - 0.5 * height) / fy)
