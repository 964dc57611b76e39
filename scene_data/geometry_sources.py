"""Where extra geometry comes from: functions that are asked once per turn, on the thread that steps the physics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scene_data.errors import SceneDataError
from scene_data.extra_geometry import PRIMITIVES, GeometryBatch

__all__ = ["GeometryCapacityError", "GeometrySource", "GeometrySourceError", "GeometrySources", "PackedGeometry"]

GeometrySource = Callable[[], GeometryBatch | Iterable[GeometryBatch] | None]


class GeometrySourceError(SceneDataError, RuntimeError):
    """A source of extra geometry that raised, or gave something else than geometry.

    Attributes:
        source: The source's name.
    """

    def __init__(self, source: str, reason: str):
        self.source = source
        super().__init__(f"The geometry source {source!r} failed: {reason}")


class GeometryCapacityError(SceneDataError, ValueError):
    """Extra geometry that does not fit into what was reserved for it.

    Attributes:
        shape: Value of the type that does not fit.
        env: The first environment where it does not.
        count: Primitives of this type there.
        capacity: How many there may be.
    """

    def __init__(self, shape: str, env: int, count: int, capacity: int):
        self.shape = shape
        self.env = env
        self.count = count
        self.capacity = capacity
        super().__init__(
            f"Extra geometry does not fit: {count} of type {shape!r} in environment {env}, where there is room for "
            f"{capacity}. Raise extra_geometry_capacity."
        )


@dataclass(frozen=True, eq=False)
class PackedGeometry:
    """Extra geometry of one turn, sorted by environment and type: a copy that nobody writes to.

    Those of block `b = (env + 1) * len(PRIMITIVES) + type` are `first[b]` to `first[b + 1]`; in the blocks of
    environment -1 is what every environment shows.

    Attributes:
        first: Where each block begins, and the end of the last, int32.
        positions: (M, 3) float32 [m].
        quaternions: (M, 4) float32, (x, y, z, w).
        sizes: (M, 3) float32 [m].
        rgba: (M, 4) float32.
        ids: Index of each in the order in which the sources gave them (M,) int32.
        capacity: Room per environment, in the order of `PRIMITIVES`.
    """

    first: NDArray[np.int32]
    positions: NDArray[np.float32]
    quaternions: NDArray[np.float32]
    sizes: NDArray[np.float32]
    rgba: NDArray[np.float32]
    ids: NDArray[np.int32]
    capacity: tuple[int, ...]

    @classmethod
    def of(cls, batch: GeometryBatch, num_envs: int, capacity: tuple[int, ...]) -> "PackedGeometry":
        """Sort a batch whose environments are below `num_envs`, and check that it fits.

        Raises:
            GeometryCapacityError: There is more of a type in an environment than `capacity` allows.
        """
        envs, types = batch.envs, batch.types
        blocks = (envs + 1) * len(PRIMITIVES) + types
        counts = np.bincount(blocks, minlength=(num_envs + 1) * len(PRIMITIVES)).reshape(num_envs + 1, -1)
        shown = counts[0] + counts[1:]
        over = np.argwhere(shown > np.array(capacity))
        if over.size:
            env, shape = (int(index) for index in over[0])
            raise GeometryCapacityError(PRIMITIVES[shape].value, env, int(shown[env, shape]), capacity[shape])
        order = np.argsort(blocks, kind="stable")
        arrays = [
            np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
            *(
                np.asarray(values, dtype=np.float32)[order]
                for values in (batch.positions, batch.quaternions, batch.sizes, batch.rgba)
            ),
            order.astype(np.int32),
        ]
        for array in arrays:
            array.flags.writeable = False
        return cls(*arrays, capacity=capacity)

    def __len__(self) -> int:
        return len(self.ids)


class GeometrySources:
    """The sources of one simulation. Its owner's lock covers every call.

    Args:
        capacity: Room per environment, in the order of `PRIMITIVES`.

    Attributes:
        version: Counts additions and removals.
    """

    def __init__(self, capacity: tuple[int, ...]):
        self.capacity = capacity
        self.version = 0
        self._sources: dict[GeometrySource, str] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, source: GeometrySource, name: str | None = None) -> None:
        """Ask `source` from the next turn on.

        Raises:
            ValueError: It is a source already, or cannot be called.
        """
        if not callable(source):
            raise ValueError(f"a geometry source must be a function, not {source!r}")
        if source in self._sources:
            raise ValueError(f"{self._sources[source]!r} is a geometry source already")
        self._sources[source] = name or getattr(source, "__qualname__", type(source).__name__)
        self.version += 1

    def remove(self, source: GeometrySource) -> None:
        """Ask `source` no more.

        Raises:
            ValueError: It is no source.
        """
        if self._sources.pop(source, None) is None:
            raise ValueError(f"{source!r} is no geometry source")
        self.version += 1

    def collect(self, num_envs: int) -> PackedGeometry | None:
        """Ask every source once, in the order in which they were added; None where there is nothing to draw.

        Raises:
            GeometrySourceError: A source raised, or gave no geometry, or named an environment that there is not.
            GeometryCapacityError: It does not fit.
        """
        batches: list[GeometryBatch] = []
        for source, name in list(self._sources.items()):
            try:
                batches.extend(_batches(source(), num_envs))
            except Exception as error:  # whatever a user's function raises, the message has to say which one did
                raise GeometrySourceError(name, f"{type(error).__name__}: {error}") from error
        if not any(len(batch) for batch in batches):
            return None
        return PackedGeometry.of(GeometryBatch.concatenate(batches), num_envs, self.capacity)


def _batches(given: object, num_envs: int) -> list[GeometryBatch]:
    if given is None:
        return []
    batches = [given] if isinstance(given, GeometryBatch) else list(given) if isinstance(given, Iterable) else [given]
    for batch in batches:
        if not isinstance(batch, GeometryBatch):
            raise TypeError(f"expected GeometryBatch, got {type(batch).__name__}")
        if len(batch) and np.max(batch.envs) >= num_envs:
            raise ValueError(f"it names environment {np.max(batch.envs)}, but there are {num_envs}")
    return batches  # pyright: ignore[reportReturnType]
