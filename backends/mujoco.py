"""MuJoCo's C engine: one environment, borrowed from the caller's own `MjData`."""

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.backends.host_engine import HostEngineBackend
from scene_data.backends.mujoco_contacts import data_contacts
from scene_data.contacts import Contacts

__all__ = ["MujocoSceneDataBackend", "refresh_poses", "require_data_of"]


class MujocoSceneDataBackend(HostEngineBackend):
    """Publishes a `mujoco.MjData` that somebody else steps, writes and resets.

    Reads bring the derived fields of `data` up to the present state, as `mj_forward` would, and leave its trajectory
    as it is. Whoever steps on another thread holds their lock while somebody reads.

    Args:
        model: The model.
        data: Data of this model, or of a copy of it.

    Raises:
        TypeError: An argument is of another type.
        ValueError: The data belongs to another model.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData):
        require_data_of(model, data)
        self.data = data
        self._time = np.zeros(1)
        super().__init__(model, num_envs=1)

    def _source(self, name: str) -> NDArray[np.float64]:
        return getattr(self.data, name)

    def _state_arrays(self) -> tuple[NDArray[np.float64], ...]:
        fields = (self.data.qpos, self.data.mocap_pos, self.data.mocap_quat, self._times())
        return tuple(field.reshape(1, -1) for field in fields if field.size)

    def _times(self) -> NDArray[np.float64]:
        self._time[0] = self.data.time
        return self._time

    def _warnings(self) -> NDArray[np.int32]:
        return self.data.warning.number[None]

    def _refresh(self, stale: NDArray[np.bool_]) -> None:
        refresh_poses(self.model, self.data)

    def get_contacts(self, env_ids: NDArray[np.int64]) -> Contacts:
        """The contacts, as the last step left them."""
        return Contacts.concatenate(data_contacts(self.model, self.data, env) for env in env_ids.tolist())


def refresh_poses(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Compute the poses of bodies, geoms, cameras, lights, flexes and tendons from the state."""
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)
    mujoco.mj_flex(model, data)
    if model.ntendon:
        mujoco.mj_tendon(model, data)


def require_data_of(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Refuse data that was not made for the model.

    Raises:
        TypeError: An argument is of another type.
        ValueError: The data belongs to another model.
    """
    if not isinstance(model, mujoco.MjModel):
        raise TypeError(f"model must be a mujoco.MjModel, got {type(model).__name__}")
    if not isinstance(data, mujoco.MjData):
        raise TypeError(f"data must be a mujoco.MjData, got {type(data).__name__}")
    if data.signature != model.signature:
        raise ValueError(
            f"data was made for another model: it has {data.xpos.shape[0]} bodies and {data.qpos.size} coordinates "
            f"and signature {data.signature}, the model {model.nbody}, {model.nq} and {model.signature}"
        )
