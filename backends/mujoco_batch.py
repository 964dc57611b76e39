"""MuJoCo's batch: many environments on CPU threads, borrowed from the caller's own `Batch`."""

from functools import cached_property

import mujoco
import mujoco.batch
import numpy as np
from numpy.typing import NDArray

from scene_data.backends.host_engine import HostEngineBackend
from scene_data.backends.mujoco_contacts import batch_contacts
from scene_data.contacts import Contacts

__all__ = ["MujocoBatchSceneDataBackend"]

# What kinematics computes. A refresh brings these up to the present state, and no other field.
_POSE_FIELDS = frozenset(
    {
        *("xpos", "xquat", "xmat", "xipos", "ximat", "xiquat", "xanchor", "xaxis"),
        *("geom_xpos", "geom_xmat", "geom_xquat", "site_xpos", "site_xmat", "site_xquat"),
        *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "subtree_com", "cdof", "cinert"),
        *("flexvert_xpos", "flexedge_length", "flexelem_aabb"),
        *("ten_length", "ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"),
    }
)


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
        self._kept: dict[str, tuple[NDArray, NDArray]] = {}
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
        # A batch copies out every bound field after every call, also those that this stage does not compute: the rows
        # would then hold what another environment left behind on the same thread.
        for name, bound in self.batch._bound.items():
            if name not in _POSE_FIELDS:
                live, kept = self._kept_field(name, bound)
                np.copyto(kept, live)
        try:
            self.batch.forward(stale, stage=mujoco.mjtStage.mjSTAGE_POS)
        finally:
            for live, kept in self._kept.values():
                np.copyto(live, kept)

    def get_contacts(self, env_ids: NDArray[np.int64]) -> Contacts:
        """The contacts of these environments: of the last step in a persistent batch, else of the present state."""
        return batch_contacts(self.batch, self._scratch, env_ids)

    @cached_property
    def _scratch(self) -> mujoco.MjData:
        return mujoco.MjData(self.model)

    def _kept_field(self, name: str, bound: NDArray) -> tuple[NDArray, NDArray]:
        if name not in self._kept:
            live = bound.view()
            live.flags.writeable = True  # read-only for callers, since the next call overwrites it
            self._kept[name] = live, np.empty_like(live)
        return self._kept[name]
