"""What a physics engine tells the provider, and nothing more."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from scene_data.env_times import EnvTimes
from scene_data.formats import SceneDataFormat

if TYPE_CHECKING:
    from scene_data.contacts import Contacts
    from scene_data.scene import SceneDescription

__all__ = ["SceneDataBackend", "publication_device"]

Ranges = dict[str, tuple[int, int]]


def publication_device(publication: Any) -> wp.Device:
    """Device that holds a publication.

    Args:
        publication: An instance of one of the `SceneDataFormat` structs, or None.

    Raises:
        ValueError: If nothing is published, or if the arrays are spread over several devices.
    """
    if publication is None:
        raise ValueError("Nothing is published yet, so there is no device to work on.")
    name = publication._cls.__name__
    arrays = [array for field in publication._cls.vars if (array := getattr(publication, field)) is not None]
    if not arrays:
        raise ValueError(f"{name} contains no published arrays, so there is no device to work on.")
    device = arrays[0].device
    if any(array.device != device for array in arrays):
        raise ValueError(f"{name} is spread over devices {sorted({str(array.device) for array in arrays})}.")
    return device


class _Reads(threading.local):
    """How many consistent reads of a backend each thread is inside of."""

    depth = 0


class _Overridable:
    """A computed default that an attribute of the instance, or of a subclass, simply replaces."""

    def __init__(self, compute: Callable[[Any], Any]):
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self._compute(instance)


def overridable(compute: Callable[[Any], Any]) -> Any:
    """Make a default out of a getter. Typed Any, so that a subclass may use an attribute or a property for it."""
    return _Overridable(compute)


class SceneDataBackend:
    """Base of what an engine publishes: every member has a default, and an engine fills in only what it has.

    Timestamps are logical: integers that only grow, advanced when an engine writes or swaps the arrays of that
    publication, also several times within one step. They are no elapsed time, and no reader ever resets one.

    Reads are never stale: `get_transforms`, `get_camera_poses`, `get_light_poses` and `get_geometry_batches` of an
    engine first call `update_kinematics`, unless they are made inside `consistent_read`.
    """

    # Transforms

    @overridable
    def transforms(self) -> Any:
        """Native transforms, borrowed: a struct of `SceneDataFormat`, or None while nothing is published."""
        return None

    @overridable
    def transforms_timestamp(self) -> int:
        """Timestamp of the transforms."""
        return 0

    @overridable
    def transform_count(self) -> int:
        """Number of transforms, over all environments."""
        return 0

    @overridable
    def transform_paths(self) -> list[str]:
        """USD path of each transform, in the order of the arrays."""
        return []

    @overridable
    def native_transform_formats(self) -> tuple[Any, ...]:
        """Formats that are published without a conversion."""
        publication = self.transforms
        return () if publication is None else (publication._cls,)

    def get_transforms(self, output_format: Any) -> Any:
        """Publish the transforms.

        Args:
            output_format: The format that the reader wants. An engine with several representations refreshes and
                returns this one if it has it, and otherwise its primary one, which the provider converts.

        Returns:
            A struct of `SceneDataFormat`, borrowed, or None while nothing is published.
        """
        return self.transforms

    def mark_transforms_written(self) -> None:
        """Announce that the engine's state was written: poses of bodies, cameras and lights are new."""
        self.transforms_timestamp += 1
        self.cameras_timestamp += 1
        self.lights_timestamp += 1

    # Geometry

    @overridable
    def geometry_timestamp(self) -> int:
        """Timestamp of the points."""
        return 0

    @overridable
    def native_geometry_formats(self) -> tuple[Any, ...]:
        """Point formats that are published without a conversion."""
        return (SceneDataFormat.Points,)

    def get_geometry_batches(self, output_format: Any = SceneDataFormat.Points) -> list[tuple[Any, Ranges]]:
        """Publish points, or what points are computed from.

        Args:
            output_format: The format that the reader wants, as in `get_transforms`.

        Returns:
            Pairs of a struct and its ranges `{path: (offset, count)}`, which count published points for `Points` and
            computed vertices for the other formats. The ranges are fixed at the construction of the backend.
        """
        return []

    def mark_geometry_written(self) -> None:
        """Announce that points were written or swapped."""
        self.geometry_timestamp += 1

    # Looks

    def get_model_looks(self) -> Mapping[str, wp.array]:
        """Arrays in which the engine's own model says what each environment looks like, borrowed.

        Returns:
            Arrays (num_envs, count, ...) by their names in a MuJoCo model, such as `geom_rgba`; only those in which
            environments can differ.
        """
        return {}

    # Cameras and lights: the engine's to say, since they may track a body

    @overridable
    def cameras_timestamp(self) -> int:
        """Timestamp of the camera poses."""
        return 0

    @overridable
    def camera_paths(self) -> list[str]:
        """USD path of each camera pose, environment-major as the poses."""
        return []

    def get_camera_poses(self) -> Any:
        """Publish the poses of the model's cameras.

        Returns:
            `Vec3_Matrix33` or `Vec3d_Matrix33d` with `num_envs * camera_count` poses at index
            `env * camera_count + camera`, or None if there are no cameras. A camera looks along its -Z with +Y up.
        """
        return None

    @overridable
    def lights_timestamp(self) -> int:
        """Timestamp of the light poses."""
        return 0

    def get_light_poses(self) -> Any:
        """Publish positions and directions of the model's lights.

        Returns:
            `Vec3_Direction` or `Vec3d_Direction` with `num_envs * light_count` entries at index
            `env * light_count + light`, or None if there are no lights.
        """
        return None

    # Environments and time

    @overridable
    def num_envs(self) -> int:
        """Number of environments, or 0 if the engine does not say."""
        return 0

    @overridable
    def device(self) -> wp.Device:
        """Device of the publications; by default the one of the transforms."""
        return publication_device(self.transforms)

    @overridable
    def simulation_time_ns(self) -> int:
        """Simulation time [ns]."""
        return 0

    @overridable
    def env_time_ns(self) -> np.ndarray | None:
        """Simulation time of each environment [ns], int64 of shape (num_envs,), or None if they share one."""
        return None

    def capture_env_times(self) -> EnvTimes:
        """Note the present `env_time_ns` for whoever asks later. An engine on a device must not wait for it here."""
        present = self.env_time_ns
        return EnvTimes(lambda: present)

    # Never stale

    @overridable
    def kinematics_dirty(self) -> bool:
        """Whether derived poses lag the state. Checked and cleared by `update_kinematics`; readers never look."""
        return False

    def update_kinematics(self) -> None:
        """Bring derived poses up to the present state if they lag it. Engines whose poses never lag do nothing."""

    @property
    def _reads(self) -> "_Reads":
        # Not made at construction, which subclasses need not pass on; and only once, whoever comes first.
        return self.__dict__.get("_thread_reads") or self.__dict__.setdefault("_thread_reads", _Reads())

    @property
    def _is_reconciled(self) -> bool:
        """Whether this thread is inside of a consistent read; `update_kinematics` of an engine does nothing then."""
        return self._reads.depth > 0

    @contextmanager
    def consistent_read(self, is_reconciled: bool = False) -> Iterator[None]:
        """Let several reads of this thread see one state: reconcile on the outermost entry, and not before the exit.

        Args:
            is_reconciled: The thread that steps has just called `update_kinematics`, and waits for what is read here,
                so that the entry need not.
        """
        if not is_reconciled:
            self.update_kinematics()
        reads = self._reads
        reads.depth += 1
        try:
            yield
        finally:
            reads.depth -= 1

    # What consumers build from

    def describe_scene(self) -> "SceneDescription":
        """Describe bodies, shapes, materials, cameras and environments, once, for consumers to build from.

        Raises:
            NotImplementedError: If the engine has no description to give.
        """
        raise NotImplementedError(f"{type(self).__name__} describes no scene.")

    def get_height_field(self, index: int) -> "np.ndarray | None":
        """The present heights of a height field of the scene, float32 `(rows, columns)` [m]; None where they stay."""
        return None

    def get_contacts(self, env_ids: "np.ndarray") -> "Contacts | None":
        """The contacts of these environments, int64 `(E,)`; None where the engine does not tell them."""
        return None
