"""Contacts of MuJoCo's engines, with their forces in the world frame."""

from typing import Any

import mujoco
import mujoco.batch
import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.contacts import Contacts

__all__ = ["batch_contacts", "data_contacts", "warp_contacts"]


def data_contacts(model: mujoco.MjModel, data: mujoco.MjData, env: int) -> Contacts:
    """The contacts of one `MjData`, as its last step left them."""
    # Those within the margin that exert no force have no constraint.
    active = np.flatnonzero(data.contact.efc_address >= 0) if data.ncon else np.zeros(0, np.int64)
    frames = data.contact.frame.reshape(-1, 3, 3)[active]
    wrenches = np.zeros((len(active), 6))
    for index, wrench in zip(active.tolist(), wrenches, strict=True):
        mujoco.mj_contactForce(model, data, index, wrench)
    return Contacts(
        envs=np.full(len(active), env, np.int64),
        positions=data.contact.pos[active].reshape(-1, 3).copy(),
        normals=frames[:, 0].copy(),
        forces=np.einsum("cij,ci->cj", frames, wrenches[:, :3]),
    )


def batch_contacts(batch: mujoco.batch.Batch, scratch: mujoco.MjData, env_ids: NDArray[np.int64]) -> Contacts:
    """The contacts of some simulations of a batch.

    A batch that is not persistent keeps none: they are computed anew from the present state, in `scratch`.
    """
    parts = []
    for env in env_ids.tolist():
        batch.get_data(env, scratch)
        model = batch.get_model(env) if batch.expanded else batch.model
        if not batch.persistent:
            mujoco.mj_forward(model, scratch)
        parts.append(data_contacts(model, scratch, env))
    return Contacts.concatenate(parts)


def warp_contacts(model: Any, data: Any, env_ids: NDArray[np.int64]) -> Contacts:
    """The contacts of some worlds of a `mujoco_warp.Data`, as its last step left them."""
    import mujoco_warp as mjw

    device = data.xpos.device
    count = min(int(data.nacon.numpy()[0]), len(data.contact.worldid))
    envs = data.contact.worldid.numpy()[:count].astype(np.int64)
    active = np.flatnonzero(np.isin(envs, env_ids) & (data.contact.efc_address.numpy()[:count, 0] >= 0))
    with wp.ScopedDevice(device):
        wrenches = wp.zeros(len(active), dtype=wp.spatial_vectorf)
        if len(active):
            mjw.contact_force(model, data, wp.array(active, dtype=wp.int32), True, wrenches)
    return Contacts(
        envs=envs[active],
        positions=data.contact.pos.numpy()[:count][active].astype(np.float64),
        normals=data.contact.frame.numpy()[:count][active][:, 0].astype(np.float64),
        forces=wrenches.numpy()[:, :3].astype(np.float64).reshape(-1, 3),
    )
