"""MuJoCo's C engine with one `MjData` per environment, gathered into arrays of all of them."""

from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.backends.host_engine import HostEngineBackend
from scene_data.backends.mujoco import refresh_poses, require_data_of
from scene_data.backends.mujoco_contacts import data_contacts
from scene_data.contacts import Contacts

__all__ = ["MujocoDataListSceneDataBackend"]

_STATE = ("qpos", "mocap_pos", "mocap_quat")
_POSES = (
    *("xpos", "xquat", "xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir"),
    *("flexvert_xpos", "ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"),
)


class MujocoDataListSceneDataBackend(HostEngineBackend):
    """Publishes several `mujoco.MjData` of one model, as one environment each.

    Their arrays lie apart in memory, so poses are copied together, one environment after the other: right for a handful
    of environments in a loop of one's own. `mujoco.batch.Batch` holds many of them in one array, which is borrowed.

    Args:
        model: The model.
        datas: Data of this model, one per environment.

    Raises:
        TypeError: An argument is of another type.
        ValueError: There are no data, or one belongs to another model.
    """

    def __init__(self, model: mujoco.MjModel, datas: Sequence[mujoco.MjData]):
        self.datas = tuple(datas)
        if not self.datas:
            raise ValueError("datas must hold one mujoco.MjData per environment, got none")
        for data in self.datas:
            require_data_of(model, data)
        self._gathered = {name: self._gather_buffer(name) for name in (*_STATE, *_POSES)}
        self._time = np.zeros(len(self.datas))
        super().__init__(model, num_envs=len(self.datas))

    def _gather_buffer(self, name: str) -> NDArray[np.float64]:
        field = getattr(self.datas[0], name)
        return np.zeros((len(self.datas), *field.shape), field.dtype)

    def _source(self, name: str) -> NDArray[np.float64]:
        return self._gathered[name]

    def _state_arrays(self) -> tuple[NDArray[np.float64], ...]:
        fields = [self._gathered[name].reshape(self.num_envs, -1) for name in _STATE]
        return (*(field for field in fields if field.size), self._time[:, None])

    def _times(self) -> NDArray[np.float64]:
        for env, data in enumerate(self.datas):
            self._time[env] = data.time
            for name in _STATE:
                self._gathered[name][env] = getattr(data, name)
        return self._time

    def _warnings(self) -> NDArray[np.int32]:
        return np.stack([data.warning.number for data in self.datas])

    def _refresh(self, stale: NDArray[np.bool_]) -> None:
        for env in np.flatnonzero(stale):
            refresh_poses(self.model, self.datas[env])
            for name in _POSES:
                self._gathered[name][env] = getattr(self.datas[env], name)

    def get_contacts(self, env_ids: NDArray[np.int64]) -> Contacts:
        """The contacts of these environments, as their last steps left them."""
        return Contacts.concatenate(data_contacts(self.model, self.datas[env], env) for env in env_ids.tolist())
