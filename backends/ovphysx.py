"""PhysX through `ovphysx`: the poses of a stage that somebody else steps, in one buffer."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ovphysx
import warp as wp
from ovphysx.types import SimObjectType

from scene_data.backend import SceneDataBackend
from scene_data.backends.ovphysx_deformables import padded_nodes
from scene_data.formats import SceneDataFormat

__all__ = ["OvPhysxSceneDataBackend"]

wp.set_module_options({"enable_backward": False})

_BODIES = (SimObjectType.RIGID_BODY, SimObjectType.ARTICULATION_LINK)
_POSE = ("position", "orientation")
_ENV = re.compile(r"^/World/envs/env_(\d+)(?=/|$)")


class OvPhysxSceneDataBackend(SceneDataBackend):
    """Publishes the rigid bodies, articulation links and deformables of an `ovphysx.PhysX`.

    PhysX keeps its state to itself, so poses are read from it: once per timestamp, into one buffer that stays where it
    is. Bodies are ordered by environment, then by path; those outside of `/World/envs/env_<i>` come last. They are
    those that the stage holds now: after bodies were added or removed, make a new backend.

    Every read asks PhysX anew, unless the owner promises to announce each step and write; then only the first read
    after one does. PhysX describes no scene; its bodies are prims of the stage that was attached.

    Attributes:
        simulation_time_ns: PhysX keeps no time, so this is 0 until the owner of the loop sets it.

    Args:
        physx: An instance with a stage attached.
        announces_writes: Whether every step, reset and write will be followed by `mark_transforms_written` or
            `mark_joints_written`.

    Raises:
        TypeError: `physx` is something else.
        ValueError: PhysX has no poses yet, as on a GPU before the first step.
    """

    def __init__(self, physx: ovphysx.PhysX, announces_writes: bool = False):
        if not isinstance(physx, ovphysx.PhysX):
            raise TypeError(f"physx must be an ovphysx.PhysX, got {type(physx).__name__}")
        self.physx = physx
        self.transforms_timestamp = 0
        self.geometry_timestamp = 0
        self.simulation_time_ns = 0
        self.native_transform_formats = (SceneDataFormat.Transform,)
        self._announces_writes = announces_writes
        self._written = True
        self._joints_written = False
        groups = [(get_paths(), positions.device) for get_paths, positions, _ in self._read_groups()]
        self.transform_paths = sorted((path for paths, _ in groups for path in paths), key=_environment_first)
        self.transform_count = len(self.transform_paths)
        self.num_envs = max((_env_of(path) + 1 for path in self.transform_paths), default=0)
        self.device = groups[0][1] if groups else wp.get_device("cpu")
        order = {path: row for row, path in enumerate(self.transform_paths)}
        rows = [[order[path] for path in paths] for paths, _ in groups]
        self._rows = [wp.array(row, dtype=wp.int32, device=self.device) for row in rows]
        self._transforms = SceneDataFormat.Transform()
        self._transforms.transforms = wp.zeros(self.transform_count, dtype=wp.transformf, device=self.device)
        self._nodes = padded_nodes(physx)

    # Transforms

    @property
    def transforms(self) -> Any:
        """Poses of all bodies, `Transform` in the order of `transform_paths`, or None without bodies."""
        return self._transforms if self.transform_count else None

    def get_transforms(self, output_format: Any) -> Any:
        """Publish the poses of the present state; see `SceneDataBackend.get_transforms`."""
        self.update_kinematics()
        return self.transforms

    def mark_transforms_written(self) -> None:
        """Announce a step, or a write to poses or deformables."""
        self._written = True
        self._advance_timestamps()

    def mark_joints_written(self) -> None:
        """Announce a write to joint positions, so that the next read has PhysX move the links first.

        On the CPU they move with the write. Elsewhere this asks for it, and PhysX, if it has never stepped, will step.
        """
        self._joints_written = True
        self.mark_transforms_written()

    # Geometry

    def get_geometry_batches(self, output_format: Any = SceneDataFormat.Points) -> list[tuple[Any, dict]]:
        """Publish the nodes of deformables, `Points` by the path of their simulation mesh, in PhysX's padded arrays."""
        self.update_kinematics()
        return [nodes.batch for nodes in self._nodes]

    def mark_geometry_written(self) -> None:
        """Announce a write to deformables; the same as `mark_transforms_written`."""
        self.mark_transforms_written()

    # Never stale

    @property
    def kinematics_dirty(self) -> bool:
        """Whether what is published may lag the state."""
        return not self._is_reconciled and (self._written or not self._announces_writes)

    def update_kinematics(self) -> None:
        """Read poses and nodes from PhysX, where they may have changed."""
        if not self.kinematics_dirty:
            return
        if self._joints_written:
            self.physx.update_articulations_kinematic()
            self._joints_written = False
        self._read()
        self._written = False
        self._advance_timestamps()

    def _advance_timestamps(self) -> None:
        self.transforms_timestamp += 1
        self.geometry_timestamp += 1

    def _read(self) -> None:
        groups = [(positions, orientations) for _, positions, orientations in self._read_groups()]
        if [len(positions) for positions, _ in groups] != [len(rows) for rows in self._rows]:
            raise RuntimeError(
                "PhysX reports other bodies than before: its stage has changed, and needs a new backend."
            )
        for rows, (positions, orientations) in zip(self._rows, groups, strict=True):
            wp.launch(
                _pack_poses,
                dim=len(rows),
                inputs=[rows, positions, orientations],
                outputs=[self._transforms.transforms],
                device=self.device,
            )
        for nodes in self._nodes:
            nodes.read()

    def _read_groups(self) -> Iterator[tuple[Callable[[], list[str]], wp.array, wp.array]]:
        """Positions and orientations of each group of bodies, and what finds their paths until the next is read."""
        for kind in _BODIES:
            with self.physx.read_sync(kind, _POSE, metadata=True) as result:
                if any(
                    attribute.omission_reasons & ovphysx.ReadOmission.NOT_READY
                    for attribute in result.metadata.attributes
                ):
                    raise ValueError("PhysX has no poses on a GPU before the first step: step once, then read.")
                # The instances of point instancers come as arrays by prim, and are not bodies with a path.
                groups = [group for group in result.groups if not group.is_array]
                columns = [
                    [group for group in groups if result.dictionary.token_to_string(group.attribute) == name]
                    for name in _POSE
                ]
                for positions, orientations in zip(*columns, strict=True):
                    get_paths = partial(result.dictionary.get_path_strings, positions.prim_list)
                    yield get_paths, positions.tensors[0], orientations.tensors[0]


def _env_of(path: str) -> int:
    """Environment of a path, or -1."""
    match = _ENV.match(path)
    return int(match[1]) if match else -1


def _environment_first(path: str) -> tuple[bool, int, str]:
    env = _env_of(path)
    return env < 0, env, path


@wp.kernel
def _pack_poses(
    rows: wp.array(dtype=wp.int32),
    positions: wp.array2d(dtype=wp.float32),
    orientations: wp.array2d(dtype=wp.float32),
    poses: wp.array(dtype=wp.transformf),
):
    i = wp.tid()
    position = wp.vec3f(positions[i, 0], positions[i, 1], positions[i, 2])
    orientation = wp.quatf(orientations[i, 0], orientations[i, 1], orientations[i, 2], orientations[i, 3])
    poses[rows[i]] = wp.transformf(position, orientation)
