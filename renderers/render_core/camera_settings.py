"""What is set about cameras at run time: poses and intrinsics, for all environments or some."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_SETTINGS", "POSITION_SET", "QUATERNION_SET", "CameraSetting", "CameraSettings"]

POSITION_SET = 1
QUATERNION_SET = 2


@dataclass(frozen=True, eq=False)
class CameraSetting:
    """What is set about one camera. Its arrays are never written to, so snapshots share them.

    Attributes:
        pose_set: Which parts of the pose are set in each environment (N,) int32: `POSITION_SET`, `QUATERNION_SET`,
            their sum, or 0.
        positions: Position in the environment's frame (N, 3) float32 [m], where set.
        quaternions: Orientation of the camera frame, which looks along -Z with +Y up, (N, 4) float32 (x, y, z, w).
        pinholes: (fx, fy, cx, cy) (N, 4) float64 [pixels], in force in every environment.
    """

    pose_set: NDArray[np.int32]
    positions: NDArray[np.float32]
    quaternions: NDArray[np.float32]
    pinholes: NDArray[np.float64]

    @classmethod
    def initial(cls, pinholes: NDArray[np.float64]) -> "CameraSetting":
        """Nothing is set yet; `pinholes` (N, 4) is what the configuration has."""
        n = len(pinholes)
        unset, still = np.zeros((n, 3), np.float32), np.tile(np.array([0, 0, 0, 1], np.float32), (n, 1))
        return cls(np.zeros(n, np.int32), unset, still, pinholes)

    def with_poses(
        self, envs: NDArray[np.int64], positions: NDArray[np.float64] | None, quaternions: NDArray[np.float64] | None
    ) -> "CameraSetting":
        """A copy with other poses in some environments; None leaves that part as it is."""
        pose_set = self.pose_set.copy()
        new_positions, new_quaternions = self.positions, self.quaternions
        if positions is not None:
            pose_set[envs] |= POSITION_SET
            new_positions = _replaced(self.positions, envs, positions)
        if quaternions is not None:
            pose_set[envs] |= QUATERNION_SET
            new_quaternions = _replaced(self.quaternions, envs, quaternions)
        return CameraSetting(pose_set, new_positions, new_quaternions, self.pinholes)

    def without_poses(self, envs: NDArray[np.int64]) -> "CameraSetting":
        """A copy whose poses in some environments are the configuration's again."""
        pose_set = _replaced(self.pose_set, envs, np.zeros(len(envs), np.int32))
        return CameraSetting(pose_set, self.positions, self.quaternions, self.pinholes)

    def with_pinholes(self, envs: NDArray[np.int64], pinholes: NDArray[np.float64]) -> "CameraSetting":
        """A copy with other intrinsics in some environments."""
        pinholes = _replaced(self.pinholes, envs, pinholes)
        return CameraSetting(self.pose_set, self.positions, self.quaternions, pinholes)


NO_SETTINGS: Mapping[int, CameraSetting] = MappingProxyType({})
"""What is in force before anything is set."""


class CameraSettings:
    """What is set about the cameras of one configuration. Its owner's lock covers every write.

    Attributes:
        version: Counts the writes.
        current: The settings by camera id, replaced as a whole by each write. Cameras without any are not in it.
    """

    def __init__(self):
        self.version = 0
        self.current = NO_SETTINGS

    def put(self, camera_id: int, setting: CameraSetting) -> None:
        """Put a setting in force, from the next snapshot on."""
        self.current = MappingProxyType({**self.current, camera_id: setting})
        self.version += 1


def _replaced(values: NDArray, envs: NDArray[np.int64], new: NDArray) -> NDArray:
    copy = values.copy()
    copy[envs] = new
    copy.flags.writeable = False
    return copy
