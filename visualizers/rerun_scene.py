"""The scene as Rerun shows it: geometry is sent once, for good, and its poses again and again.

A few environments are trees: an entity for each body, which has its pose, and below it one for each shape. More of them
share one entity for each shape, with an instance for each environment, so that entities do not become too many.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import rerun as rr
from numpy.typing import NDArray

from scene_data.provider import SceneDataProvider
from scene_data.scene import WORLD, SceneDescription, ShapeDescription, ShapeType
from scene_data.usd_paths import join_path

from .height_fields import HeightFieldWatch
from .instance_poses import InstancePoses, PlacedInstances
from .instancing import Instances
from .rerun_arrays import as_rows, instance_poses, log_components, transform
from .rerun_geometry import Geometry, RerunGeometry, recoloured
from .shape_colors import ShapeColors

__all__ = ["ALL_ENVS", "RerunScene", "entity_path"]

ALL_ENVS = "*"
"""Stands for the index of the environment in paths of entities that all of them share."""

_IDENTITY = (0.0, 0.0, 0.0, 1.0)
_XYZW = np.array([1, 2, 3, 0])


class _Place(NamedTuple):
    """An entity, and which of all poses are its: those from `start` to `end`."""

    path: str
    start: int
    end: int
    is_static: bool


class _Drawn(NamedTuple):
    """An entity that shows a shape, as what, and in which environments."""

    path: str
    shape: ShapeDescription
    kind: type[Geometry]
    envs: NDArray[np.int64]


class RerunScene:
    """What stands and moves in one recording.

    Args:
        recording: Where to show it.
        provider: Publishes the poses.
        scene: What there is.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.
        geom_groups: Visibility groups that are shown.
        is_tree: Whether each environment is a tree.
    """

    def __init__(
        self,
        recording: rr.RecordingStream,
        provider: SceneDataProvider,
        scene: SceneDescription,
        env_ids: NDArray[np.int64],
        offsets: NDArray[np.float64],
        geom_groups: Sequence[int],
        is_tree: bool,
    ):
        self._recording = recording
        self._scene = scene
        self._env_ids = env_ids
        reach = float(np.abs(offsets).max()) if len(offsets) else 0.0
        self._is_spread = reach > 0.0
        self._height_fields = HeightFieldWatch(provider, scene)
        self._terrains: list[_Drawn] = []
        self._drawn: list[_Drawn] = []
        self._colors = ShapeColors(scene)
        self._geometry = RerunGeometry(scene, max(10.0 * scene.extent, 4.0 * reach), self._is_spread)
        shapes = [s for s in scene.shapes if s.group in geom_groups and s.rgba[3] > 0.0] if len(env_ids) else []
        self._is_tree = is_tree
        groups, envs = self._add_trees(shapes, offsets) if is_tree else self._add_batches(shapes, offsets)
        self._poses = InstancePoses(provider, scene, groups, envs, env_ids)
        if not is_tree:
            self._poses.set_offsets(offsets)
        starts = range(len(self._paths) + 1) if is_tree else self._poses.starts.tolist()
        edges = zip(self._paths, pairwise(starts), self._is_static, strict=True)
        places = [_Place(path, start, end, is_static) for path, (start, end), is_static in edges]
        self._moving = [place for place in places if not place.is_static]
        if placed := self._poses.read():
            self._send(placed, places)

    def show_colors(self, colors: NDArray[np.float32] | None) -> None:
        """Send what shapes are coloured in, RGBA `(N, S, 4)`, for good; None is the model's."""
        if self._colors.change(colors):
            for drawn in self._drawn:
                self._keep_colours(drawn)

    def update(self, has_passed: bool) -> bool:
        """Send where everything is that moves; whether anything was sent.

        Args:
            has_passed: Whether time has passed. Where it has not, nothing is sent but news.
        """
        has_news = self._change_terrains()
        placed = self._poses.read()
        if placed is None or not (has_passed or placed.has_moved.any() or placed.has_turned_visible.any()):
            return has_news
        self._send(placed, self._moving)
        return True

    # -- trees

    def _add_trees(
        self, shapes: Sequence[ShapeDescription], offsets: NDArray[np.float64]
    ) -> tuple[list[Instances], list[NDArray[np.int64]]]:
        """The geometry of each environment; the frames of its bodies are what is placed."""
        scene = self._scene
        looks = [self._geometry.of(shape, 1) for shape in shapes]
        for env, offset in zip(self._env_ids.tolist(), offsets, strict=True):
            root = scene.env_path(env)
            self._keep(root, rr.Transform3D(translation=offset))
            for shape, look in zip(shapes, looks, strict=True):
                if env in self._envs_of(shape):
                    turn = rr.Quaternion(xyzw=shape.quaternion)
                    place = rr.Transform3D(translation=shape.position, quaternion=turn)
                    self._keep_shape(join_path(root, shape.path_name), shape, look, np.array([env]))
                    self._keep(join_path(root, shape.path_name), place)
        bodies = _framed_bodies(scene)
        count = len(bodies)
        frames = Instances(bodies, [np.zeros(3)] * count, [np.array(_IDENTITY)] * count, [np.ones(3)] * count)
        names = [scene.bodies[body].path_name for body in bodies]
        roots = [scene.env_path(env) for env in self._env_ids.tolist()]
        self._paths = [entity_path(join_path(root, name)) for root in roots for name in names]
        self._is_static = [scene.bodies[body].is_static for body in bodies] * len(roots)
        return [frames], [self._env_ids]

    # -- batches

    def _add_batches(
        self, shapes: Sequence[ShapeDescription], offsets: NDArray[np.float64]
    ) -> tuple[list[Instances], list[NDArray[np.int64]]]:
        """The geometry of all environments; the instances of each shape are what is placed."""
        root = self._scene.clone_plan.root.format(ALL_ENVS)
        for shape in shapes:
            envs = self._envs_of(shape)
            count = len(envs)
            self._keep_shape(join_path(root, shape.path_name), shape, self._geometry.of(shape, count), envs)
            if shape.body == WORLD:
                places = shape.position + offsets[:count]
                poses = rr.InstancePoses3D(translations=places, quaternions=[shape.quaternion] * count)
                self._keep(join_path(root, shape.path_name), poses)
        placed = [shape for shape in shapes if shape.body != WORLD]
        groups = [Instances() for _ in placed]
        for group, shape in zip(groups, placed, strict=True):
            group.add(shape, np.ones(3), np.zeros(3))
        self._paths = [entity_path(join_path(root, shape.path_name)) for shape in placed]
        self._is_static = [self._scene.is_static(shape) for shape in placed]
        return groups, [self._envs_of(shape) for shape in placed]

    def _envs_of(self, shape: ShapeDescription) -> NDArray[np.int64]:
        """Where a shape is shown. What stands in every environment alike is there once, unless they are spread out."""
        is_shared = self._scene.is_static(shape) and (shape.type is ShapeType.PLANE or not self._is_spread)
        return self._env_ids[:1] if is_shared else self._env_ids

    # -- both

    def _keep(self, path: str, *components: rr.AsComponents) -> None:
        """Send what stays as it is."""
        self._recording.log(entity_path(path), *components, static=True, strict=True)

    def _keep_shape(self, path: str, shape: ShapeDescription, look: Geometry, envs: NDArray[np.int64]) -> None:
        self._keep(path, look)
        self._drawn.append(drawn := _Drawn(path, shape, type(look), envs))
        if shape.height_field is not None:
            self._terrains.append(drawn)

    def _keep_colours(self, drawn: _Drawn) -> None:
        self._keep(drawn.path, recoloured(drawn.kind, self._colors.of((drawn.shape,), drawn.envs)))

    def _change_terrains(self) -> bool:
        """Send the height fields that have changed, for good; whether there were any."""
        changed = self._height_fields.changed() if self._terrains else {}
        for index, field in changed.items():
            self._geometry.change_height_field(index, field)
        for drawn in self._terrains:
            if drawn.shape.height_field in changed:
                self._keep(drawn.path, self._geometry.of(drawn.shape, len(drawn.envs)))
                self._keep_colours(drawn)
        return bool(changed)

    def _send(self, placed: PlacedInstances, places: Sequence[_Place]) -> None:
        """Send the poses of these; for good, where they never move."""
        positions, quaternions = as_rows(placed.positions.copy()), as_rows(placed.wxyz.take(_XYZW, axis=1))
        are_all_there = bool(placed.is_finite.all())
        recording = self._recording.to_native()
        for path, start, end, is_static in places:
            rows = positions.slice(start, end - start), quaternions.slice(start, end - start)
            is_there = None if are_all_there else placed.is_finite[start:end]
            if self._is_tree:
                poses = transform(*rows, is_there is None or bool(is_there[0]))
            else:
                poses = instance_poses(*rows, is_there)
            log_components(recording, path, poses, is_static)


def entity_path(path: str) -> str:
    """A USD path as Rerun writes it."""
    return "/" + "/".join(rr.escape_entity_path_part(part) for part in path.strip("/").split("/"))


def _framed_bodies(scene: SceneDescription) -> list[int]:
    """Bodies that carry something, or other bodies. Vertices of a cloth are bodies too, but no frames to look at."""
    carriers = {part.body for part in (*scene.shapes, *scene.sites, *scene.cameras, *scene.lights)}
    carriers |= {body.parent for body in scene.bodies}
    return [index for index in range(len(scene.bodies)) if index in carriers]
