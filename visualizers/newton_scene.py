"""The scene as Newton's viewer shows it: a Newton model, whose state is bound to what the provider publishes."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scene_data.formats import SceneDataFormat
from scene_data.geometry_sources import PackedGeometry
from scene_data.interop.newton import build_newton_look
from scene_data.provider import SceneDataProvider
from scene_data.scene import ClonePlan, SceneDescription, ShapeType

from .deforming import deforming_assets
from .newton_deformables import NewtonDeformables
from .newton_markers import NewtonMarkers
from .newton_meshes import NewtonMeshes
from .newton_window import NewtonWindow
from .shape_colors import ShapeColors

__all__ = ["NewtonScene"]

_logger = logging.getLogger(__name__)


class NewtonScene:
    """What stands and moves in one window.

    Args:
        window: Where to draw it.
        provider: Publishes poses and points.
        scene: What there is.
        env_ids: The environments to show, `(E,)`.
        spacing: Distance between neighbours in their grid [m].
        groups: Visibility groups that are shown.

    Attributes:
        description: What there is.
        model: The Newton model. World `i` is environment `env_ids[i]`.
        state: Its state. `body_q` is the provider's own array, where all environments are shown in their order.
        offsets: Where each environment is moved to [m], `(E, 3)`.
    """

    def __init__(
        self,
        window: NewtonWindow,
        provider: SceneDataProvider,
        scene: SceneDescription,
        env_ids: NDArray[np.int64],
        spacing: float,
        groups: Sequence[int],
    ):
        self.description = scene
        self._window = window
        self._provider = provider
        self._poses = SceneDataFormat.Transform()
        self._is_empty = not len(env_ids)
        self._mapping, self._count = _mapping(provider, scene, env_ids)
        is_spread = len(env_ids) > 1 and spacing > 0.0
        reach = spacing * np.ceil(np.sqrt(len(env_ids)))
        meshes = NewtonMeshes(scene, max(10.0 * scene.extent, 4.0 * reach), is_spread, len(env_ids))
        look = build_newton_look(
            # Deforming things are drawn apart from the model: they are more than Newton's viewer knows of.
            replace(scene, flexes=(), clone_plan=ClonePlan(max(len(env_ids), 1))),
            device=provider.device,
            is_drawn=lambda part: part.group in groups and not self._is_empty,
            # One floor serves all; what else stands in the world stands in each environment that is moved.
            is_shared=lambda shape: not is_spread or shape.type is ShapeType.PLANE,
            mesh_of=meshes.of,
        )
        self.model = look.model
        self._colors = ShapeColors(scene)
        self._shapes = look.shapes
        worlds = (
            np.zeros(len(look.shapes), np.int64) if look.model.shape_world is None else look.model.shape_world.numpy()
        )
        # What all environments share looks as in the first of them.
        self._envs_of_shapes = worlds if self._is_empty else env_ids[np.maximum(worlds, 0)]
        self.state = look.model.state()
        window.set_model(look.model)
        window.set_world_offsets((spacing, spacing, 0.0) if is_spread else (0.0, 0.0, 0.0))
        # The user's pull is for a solver that knows these bodies; an engine that is none would not hear of it.
        is_whole = self._mapping is None and len(env_ids) == scene.num_envs
        window.pick_from(scene.native("newton_model") if is_whole else None)
        self.offsets = window.world_offsets.numpy().astype(np.float64)[: len(env_ids)]
        self._deformables = NewtonDeformables(window, provider, scene, env_ids, self.offsets, groups)
        self._markers = NewtonMarkers(window, env_ids, self.offsets)
        self.read()
        _tell_what_is_missing(scene)

    def read(self) -> None:
        """Bind the poses and fetch the points of the present state."""
        with self._provider.consistent_read():
            if not self._is_empty and self._provider.get_transforms(self._poses, self._mapping, count=self._count):
                self.state.body_q = self._poses.transforms
            self._deformables.read()

    def show_colors(self, colors: NDArray[np.float32] | None) -> None:
        """Draw shapes in these colours, RGBA `(N, S, 4)`; None is the model's. Opacities stay as they are."""
        shown = self.model.shape_color
        if self._colors.change(colors) and shown is not None:
            shown.assign(np.ascontiguousarray(self._colors.table[self._envs_of_shapes, self._shapes, :3]))

    def show(self, markers: PackedGeometry | None) -> None:
        """Hand what was read, and extra geometry, to the window."""
        if not self._window.is_rendering_paused():
            self._deformables.show()
            self._markers.show(markers)
        self._window.take(self.state, self._provider.simulation_time_ns * 1e-9)


def _mapping(
    provider: SceneDataProvider, scene: SceneDescription, env_ids: NDArray[np.int64]
) -> tuple[Any, int | None]:
    """Mapping and count that bring the poses of these environments; None for the first ones, whose order is native."""
    if np.array_equal(env_ids, np.arange(len(env_ids))):
        return None, None
    paths: list[str | None] = [path for env in env_ids.tolist() for path in scene.body_paths(env)]
    return provider.create_mapping(paths), len(paths)


def _tell_what_is_missing(scene: SceneDescription) -> None:
    if textured := sum(_has_texture(scene, asset.material) for asset in deforming_assets(scene)):
        _logger.info("Newton's viewer shows %d deforming textures as their mean colour.", textured)


def _has_texture(scene: SceneDescription, material: int | None) -> bool:
    return material is not None and bool(scene.materials[material].textures.keys() & {"rgb", "rgba"})
