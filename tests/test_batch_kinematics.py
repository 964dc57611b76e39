"""A batch's poses are computed without its contacts, and the batch is left as its caller has it."""

import mujoco
import mujoco.batch
import numpy as np
import pytest
from mujoco_models import robot
from mujoco_rigs import BatchRig, assert_fresh, published_poses

NO_CONSTRAINTS = int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
NO_GRAVITY = int(mujoco.mjtDisableBit.mjDSBL_GRAVITY)
LIFT = 0.25


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return robot()


@pytest.fixture
def rig(model) -> BatchRig:
    return BatchRig(model)


def disable_flags(rig: BatchRig) -> list[int]:
    return [rig.batch.get_model(env).opt.disableflags for env in range(rig.num_envs)]


def watched_flags(rig: BatchRig, monkeypatch) -> list[list[int]]:
    """What is disabled in each environment, at each `forward` from now on."""
    seen, forward = [], rig.batch.forward

    def watched(*arguments, **options):
        seen.append(disable_flags(rig))
        forward(*arguments, **options)

    monkeypatch.setattr(rig.batch, "forward", watched)
    return seen


def arm_heights(rig: BatchRig) -> np.ndarray:
    """How high the upper arm sits on the torso, in each environment, while the torso stands upright."""
    positions = published_poses(rig.backend)["xpos"].reshape(rig.num_envs, -1, 3)
    return (positions[:, rig.model.body("upper").id] - positions[:, rig.model.body("torso").id])[:, 2]


def test_no_contacts_are_computed(rig, monkeypatch):
    seen = watched_flags(rig, monkeypatch)
    rig.step()
    rig.backend.update_kinematics()
    assert seen == [[NO_CONSTRAINTS] * rig.num_envs]
    assert disable_flags(rig) == [0] * rig.num_envs


def test_the_caller_may_set_models_later(rig, model):
    heavy = robot()
    heavy.body_pos[model.body("upper").id, 2] += LIFT
    assert_fresh(rig)
    rig.batch.set_models(heavy)
    rig.backend.mark_transforms_written()
    np.testing.assert_allclose(arm_heights(rig), LIFT, atol=1e-12)
    assert rig.batch.models is heavy
    assert heavy.opt.disableflags == 0


def test_values_of_each_environment_are_followed(rig, model, monkeypatch):
    assert_fresh(rig)
    rig.batch.expand("body_pos")[1, model.body("upper").id, 2] += LIFT
    rig.batch.expand("opt.disableflags")[2] = NO_GRAVITY
    rig.backend.mark_transforms_written()
    seen = watched_flags(rig, monkeypatch)
    np.testing.assert_allclose(arm_heights(rig), [0.0, LIFT, 0.0], atol=1e-12)
    assert seen == [[NO_CONSTRAINTS, NO_CONSTRAINTS, NO_CONSTRAINTS | NO_GRAVITY]]
    assert disable_flags(rig) == [0, 0, NO_GRAVITY]


@pytest.mark.parametrize("is_expanded", [False, True])
def test_the_next_steps_meet_their_contacts(model, is_expanded):
    read, unread = BatchRig(model), BatchRig(model)
    for rig in (read, unread):
        if is_expanded:
            rig.batch.expand("geom_friction")
    for _ in range(150):
        for rig in (read, unread):
            rig.step()
        read.backend.update_kinematics()
    np.testing.assert_array_equal(read.batch.state, unread.batch.state)
    # It has fallen onto the floor, and lies there.
    assert (read.batch.bind("qpos")[:, 2] > 0.0).all()
    assert (read.batch.bind("qpos")[:, 2] < 0.3).all()


def test_what_continues_from_here_has_its_contacts(model, monkeypatch):
    rig = BatchRig(model, persistent=True)
    seen = watched_flags(rig, monkeypatch)
    rig.step()
    rig.backend.update_kinematics()
    assert seen == [[0] * rig.num_envs]


@pytest.mark.parametrize("is_expanded", [False, True])
def test_a_failure_leaves_the_batch_as_it_was(rig, monkeypatch, is_expanded):
    if is_expanded:
        rig.batch.expand("body_mass")

    def fail(*arguments, **options):
        raise mujoco.batch.SimulationError(np.array([0]), "stop")

    with monkeypatch.context() as patch:
        patch.setattr(rig.batch, "forward", fail)
        with pytest.raises(mujoco.batch.SimulationError):
            rig.backend.update_kinematics()
    assert disable_flags(rig) == [0] * rig.num_envs
    assert_fresh(rig)
