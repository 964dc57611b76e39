"""Cameras of Isaac Lab's, as a render core and their buffers see them."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from scene_data.camera import CameraCfg, VisualOptions, WorldPose
from scene_data.errors import UnknownNameError

from .isaaclab_session import CameraSession
from .render_core.camera_settings import CameraSetting
from .render_core.layout import PlaneLayout
from .render_core.leases import FrameLease
from .segmentation_labels import colors_of

if TYPE_CHECKING:
    import torch

    from .isaaclab import RenderCoreRendererCfg

__all__ = ["CameraRenderData", "as_torch", "camera_of_spec", "check_output", "on_host"]

_ENV_INDEX = re.compile(r"/env_(\d+)(?:/|$)")


class CameraRenderData:
    """One camera of Isaac Lab's, as `create_render_data` returns it.

    Attributes:
        cfg: What is asked of the render core for it.
        outputs: The buffers that are written, by data type: views of the camera's own memory (N, H, W, C).
        setting: Its poses and intrinsics; None before the first `update_camera`.
        capture_id: The capture that the outputs show, 0 before the first.
    """

    def __init__(self, cfg: CameraCfg):
        self.cfg = cfg
        self.outputs: dict[str, torch.Tensor] = {}
        self.setting: CameraSetting | None = None
        self.capture_id = 0
        self._session: CameraSession | None = None

    def bind(self, outputs: "Mapping[str, torch.Tensor]") -> bool:
        """Write into these from now on; whether other frames have to be rendered for it than so far."""
        self.outputs = dict(outputs)
        # Isaac Lab's rgb lies in the rgba beside it.
        shared = {"rgb"} if _share_memory(outputs.get("rgb"), outputs.get("rgba")) else set()
        data_types = tuple(name for name in outputs if name not in shared)
        if not data_types or data_types == self.cfg.data_types:
            return False
        self.cfg = replace(self.cfg, data_types=data_types)
        return True

    def require_setting(self) -> CameraSetting:
        """Its poses and intrinsics.

        Raises:
            RuntimeError: It has none yet.
        """
        if self.setting is None:
            raise RuntimeError(f"camera {self.cfg.name!r} has no poses yet: update_camera comes before this")
        return self.setting

    def lease(self, data_type: str) -> FrameLease:
        """A lease on the frame of the latest capture, as it was rendered: not clipped, and segmentations not coloured.

        How many can be held is `held_frames` of the configuration.

        Raises:
            UnknownNameError: The camera does not render it.
            RuntimeError: There is no capture, or its frame had to make room.
        """
        if data_type not in self.cfg.data_types:
            raise UnknownNameError(f"data type of camera {self.cfg.name!r}", data_type, self.cfg.data_types)
        lease = self._session.lease(self.cfg.name, data_type, self.capture_id) if self._session else None
        if lease is None:
            raise RuntimeError(f"camera {self.cfg.name!r} has no frame of {data_type!r} to lease")
        return lease

    def show(self, session: CameraSession, capture_id: int) -> None:
        """Copy a capture into the outputs."""
        self._session, self.capture_id = session, capture_id
        makers = session.makers(self.cfg.name)
        for data_type, output in self.outputs.items():
            if data_type in self.cfg.data_types:
                with self.lease(data_type) as lease:
                    rendered, make = lease.torch(), makers.get(data_type)
                    output.copy_(rendered if make is None else make(rendered))

    def labels(self) -> dict[str, dict[str, Any]]:
        """What the ids or colours of the segmentations mean, by data type, as Isaac Lab's `info` has it."""
        if self._session is None:
            return {}
        tables = self._session.makers(self.cfg.name).id_to_labels()
        if self.cfg.colorize_segmentation:
            tables = {data_type: _by_color(table) for data_type, table in tables.items()}
        return {data_type: {"idToLabels": table} for data_type, table in tables.items()}


