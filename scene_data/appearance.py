"""Appearance: the looks of each environment, set while the simulation runs."""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scene_data.appearance_state import NOTHING_SET, AppearanceState, Looks, Randomization
from scene_data.errors import UnknownNameError
from scene_data.runtime_values import checked_envs, on_host
from scene_data.scene import SceneDescription, ShapeType, TextureType

__all__ = ["Appearance", "Randomization"]

Names = str | int | Sequence[str | int] | None

_LENGTHS = {
    ShapeType.PLANE: 0,
    ShapeType.SPHERE: 1,
    ShapeType.CAPSULE: 2,
    ShapeType.CYLINDER: 2,
    ShapeType.ELLIPSOID: 3,
    ShapeType.BOX: 3,
}
"""How many of the three lengths of a type must be above 0; types that are not here have no size to set."""


class Appearance:
    """What materials, shapes and lights look like in each environment.

    All setters take effect in the next frame, in the environments that they name and in no other; frames and turns that
    were begun before keep what they have. What is set stays until it is set again, `reset`, or another model is loaded.
    Only what is drawn changes: the physics does not.

    Parts are named by their name, their path below the environment, or their index. Values for C parts in E
    environments have shape `(E, C, ...)`, or `(C, ...)` or `(...)` where environments or parts share them. Where one
    part is named alone, and not in a list, there is no C. They may be sequences, arrays, or tensors; they go through
    the host's memory.

    Args:
        describe: Returns the scene that is looked at.
        lock: Covers every write and every snapshot.
        require: Raises ValueError where the render backend cannot show this.

    Attributes:
        state: What is in force.
        version: Counts the writes.
    """

    def __init__(
        self,
        describe: Callable[[], SceneDescription],
        lock: AbstractContextManager[Any] | None = None,
        require: Callable[[Randomization], None] = lambda kind: None,
    ):
        self.state = NOTHING_SET
        self.version = 0
        self._describe = describe
        self._lock = threading.RLock() if lock is None else lock
        self._require = require

    def set_material_colors(self, colors: Any, materials: Names = None, env_ids: Any = None) -> None:
        """Colour materials, and with them the shapes that have no colour of their own.

        Args:
            colors: RGB `(..., 3)` or RGBA `(..., 4)`, each channel in [0, 1].
            materials: Which ones; None is all.
            env_ids: Indices of environments; None is all.

        Raises:
            UnknownNameError: No such material.
            ValueError: Values or environments that do not fit, or the render backend cannot show it.
        """
        self._require(Randomization.MATERIAL_COLORS)
        self._set_colors("material_colors", self._materials, colors, materials, env_ids)

    def set_shape_colors(self, colors: Any, shapes: Names = None, env_ids: Any = None) -> None:
        """Give shapes a colour of their own, whatever their material's is. Arguments and errors as for materials."""
        self._require(Randomization.SHAPE_COLORS)
        self._set_colors("own_colors", self._shapes, colors, shapes, env_ids)

    def set_textures(self, textures: Any, materials: Names = None, env_ids: Any = None) -> None:
        """Cover materials with other textures of the model.

        Args:
            textures: Names or indices, None or -1 for no texture; one, `(C,)` or `(E, C)`.
            materials: Which ones; None is all.
            env_ids: Indices of environments; None is all.

        Raises:
            UnknownNameError: No such texture or material.
            ValueError: Values or environments that do not fit, or the render backend cannot show it.
        """
        self._require(Randomization.TEXTURES)
        chosen = np.asarray(on_host(textures), dtype=object)
        indices = np.array([self._texture(choice) for choice in chosen.ravel()], np.int32).reshape(chosen.shape)
        envs, columns, values = self._select("textures", self._materials, indices, materials, env_ids)
        self._write("textures", envs, columns, values)

    def set_shape_sizes(self, sizes: Any, shapes: Names, env_ids: Any = None) -> None:
        """Draw primitives in other sizes.

        Args:
            sizes: `(..., 3)` [m]; `ShapeType` says what the three lengths mean, those that a type has no use for may be
                anything.
            shapes: Which ones: planes, spheres, capsules, cylinders, ellipsoids and boxes.
            env_ids: Indices of environments; None is all.

        Raises:
            UnknownNameError: No such shape.
            ValueError: Values or environments that do not fit, another type of shape, or the render backend cannot
                show it.
        """
        self._require(Randomization.SHAPE_SIZES)
        envs, columns, values = self._select("sizes", self._shapes, sizes, shapes, env_ids, 3)
        for index, lengths in zip(columns, np.moveaxis(values, 1, 0), strict=True):
            kind, name = self._looks.scene.shapes[index].type, self._shapes.labels[index]
            if kind not in _LENGTHS:
                raise ValueError(f"shape {name!r} is a {kind.value}, which has no size to set")
            if (lengths[:, : _LENGTHS[kind]] <= 0.0).any() or (kind is ShapeType.PLANE and (lengths < 0.0).any()):
                raise ValueError(f"lengths of the {kind.value} {name!r} must be above 0, got {lengths.tolist()}")
        self._write("shape_sizes", envs, columns, values)

    def set_light_positions(self, positions: Any, lights: Names = None, env_ids: Any = None) -> None:
        """Let lights stand still, whatever body carries them.

        Args:
            positions: `(..., 3)`, in the environment's frame [m].
            lights: Which ones; None is all.
            env_ids: Indices of environments; None is all.

        Raises:
            UnknownNameError: No such light.
            ValueError: Values or environments that do not fit, or the render backend cannot show it.
        """
        self._require(Randomization.LIGHT_POSITIONS)
        self._write("light_positions", *self._select("positions", self._lights, positions, lights, env_ids, 3))

    def set_light_directions(self, directions: Any, lights: Names = None, env_ids: Any = None) -> None:
        """Let lights shine along vectors `(..., 3)` in the environment's frame, of any length. Else as positions."""
        self._require(Randomization.LIGHT_DIRECTIONS)
        envs, columns, values = self._select("directions", self._lights, directions, lights, env_ids, 3)
        lengths = np.linalg.norm(values, axis=-1, keepdims=True)
        if (lengths < 1e-12).any():
            raise ValueError("directions must not be zero")
        self._write("light_directions", envs, columns, values / lengths)

    def set_light_colors(
        self,
        diffuse: Any = None,
        lights: Names = None,
        env_ids: Any = None,
        *,
        specular: Any = None,
        ambient: Any = None,
    ) -> None:
        """Colour lights; a part that is None stays as it is.

        Args:
            diffuse: RGB `(..., 3)`, 0 or above: what surfaces scatter.
            lights: Which ones; None is all.
            env_ids: Indices of environments; None is all.
            specular: RGB `(..., 3)`: what they mirror.
            ambient: RGB `(..., 3)`: what the light adds everywhere.

        Raises:
            UnknownNameError: No such light.
            ValueError: Values or environments that do not fit, or the render backend cannot show it.
        """
        self._require(Randomization.LIGHT_COLORS)
        writes = []
        for part, colors in (("diffuse", diffuse), ("specular", specular), ("ambient", ambient)):
            if colors is not None:
                selected = self._select(f"{part} colours", self._lights, colors, lights, env_ids, 3)
                if (selected[2] < 0.0).any():
                    raise ValueError(f"{part} colours must not be below 0")
                writes.append((f"light_{part}", selected))
        with self._lock:
            for table, selected in writes:
                self._write(table, *selected)

    def set_lights_active(self, active: Any, lights: Names = None, env_ids: Any = None) -> None:
        """Switch lights on or off: one truth value, `(C,)` or `(E, C)`. Otherwise as the colours of lights."""
        self._require(Randomization.LIGHT_SWITCHES)
        envs, columns, values = self._select("active", self._lights, active, lights, env_ids)
        self._write("light_switches", envs, columns, values.astype(bool))

    def reset(self, env_ids: Any = None) -> None:
        """Show environments, or all, as the model has them."""
        with self._lock:
            if self.state is not NOTHING_SET:
                envs = checked_envs(env_ids, self._looks.scene.num_envs)
                self._put(self._looks.restored(self.state, envs))

    def forget_scene(self) -> None:
        """Begin anew: another scene is looked at from now on."""
        with self._lock:
            for name in ("_looks", "_materials", "_shapes", "_lights", "_textures"):
                self.__dict__.pop(name, None)
            self._put(NOTHING_SET)

    @cached_property
    def _looks(self) -> Looks:
        return Looks(self._describe())

    @cached_property
    def _materials(self) -> "_Parts":
        return _Parts("material", [(material.name,) for material in self._looks.scene.materials])

    @cached_property
    def _shapes(self) -> "_Parts":
        return _Parts("shape", [(shape.name, shape.path_name) for shape in self._looks.scene.shapes])

    @cached_property
    def _lights(self) -> "_Parts":
        return _Parts("light", [(light.name, light.path_name) for light in self._looks.scene.lights])

    @cached_property
    def _textures(self) -> "_Parts":
        return _Parts("texture", [(texture.name,) for texture in self._looks.scene.textures])

    def _texture(self, choice: Any) -> int:
        """Index of a texture; -1 for none."""
        if choice is None or (not isinstance(choice, str) and choice == -1):
            return -1
        index = self._textures.index(choice)
        if self._looks.scene.textures[index].type is TextureType.SKYBOX:
            raise ValueError(f"texture {choice!r} is the sky and covers no material")
        return index

    def _set_colors(self, table: str, parts: "_Parts", colors: Any, names: Names, env_ids: Any) -> None:
        colors = on_host(colors)
        channels = 3 if colors.ndim and colors.shape[-1] == 3 else 4
        envs, columns, values = self._select("colours", parts, colors, names, env_ids, channels)
        if ((values < 0.0) | (values > 1.0)).any():
            raise ValueError(f"colours must lie in [0, 1], got {values.tolist()}")
        if channels == 4 and (values[..., 3].astype(np.float32) != self._looks.alphas(table)[columns]).any():
            self._require(Randomization.OPACITY)
        self._write(table, envs, columns, values)

    def _select(
        self, what: str, parts: "_Parts", values: Any, names: Names, env_ids: Any, width: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """Environments E, parts C, and values (E, C) or (E, C, width)."""
        envs = checked_envs(env_ids, self._looks.scene.num_envs)
        columns, is_single = parts.select(names)
        array, inner = on_host(values), () if width is None else (width,)
        shape = (len(envs), len(columns), *inner)
        accepted = [inner, (len(envs), *inner)] if is_single else [inner, shape[1:], shape]
        if array.shape not in accepted:
            raise ValueError(f"{what} must have shape {' or '.join(map(str, accepted))}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{what} must be finite, got {array.tolist()}")
        if is_single and array.shape == accepted[1]:
            array = array[:, None]
        return envs, columns, np.broadcast_to(array, shape)

    def _write(self, table: str, envs: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[Any]) -> None:
        with self._lock:
            self._put(self._looks.changed(self.state, table, envs, columns, values))

    def _put(self, state: AppearanceState) -> None:
        self.state = state
        self.version += 1


class _Parts:
    """The parts of one kind, found by name or index."""

    def __init__(self, kind: str, names: Iterable[tuple[str, ...]]):
        self._kind = kind
        self._index: dict[str, int] = {}
        self.labels: list[str] = []
        aliases = list(names)
        for index, own in enumerate(aliases):
            self.labels.append(next((name for name in own if name), str(index)))
        for column in zip(*aliases, strict=True):  # names before paths
            for index, name in enumerate(column):
                if name:
                    self._index.setdefault(name, index)

    def index(self, name: Any) -> int:
        """Index of a part."""
        if isinstance(name, str) and name in self._index:
            return self._index[name]
        if not isinstance(name, str) and 0 <= name < len(self.labels) and name == int(name):
            return int(name)
        raise UnknownNameError(self._kind, name, self.labels)

    def select(self, names: Names) -> tuple[NDArray[np.int64], bool]:
        """Indices, and whether it is one that was not in a list."""
        if names is None:
            return np.arange(len(self.labels)), False
        if isinstance(names, str | int | np.integer):
            return np.array([self.index(names)]), True
        return np.array([self.index(name) for name in names], np.int64), False
