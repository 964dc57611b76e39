"""Cameras in Rerun: what each sees, as JPEG, in the place that it is seen from."""

import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import rerun as rr
from numpy.typing import NDArray
from PIL import Image

from scene_data.cli.tiling import tile
from scene_data.errors import UnknownNameError
from scene_data.scene import SceneDescription
from scene_data.usd_paths import join_path

from .rerun_scene import entity_path

__all__ = ["RerunCameras", "camera_paths"]

_TILED = "/cameras"
"""What the images of all environments together hang below: they stand nowhere in the scene."""

_QUALITY = 85
_REACH = 0.08
"""Distance at which the image hangs in front of the camera, as a part of the model's extent."""


class RerunCameras:
    """Images of the simulation's cameras.

    In a tree, each environment has its own camera, which stands where it is; else the images of all environments are
    tiled into one.

    Args:
        recording: Where to show them.
        scene: What there is.
        env_ids: The environments that are shown, `(E,)`.
        paths: Their entities, from `camera_paths`.
        is_tree: Whether each environment is a tree.
    """

    def __init__(
        self,
        recording: rr.RecordingStream,
        scene: SceneDescription,
        env_ids: NDArray[np.int64],
        paths: Mapping[str, Sequence[str]],
        is_tree: bool,
    ):
        self._recording = recording
        self._env_ids = env_ids
        self._is_tree = is_tree
        self._distance = _REACH * scene.extent
        self._infos: Mapping[str, Any] = {}
        self._roots = [scene.env_path(env) for env in env_ids.tolist()]
        self._paths = paths

    def place(self, infos: Mapping[str, Any]) -> None:
        """Take where the cameras were that the next images are from, `FrameInfo` by name."""
        self._infos = infos

    def show(self, images: Mapping[str, NDArray[np.uint8]]) -> None:
        """Show images (N, H, W, 3) by name, of all environments."""
        for name in self._paths.keys() & images.keys():
            if not len(self._env_ids):
                continue
            shown = images[name][self._env_ids]
            if not self._is_tree:
                self._show_image(self._paths[name][0], tile(shown))
                continue
            places = self._places(name)
            for index, path in enumerate(self._paths[name]):
                if places is not None:
                    self._stand(path, self._roots[index], shown[index].shape, *(each[index] for each in places))
                self._show_image(path, shown[index])
        self._infos = {}

    def _places(self, name: str) -> tuple[NDArray, NDArray, NDArray] | None:
        """Positions, quaternions and pinhole matrices of the environments that are shown; None where nobody knows."""
        info = self._infos.get(name)
        if info is None or find_spec("torch") is None:  # what it has are tensors
            return None
        tensors = (info.pos_w, info.quat_w_opengl, info.intrinsic_matrices)
        return tuple(tensor.cpu().numpy()[self._env_ids] for tensor in tensors)

    def _stand(
        self,
        path: str,
        root: str,
        shape: tuple[int, ...],
        position: NDArray,
        quaternion: NDArray,
        matrix: NDArray,
    ) -> None:
        if not (np.isfinite(position).all() and np.isfinite(quaternion).all()):
            return
        # Its pose is one in the environment, though its path may lie below a body.
        turn = rr.Quaternion(xyzw=quaternion)
        pose = rr.Transform3D(translation=position, quaternion=turn, parent_frame=f"tf#{entity_path(root)}")
        pinhole = rr.Pinhole(
            image_from_camera=matrix,
            width=shape[1],
            height=shape[0],
            camera_xyz=rr.ViewCoordinates.RUB,
            image_plane_distance=self._distance,
        )
        self._recording.log(path, pose, pinhole, strict=True)

    def _show_image(self, path: str, pixels: NDArray[np.uint8]) -> None:
        with io.BytesIO() as file:
            Image.fromarray(np.ascontiguousarray(pixels)).save(file, "JPEG", quality=_QUALITY)
            image = rr.EncodedImage(contents=file.getvalue(), media_type="image/jpeg")
        self._recording.log(f"{path}/rgb", image, strict=True)


def camera_paths(
    scene: SceneDescription, env_ids: NDArray[np.int64], names: Sequence[str], is_tree: bool
) -> dict[str, list[str]]:
    """The entities of cameras, by name: in a tree one for each environment, else one for all."""
    if not is_tree:
        return {name: [f"{_TILED}/{rr.escape_entity_path_part(name)}"] for name in names}
    return {name: [_camera_path(scene, scene.env_path(env), name) for env in env_ids.tolist()] for name in names}


def _camera_path(scene: SceneDescription, root: str, name: str) -> str:
    """A camera's own path, or one below the environment for a camera that is not the model's."""
    try:
        return entity_path(join_path(root, scene.cameras[scene.camera_index(name)].path_name))
    except UnknownNameError:
        return f"{entity_path(root)}/cameras/{rr.escape_entity_path_part(name)}"
