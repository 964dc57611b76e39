"""Instances and tags out of (object id, object type), for render backends that have no such planes of their own."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from scene_data.errors import UnknownNameError
from scene_data.scene import SceneDescription

if TYPE_CHECKING:
    import torch

__all__ = ["BACKGROUND", "UNLABELLED", "SegmentationLabels", "colors_of"]

BACKGROUND = 0
UNLABELLED = 1
_FIRST = 2
_RESERVED = {BACKGROUND: "BACKGROUND", UNLABELLED: "UNLABELLED"}

# Object types of the SEGMENTATION plane, in MuJoCo's numbering.
_GEOM, _FLEX, _SKIN = 5, 9, 11


class SegmentationLabels:
    """The labels of one scene for one camera.

    Ids 0 and 1 are the background and what has no label, extra geometry among it. Instances are the bodies, flexes and
    skins of each environment, and what is fixed to the world of engines without a world body; each has an id of its
    own. A tag has the same id in all environments.

    Args:
        scene: What is drawn.
        semantic_tags: (pattern, tag) pairs; see `CameraCfg`.

    Raises:
        UnknownNameError: A pattern that matches nothing.
    """

    def __init__(self, scene: SceneDescription, semantic_tags: Sequence[tuple[str, str]]):
        self._scene = scene
        self._tags = list(dict.fromkeys(tag for _, tag in semantic_tags))
        self._deformables = (*scene.flexes, *scene.skins)
        parts = (*scene.shapes, *self._deformables)
        self._first_of_kind = {_GEOM: 0, _FLEX: len(scene.shapes), _SKIN: len(scene.shapes) + len(scene.flexes)}
        self._part_count = len(parts)
        self._instances_per_env = len(scene.bodies) + len(self._deformables) + 1
        bodies = [shape.body if shape.body >= 0 else self._instances_per_env - 1 for shape in scene.shapes]
        deformables = len(scene.bodies) + np.arange(len(self._deformables))
        self._instance_of = np.array([*bodies, *deformables, -1, -2], dtype=np.int32)
        tags = [self._tag_of(part, semantic_tags) for part in parts]
        self._semantic_of = np.array([*tags, UNLABELLED, BACKGROUND], dtype=np.int32)
        self._tables: dict[tuple[str, str], torch.Tensor] = {}
        for pattern, _ in semantic_tags:
            names = [name for part in (*parts, *scene.bodies) for name in _names(part)]
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UnknownNameError("name in semantic_tags", pattern, dict.fromkeys(name for name in names if name))

    @cached_property
    def instances(self) -> dict[int, str]:
        """Path of each instance id."""
        labels = dict(_RESERVED)
        for env in range(self._scene.num_envs):
            paths = [
                *self._scene.body_paths(env),
                *self._scene.paths(self._deformables, env),
                self._scene.env_path(env),
            ]
            first = _FIRST + env * self._instances_per_env
            labels.update(enumerate(paths, start=first))
        return labels

    @cached_property
    def tags(self) -> dict[int, str]:
        """Tag of each semantic id."""
        return {**_RESERVED, **dict(enumerate(self._tags, start=_FIRST))}

    def instance_ids(self, segmentation: "torch.Tensor") -> "torch.Tensor":
        """Instance ids (N, H, W, 1) int32 of a segmentation (N, H, W, 2), on its device."""
        import torch

        instance = self._look_up("instances", self._instance_of, segmentation)
        envs = torch.arange(len(instance), dtype=torch.int32, device=instance.device).view(-1, 1, 1, 1)
        ids = instance + (_FIRST + self._instances_per_env * envs)
        return torch.where(instance >= 0, ids, instance + 2)  # -1 and -2 are what has no label and the background

    def semantic_ids(self, segmentation: "torch.Tensor") -> "torch.Tensor":
        """Tag ids (N, H, W, 1) int32 of a segmentation (N, H, W, 2), on its device."""
        return self._look_up("tags", self._semantic_of, segmentation)

    def _look_up(self, name: str, values: np.ndarray, segmentation: "torch.Tensor") -> "torch.Tensor":
        import torch

        key = name, str(segmentation.device)
        if key not in self._tables:
            self._tables[key] = torch.as_tensor(values, device=segmentation.device)
        ids, kinds = segmentation[..., :1], segmentation[..., 1:]
        rows = torch.where(kinds < 0, self._part_count + 1, self._part_count)
        for kind, first in self._first_of_kind.items():
            rows = torch.where(kinds == kind, first + ids, rows)
        return self._tables[key][rows]

    def _tag_of(self, part, semantic_tags: Sequence[tuple[str, str]]) -> int:
        body = getattr(part, "body", -1)
        candidates = [_names(part)] + ([_names(self._scene.bodies[body])] if body >= 0 else [])
        for names in candidates:
            for pattern, tag in semantic_tags:
                if any(fnmatchcase(name, pattern) for name in names):
                    return _FIRST + self._tags.index(tag)
        return UNLABELLED


def colors_of(ids: "torch.Tensor") -> "torch.Tensor":
    """Colours (..., 4) uint8 of ids (..., 1): the same for the same id, and nothing with alpha 0 for the background."""
    import torch

    # Weyl sequences with irrational steps spread successive ids over the colours.
    steps = torch.tensor([0.7548776662, 0.5698402910, 0.4301597090], device=ids.device)
    color = (64 + 191 * torch.frac(ids.to(torch.float32) * steps + 0.5)).to(torch.uint8)
    alpha = torch.full_like(color[..., :1], 255)
    return torch.where(ids == BACKGROUND, torch.zeros_like(color[..., :1]), torch.cat((color, alpha), dim=-1))


def _names(part) -> tuple[str, ...]:
    return part.name, part.path_name
