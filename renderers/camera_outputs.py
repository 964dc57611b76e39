"""What is made of rendered planes before a user reads them: clipped distances, instances and tags, colours."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from scene_data.camera import CameraCfg
from scene_data.renderers.render_core import CameraDescriptor, PlaneKind
from scene_data.renderers.segmentation_labels import SegmentationLabels, colors_of
from scene_data.scene import SceneDescription

if TYPE_CHECKING:
    import torch

__all__ = ["OutputMakers"]

Maker = Callable[["torch.Tensor"], "torch.Tensor"]

_DISTANCES = ("depth", "distance_to_image_plane", "distance_to_camera")


class OutputMakers(Mapping[str, Maker]):
    """Makes the outputs of a camera, by data type; what is handed out as it was rendered is not in it.

    Raises:
        UnknownNameError: A pattern among the semantic tags that matches nothing in the scene.
    """

    def __init__(self, cfg: CameraCfg, descriptor: CameraDescriptor, scene: SceneDescription):
        self._makers: dict[str, Maker] = {}
        self._tables: dict[str, Callable[[], dict[int, str]]] = {}
        if cfg.depth_clipping_behavior != "none":
            clip = _clip_to_zero if cfg.depth_clipping_behavior == "zero" else _clip_to_limits
            near, far = cfg.clipping_range
            for data_type in set(cfg.data_types) & set(_DISTANCES):
                self._makers[data_type] = lambda distance: clip(distance, near, far)
        labels = SegmentationLabels(scene, cfg.semantic_tags)  # pyright: ignore[reportArgumentType]
        for plane, ids, table in (
            (PlaneKind.INSTANCE_SEGMENTATION, labels.instance_ids, lambda: labels.instances),
            (PlaneKind.SEMANTIC_SEGMENTATION, labels.semantic_ids, lambda: labels.tags),
        ):
            if plane.value in cfg.data_types and plane not in descriptor.planes:
                self._tables[plane.value] = table
                self._makers[plane.value] = _colored(ids) if cfg.colorize_segmentation else ids

    def __getitem__(self, data_type: str) -> Maker:
        return self._makers[data_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def id_to_labels(self) -> dict[str, dict[int, str]]:
        """The tables of the ids that are made."""
        return {data_type: table() for data_type, table in self._tables.items()}


def _clip_to_limits(distance: "torch.Tensor", near: float, far: float) -> "torch.Tensor":
    return distance.clamp(near, far)


def _clip_to_zero(distance: "torch.Tensor", near: float, far: float) -> "torch.Tensor":
    return distance.where((distance >= near) & (distance <= far), distance.new_zeros(()))


def _colored(ids: Maker) -> Maker:
    return lambda segmentation: colors_of(ids(segmentation))
