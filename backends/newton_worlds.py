"""The worlds of a Newton model as environments: what belongs to which, whether they are copies, and their paths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile, zip_longest
from typing import Any

import newton
import numpy as np
from numpy.typing import NDArray

from scene_data.usd_paths import clean_identifier, join_path, unique_identifiers

__all__ = ["Deformable", "NewtonWorlds", "array_or_empty"]

_LOOSE = "particles"
Taken = dict[str, list[str]]


@dataclass(frozen=True)
class Deformable:
    """A labelled object of several particles or bodies.

    Attributes:
        kind: `"surface"`, `"volume"`, `"curve"`, or `"particles"` for those that belong to no object.
        label: Newton's label, possibly empty.
        start, end: Range of its particles, or of its bodies if it is a curve.
        element_start, element_end: Range of its triangles, of its tetrahedra, or of its joints if it is a curve.
    """

    kind: str
    label: str
    start: int
    end: int
    element_start: int = 0
    element_end: int = 0


class NewtonWorlds:
    """Bodies, shapes, particles and deformables of a model by world, and a path for each that is published.

    World `i` is environment `i`. A model without worlds is one environment. In a model with worlds, what belongs to
    none of them is global: it has index -1 here, and its paths are below `/World` rather than below an environment.

    Attributes:
        num_envs: Number of environments.
        has_worlds: Whether the model has worlds; without them, what belongs to none is environment 0.
        bodies, shapes, particles: Indices of what belongs to each environment, the global ones last.
        deformables: Objects of each environment, the global ones last.
        parents: Parent body of each body, -1 for the world, int32 of shape (body_count,).
    """

    def __init__(self, model: newton.Model):
        self.model = model
        self.num_envs = max(model.world_count, 1)
        worlds = [array_or_empty(array) for array in (model.body_world, model.shape_world, model.particle_world)]
        self.has_worlds = any(array.max(initial=-1) >= 0 for array in worlds)
        self.bodies, self.shapes, self.particles = (self._members(array) for array in worlds)
        self.deformables = self._collect_deformables()
        self.parents = _parents(model)

    # Paths

    @cached_property
    def body_paths(self) -> list[str]:
        """Path of each body, in the model's order."""
        paths = [""] * self.model.body_count
        for env, bodies in enumerate(self.bodies):
            names, _ = self._names(env)
            for body, name in zip(bodies, names, strict=True):
                paths[body] = join_path(self.root(env), name)
        return paths

    def deformable_paths(self, *kinds: str) -> Iterator[tuple[str, Deformable]]:
        """The objects of these kinds with their paths, environment by environment, the global ones last."""
        for env, deformables in enumerate(self.deformables):
            _, names = self._names(env)
            for name, deformable in zip(names, deformables, strict=True):
                if deformable.kind in kinds:
                    yield join_path(self.root(env), name), deformable

    def root(self, env: int) -> str:
        """Path of an environment, or of what is global where `env` is `num_envs`."""
        return "/World" if env == self.num_envs else f"/World/envs/env_{env}"

    @cached_property
    def prototype_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names below the environment of the first world's bodies and of its deformables."""
        return self._environment_names(0)

    def _names(self, env: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        copied = env < self.num_envs and self.difference is None
        return self.prototype_names if copied else self._environment_names(env)

    def _environment_names(self, env: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        drop = self._prefix_lengths[env] if env < self.num_envs else 0
        taken: Taken = {} if env < self.num_envs else {"": ["envs"]}
        labels = [_components(self.model.body_label[body])[drop:] for body in self.bodies[env]]
        bodies = _path_names(labels, "body", taken)
        objects = [
            [_LOOSE] if deformable.kind == _LOOSE else _components(deformable.label)[drop:]
            for deformable in self.deformables[env]
        ]
        return bodies, _path_names(objects, "points", taken)

    @cached_property
    def _prefix_lengths(self) -> list[int]:
        """How many leading components of a world's labels say only which world it is: up to the last that differs."""
        prefixes = [_shared_prefix(self._labels(env)) for env in self._envs()]
        columns = zip_longest(*prefixes)
        length = max((index + 1 for index, column in enumerate(columns) if len(set(column)) > 1), default=0)
        if not length and prefixes[0][:3] == ["World", "envs", "env_0"]:
            length = 3
        return [min(length, len(prefix)) for prefix in prefixes]

    def _labels(self, env: int) -> list[str]:
        labels = [self.model.body_label[body] for body in self.bodies[env]]
        labels += [deformable.label for deformable in self.deformables[env] if deformable.kind != _LOOSE]
        return [label for label in labels if label] or [""]

    # Whether the worlds are copies

    @cached_property
    def difference(self) -> str | None:
        """How the first world that is no copy of world 0 differs from it, or None. Colours do not count."""
        for what, values in self._compared():
            for env in self._envs():
                if values[env].shape != values[0].shape or not np.array_equal(values[env], values[0]):
                    return f"world {env} differs from world 0 in its {what}"
        return None

    def _compared(self) -> Iterator[tuple[str, list[NDArray[Any]]]]:
        model = self.model
        first_body = [bodies[0] if len(bodies) else 0 for bodies in self.bodies]
        first_particle = [particles[0] if len(particles) else 0 for particles in self.particles]

        def relative(owners: NDArray[Any], members: list[NDArray[Any]]) -> list[NDArray[Any]]:
            chosen = [owners[indices] for indices in members]
            return [np.where(own < 0, own, own - first_body[env]) for env, own in enumerate(chosen)]

        yield "bodies", relative(self.parents, self.bodies)
        sources = np.array([0 if source is None else hash(source) for source in model.shape_source], dtype=np.int64)
        for what, array in (
            ("types of shapes", array_or_empty(model.shape_type)),
            ("scales of shapes", array_or_empty(model.shape_scale)),
            ("poses of shapes", array_or_empty(model.shape_transform)),
            ("meshes", sources),
        ):
            yield what, [array[shapes] for shapes in self.shapes]
        yield "shapes", relative(array_or_empty(model.shape_body), self.shapes)
        yield "particles", [np.array(len(particles)) for particles in self.particles]
        yield (
            "deformables",
            [
                np.array(
                    [
                        (d.kind, d.start - first, d.end - first)
                        for d in deformables
                        for first in [first_body[env] if d.kind == "curve" else first_particle[env]]
                    ]
                )
                for env, deformables in enumerate(self.deformables)
            ],
        )

    # What belongs to which world

    def _envs(self) -> range:
        return range(self.num_envs)

    def _members(self, worlds: NDArray[np.int32]) -> list[NDArray[np.intp]]:
        if not self.has_worlds:
            return [np.arange(len(worlds)), np.arange(0)]
        order = np.argsort(worlds, kind="stable")
        shared, *members = np.split(order, np.searchsorted(worlds[order], np.arange(self.num_envs)))
        return [*members, shared]

    def _collect_deformables(self) -> list[list[Deformable]]:
        model = self.model
        found: list[list[Deformable]] = [[] for _ in range(self.num_envs + 1)]
        for kind, member, element in (
            ("surface", "particle", "tri"),
            ("volume", "particle", "tet"),
            ("curve", "body", "joint"),
        ):
            labels = getattr(model, f"{kind}_label")
            columns = [
                f"{kind}_world",
                *(f"{kind}_{part}_{end}" for part in (member, element) for end in ("start", "end")),
            ]
            for label, world, *ranges in zip(
                labels, *(array_or_empty(getattr(model, name)) for name in columns), strict=True
            ):
                env = world if self.has_worlds else 0
                found[env].append(Deformable(kind, label, *map(int, ranges)))
        for env, particles in enumerate(self.particles):
            found[env] += _loose_particles(particles, found[env])
        return found


def array_or_empty(array: Any) -> NDArray[Any]:
    """A Warp array on the host, or an empty array of indices for what the model lacks."""
    return np.zeros(0, np.int32) if array is None else array.numpy()


def _loose_particles(particles: NDArray[np.intp], objects: Sequence[Deformable]) -> list[Deformable]:
    """Contiguous runs of the particles that belong to no object."""
    loose = particles
    for deformable in objects:
        if deformable.kind != "curve":
            loose = loose[(loose < deformable.start) | (loose >= deformable.end)]
    runs = np.split(loose, np.flatnonzero(np.diff(loose) != 1) + 1) if len(loose) else []
    return [Deformable(_LOOSE, "", int(run[0]), int(run[-1]) + 1) for run in runs]


def _parents(model: newton.Model) -> NDArray[np.int32]:
    parents = np.full(model.body_count, -1, np.int32)
    # Backwards, so that a joint that closes a loop gives way to the one that comes first.
    children = array_or_empty(model.joint_child)[::-1]
    parents[children] = array_or_empty(model.joint_parent)[::-1]
    return parents


def _components(label: str) -> list[str]:
    return [component for component in label.split("/") if component]


def _shared_prefix(labels: Sequence[str]) -> list[str]:
    """The components that all labels begin with, their last ones apart."""
    columns = zip(*(_components(label)[:-1] for label in labels), strict=False)
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]


def _path_names(labels: Sequence[list[str]], fallback: str, taken: Taken) -> tuple[str, ...]:
    """A path for each label, whose components become identifiers. `taken` holds the names below each parent path."""
    names = [""] * len(labels)
    siblings: dict[str, list[int]] = {}
    for index, label in enumerate(labels):
        parent = "/".join(clean_identifier(component) for component in label[:-1])
        siblings.setdefault(parent, []).append(index)
    for parent, indices in siblings.items():
        used = taken.setdefault(parent, [])
        leaves = unique_identifiers([labels[index][-1] if labels[index] else "" for index in indices], fallback, used)
        used += leaves
        for index, leaf in zip(indices, leaves, strict=True):
            names[index] = f"{parent}/{leaf}" if parent else leaf
    return tuple(names)
