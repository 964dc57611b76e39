"""Brings the bodies of a Newton state up to joint coordinates that a user wrote."""

from collections.abc import Sequence

import newton
import numpy as np
import warp as wp

from scene_data.backends.newton_worlds import NewtonWorlds, array_or_empty

__all__ = ["AuthoredJoints"]

wp.set_module_options({"enable_backward": False})


class AuthoredJoints:
    """Finds the articulations whose joint coordinates were written since the last look, and evaluates those.

    After a step both `joint_q` and `body_q` are the solver's, and some solvers integrate bodies and leave `joint_q`
    behind, so bodies must not be computed from joints without a reason. The reason is an announcement, or that the
    coordinates of an articulation have changed while its bodies have not. All of it happens on the device, without a
    wait. An array that was swapped for another tells nothing, so then only announcements count.
    """

    def __init__(self, model: newton.Model, worlds: NewtonWorlds):
        self._model = model
        count = model.articulation_count
        self._announced = wp.zeros(count, dtype=wp.bool, device=model.device)
        self._authored = wp.zeros(count, dtype=wp.bool, device=model.device)
        self._num_envs = worlds.num_envs
        self._seen: tuple[wp.array, wp.array] | None = None
        if count:
            owners = array_or_empty(model.articulation_world)
            owners = owners if worlds.has_worlds else np.zeros(count, np.int32)
            self._owners = wp.array(owners, dtype=wp.int32, device=model.device)
            self._joint_q = wp.empty_like(model.joint_q)
            self._body_q = wp.empty_like(model.body_q)

    def announce(self, env_ids: Sequence[int] | None = None) -> None:
        """Take the joint coordinates of these environments, or of all, as written.

        Raises:
            ValueError: There is no such environment.
        """
        if env_ids is None:
            self._announced.fill_(True)
            return
        ids = np.asarray(env_ids, dtype=np.int64).reshape(-1)
        if ids.size and not 0 <= ids.min() <= ids.max() < self._num_envs:
            raise ValueError(f"env_ids must be in [0, {self._num_envs}), got {ids.min()} to {ids.max()}")
        if not self._model.articulation_count:
            return
        chosen = np.zeros(self._num_envs, bool)
        chosen[ids] = True
        device = self._announced.device
        wp.launch(
            _announce,
            dim=len(self._announced),
            inputs=[self._owners, wp.array(chosen, dtype=wp.bool, device=device)],
            outputs=[self._announced],
            device=device,
        )

    def evaluate(self, state: newton.State) -> None:
        """Launch what brings the bodies of written articulations up to their joints."""
        if not self._model.articulation_count:
            return
        model = self._model
        same = self._seen is not None and self._seen[0] is state.joint_q and self._seen[1] is state.body_q
        wp.launch(
            _find_authored,
            dim=model.articulation_count,
            inputs=[
                *(model.articulation_start, model.articulation_end, model.joint_q_start, model.joint_child),
                *(state.joint_q, self._joint_q, state.body_q, self._body_q, same),
            ],
            outputs=[self._announced, self._authored],
            device=model.device,
        )
        newton.eval_fk(model, state.joint_q, state.joint_qd, state, mask=self._authored)
        self.remember(state)

    def remember(self, state: newton.State) -> None:
        """Take the state as it is for what was seen."""
        if self._model.articulation_count:
            wp.copy(self._joint_q, state.joint_q)
            wp.copy(self._body_q, state.body_q)
            self._seen = (state.joint_q, state.body_q)


@wp.kernel
def _announce(owners: wp.array(dtype=wp.int32), chosen: wp.array(dtype=wp.bool), announced: wp.array(dtype=wp.bool)):
    articulation = wp.tid()
    env = owners[articulation]
    if env >= 0 and chosen[env]:
        announced[articulation] = wp.bool(True)


@wp.kernel
def _find_authored(
    articulation_start: wp.array(dtype=wp.int32),
    articulation_end: wp.array(dtype=wp.int32),
    joint_q_start: wp.array(dtype=wp.int32),
    joint_child: wp.array(dtype=wp.int32),
    joint_q: wp.array(dtype=wp.float32),
    seen_joint_q: wp.array(dtype=wp.float32),
    body_q: wp.array(dtype=wp.transformf),
    seen_body_q: wp.array(dtype=wp.transformf),
    same_arrays: wp.bool,
    announced: wp.array(dtype=wp.bool),
    authored: wp.array(dtype=wp.bool),
):
    articulation = wp.tid()
    joints_changed = wp.bool(False)
    bodies_changed = wp.bool(False)
    if same_arrays:
        for joint in range(articulation_start[articulation], articulation_end[articulation]):
            for coordinate in range(joint_q_start[joint], joint_q_start[joint + 1]):
                if joint_q[coordinate] != seen_joint_q[coordinate]:
                    joints_changed = wp.bool(True)
            body = joint_child[joint]
            for component in range(7):
                if body_q[body][component] != seen_body_q[body][component]:
                    bodies_changed = wp.bool(True)
    authored[articulation] = announced[articulation] or (joints_changed and not bodies_changed)
    announced[articulation] = wp.bool(False)
