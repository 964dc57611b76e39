"""NewtonStage: the Newton model of a scene that a camera sensor looks at, brought up to snapshots."""

from typing import Any

import numpy as np
import warp as wp
from newton.sensors import SensorCamera
from numpy.typing import NDArray

from scene_data.appearance_state import NOTHING_SET, AppearanceState
from scene_data.interop.newton import build_newton_look, newton_scale
from scene_data.launches import KeptLaunch
from scene_data.scene import SceneDescription, ShapeDescription

from . import newton_kernels as kernels
from .render_core.snapshots import RenderSnapshot

__all__ = ["FLEX", "GEOM", "NewtonStage"]

# MuJoCo's numbers for types of objects, which all render backends use.
GEOM, FLEX = 5, 9


class NewtonStage:
    """The Newton model for one choice of visible groups, and its sensor.

    A shape that stands in the world itself is in the model once, until environments differ in it too.

    Args:
        scene: The scene.
        groups: Visible groups.
        device: Where the model is.

    Attributes:
        model: The model.
        state: Its state.
        sensor: What draws it.
        flex: Object id and type of all that is not a shape.
        shape_object: Object id of each shape of the model.
        drawings: What somebody keeps of drawing with this sensor; empty again when another takes its place.
    """

    def __init__(self, scene: SceneDescription, groups: tuple[int, ...], device: wp.Device):
        self._scene = scene
        self._groups = groups
        self._device = device
        self._place_bodies = KeptLaunch(kernels.place_bodies, device)
        self._place_points = KeptLaunch(kernels.place_points, device)
        self._build(frozenset())

    def _build(self, apart: frozenset[ShapeDescription]) -> None:
        """Make a model with one of these for each environment, wherever they stand."""
        device, groups = self._device, self._groups
        look = build_newton_look(
            self._scene,
            device,
            is_drawn=lambda part: part.group in groups,
            is_shared=lambda shape: shape not in apart,
            has_backs=True,
        )
        self._apart = apart
        self.model: Any = look.model
        self.state: Any = self.model.state()
        self.sensor = SensorCamera(look.model)
        self.sensor.create_default_light()
        self.flex = wp.vec2i(look.flexes[0], FLEX) if look.flexes else wp.vec2i(-1, -1)
        self.shape_object = wp.array(look.shapes, dtype=wp.int32, device=device)
        self._has_surfaces = bool(look.flexes)
        self._fronts = wp.array(look.backs, dtype=wp.vec3i, device=device)
        self._shapes = look.shapes
        worlds = self.model.shape_world
        self._env_of_shape = np.zeros(0, np.int32) if worlds is None else worlds.numpy()
        self._dressed = NOTHING_SET
        self.drawings: dict[Any, Any] = {}
        if self._has_surfaces:  # from here on they are the same arrays
            self.sensor.sync_deformable_meshes(self.state)

    def dress(self, appearance: AppearanceState) -> None:
        """Give the shapes of each environment their colours and sizes. Costs nothing when nothing was set since."""
        if appearance is self._dressed:
            return
        differing = self._differing_in_world(appearance.shape_colors, appearance.shape_sizes)
        if differing:
            self._build(self._apart | differing)
        colors, sizes, shapes = appearance.shape_colors, appearance.shape_sizes, self._scene.shapes
        if colors is not self._dressed.shape_colors:
            rows = self._rows(colors, np.array([shape.rgba for shape in shapes]))
            self.model.shape_color.assign(np.ascontiguousarray(rows[:, :3], np.float32))
        if sizes is not self._dressed.shape_sizes:
            rows = self._rows(sizes, np.array([shape.size for shape in shapes], np.float32))
            for index in np.unique(self._shapes):
                own = self._shapes == index
                rows[own] = newton_scale(shapes[index].type, rows[own])
            self.model.shape_scale.assign(rows)
        self._dressed = appearance

    def place(self, snapshot: RenderSnapshot, diverged: wp.array) -> None:
        """Bring bodies and points to where the snapshot has them, and flag environments that have diverged."""
        bodies = snapshot.transforms
        inputs, outputs = [bodies.positions, bodies.orientations], [self.state.body_q, diverged]
        self._place_bodies.launch(self.model.body_count, inputs, outputs)
        if self.model.particle_count:
            inputs, outputs = [snapshot.points, self._fronts], [self.state.particle_q, diverged]
            backs = self._fronts.size  # of three particles each, placed together
            dim = (diverged.size, self.model.particle_count // diverged.size - 2 * backs)
            self._place_points.launch(dim, inputs, outputs)
        self.model.bvh_refit_shapes(self.state)
        if self._has_surfaces:
            self.sensor.sync_deformable_meshes(self.state)

    def _differing_in_world(self, *tables: NDArray[np.float32] | None) -> frozenset[ShapeDescription]:
        """Shapes that environments differ in, and that are in the model only once."""
        shared = self._shapes[self._env_of_shape < 0]
        differs = np.zeros(len(shared), bool)
        for table in tables:
            if table is not None:
                differs |= (table[:, shared] != table[:1, shared]).any(axis=(0, 2))
        return frozenset(self._scene.shapes[index] for index in shared[differs])

    def _rows(self, table: NDArray[np.float32] | None, initial: NDArray[np.float32]) -> NDArray[np.float32]:
        """Copies of the rows of the model's shapes, from a table (N, S, k) or else from the scene's own (S, k)."""
        if table is None:
            return initial[self._shapes]
        return table[np.maximum(self._env_of_shape, 0), self._shapes]
