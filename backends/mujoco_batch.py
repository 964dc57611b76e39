"""MuJoCo's batch: many environments on CPU threads, borrowed from the caller's own `Batch`."""

from functools import cached_property

import mujoco
import mujoco.batch
import numpy as np
from numpy.typing import NDArray

from scene_data.backends.batch_kinematics import BatchKinematics
from scene_data.backends.host_engine import HostEngineBackend
from scene_data.backends.mujoco_contacts import batch_contacts
from scene_data.contacts import Contacts

__all__ = ["MujocoBatchSceneDataBackend"]


class MujocoBatchSceneDataBackend(HostEngineBackend):
    """Publishes a `mujoco.batch.Batch` that somebody else steps, writes and resets.

    Reads bring the poses of the environments that were written up to the present state, on the batch's own threads,
    and leave their trajectories as they are. Other fields that the caller has bound (sensors, forces, ...) stay as the
    caller's last call left them. Whoever steps on another thread holds their lock while somebody reads.

    Args:
        batch: The batch, persistent or not.

    Raises:
        TypeError: `batch` is of another type.
    """

    def __init__(self, batch: mujoco.batch.Batch):
        if not isinstance(batch, mujoco.batch.Batch):
            raise TypeError(f"batch must be a mujoco.batch.Batch, got {type(batch).__name__}")
        self.batch = batch
        self._kinematics = BatchKinematics(batch)
        super().__init__(batch.model, num_envs=batch.nsim)

    def _source(self, name: str) -> NDArray[np.float64]:
        return self.batch.bind(name)

    def _state_arrays(self) -> tuple[NDArray[np.float64], ...]:
        fields = ("qpos", "mocap_pos", "mocap_quat")
        arrays = [self.batch.bind(name) for name in fields] + [self._times()[:, None]]
        return tuple(array for array in arrays if array.size)

    def _times(self) -> NDArray[np.float64]:
        return self.batch.bind("time")

    def _warnings(self) -> NDArray[np.int32]:
        return self.batch.warning[..., 1]

    def _refresh(self, stale: NDArray[np.bool_]) -> None:
        self._kinematics.refresh(stale)

    def get_contacts(self, env_ids: NDArray[np.int64]) -> Contacts:
        """The contacts of these environments: of the last step in a persistent batch, else of the present state."""
        return batch_contacts(self.batch, self._scratch, env_ids)

    @cached_property
    def _scratch(self) -> mujoco.MjData:
        return mujoco.MjData(self.model)
