"""The poses of a batch brought up to its state, and nothing else of it changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import mujoco
import mujoco.batch
import numpy as np
from numpy.typing import NDArray

__all__ = ["BatchKinematics"]

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

_NO_CONSTRAINTS = int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)


class BatchKinematics:
    """Computes the poses of a batch that somebody else steps.

    Args:
        batch: The batch, persistent or not.
    """

    def __init__(self, batch: mujoco.batch.Batch):
        self._batch = batch
        self._kept: dict[str, tuple[NDArray, NDArray]] = {}
        # A persistent batch continues its next step from here, with the contacts that were found; and where bodies
        # sleep, contacts wake them.
        sleeps = batch.model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP
        self._needs_contacts = batch.persistent or bool(sleeps)

    def refresh(self, envs: NDArray[np.bool_]) -> None:
        """Bring the pose fields of these environments, `(N,)`, up to their state; all else stays as it is."""
        # A batch copies out every bound field after every call, also those that this stage does not compute: the rows
        # would then hold what another environment left behind on the same thread.
        for name, bound in self._batch._bound.items():
            if name not in _POSE_FIELDS:
                live, kept = self._kept_field(name, bound)
                np.copyto(kept, live)
        try:
            with self._without_constraints():
                self._batch.forward(envs, stage=mujoco.mjtStage.mjSTAGE_POS)
        finally:
            for live, kept in self._kept.values():
                np.copyto(live, kept)

    @contextmanager
    def _without_constraints(self) -> Iterator[None]:
        """Have the batch find no contacts and no constraints: no pose depends on them, and they take most of the time.

        Models that the caller has set are left alone.
        """
        batch = self._batch
        if self._needs_contacts or batch.models is not None:
            yield
            return
        try:
            batch.set_models(self._unconstrained_model)
        except mujoco.FatalError:  # the caller has given some fields a value per environment
            flags = batch.expand("opt.disableflags")
            before = flags.copy()
            flags |= _NO_CONSTRAINTS
            try:
                yield
            finally:
                np.copyto(flags, before)
            return
        try:
            yield
        finally:
            batch.set_models(None)

    @cached_property
    def _unconstrained_model(self) -> mujoco.MjModel:
        model = self._batch.get_model(0)
        model.opt.disableflags |= _NO_CONSTRAINTS
        return model

    def _kept_field(self, name: str, bound: NDArray) -> tuple[NDArray, NDArray]:
        if name not in self._kept:
            live = bound.view()
            live.flags.writeable = True  # read-only for callers, since the next call overwrites it
            self._kept[name] = live, np.empty_like(live)
        return self._kept[name]