def camera_of_spec(spec: Any, number: int, renderer: "RenderCoreRendererCfg", num_envs: int, device: Any) -> CameraCfg:
    """What is asked of the render core for a camera.

    Args:
        spec: An Isaac Lab `CameraRenderSpec`.
        number: Tells cameras on the same prim apart.
        renderer: The renderer's configuration.
        num_envs: Environments of the scene data.
        device: Its device.

    Raises:
        ValueError: See `RenderCoreRenderer.create_render_data`.
    """
    path = spec.camera_prim_paths[0] if spec.camera_prim_paths else "camera"
    _check_spec(f"camera {path!r}", spec, num_envs, device)
    color = getattr(spec.cfg, "background_color", None)
    options = VisualOptions(
        geom_groups=renderer.geom_groups,
        shadows=renderer.shadows,
        textures=renderer.textures,
        skybox=renderer.skybox and color is None,
        background=renderer.background if color is None else tuple(color),
    )
    camera = CameraCfg(
        name=f"{path} [{number}]",
        width=spec.cfg.width,
        height=spec.cfg.height,
        data_types=tuple(spec.cfg.data_types),
        mount=WorldPose((0.0, 0.0, 0.0)),
        options=options,
        depth_clipping_behavior=renderer.depth_clipping_behavior,
        semantic_tags=renderer.semantic_tags,
        colorize_segmentation=renderer.colorize_segmentation,
    )
    limits = getattr(getattr(spec.cfg, "spawn", None), "clipping_range", None)
    return camera if limits is None else replace(camera, clipping_range=tuple(limits))


def check_output(camera: str, name: str, output: "torch.Tensor", layout: PlaneLayout, device: Any) -> None:
    """Raise a ValueError where a buffer has another shape, dtype or device than this layout."""
    expected = (layout.shape, wp.dtype_to_torch(layout.dtype), wp.device_to_torch(device))
    found = (tuple(output.shape), output.dtype, str(output.device))
    if found != expected:
        raise ValueError(f"output {name!r} of camera {camera!r} must be {expected}, got {found}")


def as_torch(buffer: Any) -> "torch.Tensor":
    """A tensor on the same memory."""
    array = getattr(buffer, "warp", buffer)
    return wp.to_torch(array) if isinstance(array, wp.array) else array


def on_host(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A copy on the host, float64."""
    values = getattr(values, "warp", values)
    for method in ("detach", "cpu", "numpy"):
        values = getattr(values, method)() if hasattr(values, method) else values
    array = np.array(values, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"expected shape {shape}, got {array.shape}")
    return array


def _share_memory(left: "torch.Tensor | None", right: "torch.Tensor | None") -> bool:
    return left is not None and right is not None and left.data_ptr() == right.data_ptr()


def _check_spec(what: str, spec: Any, num_envs: int, device: Any) -> None:
    for count in (spec.num_instances, spec.view_count):
        if count != num_envs:
            raise ValueError(f"{what} is for {count} environments, but the scene data has {num_envs}")
    if wp.get_device(str(spec.device)) != wp.get_device(device):
        raise ValueError(f"{what} is on {spec.device}, but the scene data is on {device}")
    found = [_ENV_INDEX.search(path) for path in spec.camera_prim_paths]
    envs = [int(match[1]) for match in found if match]
    if envs != sorted(envs):
        raise ValueError(f"{what} has its environments in the order {envs}, but frames are in ascending order")
    if getattr(spec.cfg, "isp_cfg", None) is not None:
        raise ValueError(f"{what} has an isp_cfg, but a render core has no image signal processor")
    if getattr(getattr(spec.cfg, "spawn", None), "distortion", None) is not None:
        raise ValueError(f"{what} has a lens distortion, but a render core draws pinholes")


def _by_color(table: Mapping[int, str]) -> dict[str, str]:
    """Labels by colour, written as Isaac Lab does: "(red, green, blue, alpha)"."""
    import torch

    colors = colors_of(torch.tensor(list(table), dtype=torch.int32).unsqueeze(-1)).tolist()
    return {str(tuple(color)): label for color, label in zip(colors, table.values(), strict=True)}
