"""SimulationVectorEnv: against gymnasium's own vector environments and checker, MuJoCo, and a pinhole's analysis."""

import sys
from typing import Any

import mujoco
import numpy as np
import pytest

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg, VisualOptions
from scene_data.errors import MissingDependencyError, UnknownNameError

gym = pytest.importorskip("gymnasium")

from gymnasium.utils import env_checker  # noqa: E402
from gymnasium.vector import AutoresetMode, SyncVectorEnv  # noqa: E402
from gymnasium.wrappers.vector import FilterObservation, RecordEpisodeStatistics  # noqa: E402

from scene_data.vector_env import SimulationVectorEnv, VectorTask  # noqa: E402

# A red slab that slides along X, its upper side 2.4 m under a camera that looks straight down.
XML = """
<mujoco model="slab">
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <light pos="0 0 4" dir="0 0 -1"/>
    <geom name="floor" type="plane" size="4 4 0.1" rgba="0.1 0.2 0.3 1"/>
    <body name="slab" pos="0 0 0.5">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom name="slab" type="box" size="0.3 0.3 0.1" rgba="0.9 0.1 0.1 1"/>
    </body>
    <camera name="top" pos="0 0 3" fovy="60"/>
  </worldbody>
  <actuator><velocity joint="slide" kv="1000" ctrlrange="-2 2" ctrllimited="true"/></actuator>
  <keyframe><key name="right" qpos="0.25"/></keyframe>
</mujoco>
"""
MODEL = mujoco.MjModel.from_xml_string(XML)
OPTIONS = VisualOptions(shadows=False, textures=False, skybox=False)
TOP = CameraCfg("top", 32, 24, ("segmentation",), options=OPTIONS)
LIMIT = 0.35  # [m]
MODES = list(AutoresetMode)
ENGINES = ("mujoco", "mujoco_batch", "mujoco_warp")


def read_state(sim: SimulationContext) -> np.ndarray:
    """Position and velocity of each slab, (N, 2)."""
    physics: Any = sim.physics
    if isinstance(sim.cfg.physics, MujocoPhysicsCfg) and sim.cfg.physics.engine == "mujoco":
        return np.array([[data.qpos[0], data.qvel[0]] for data in physics.datas])
    if sim.cfg.physics.engine == "mujoco_batch":
        return np.concatenate([physics.batch.qpos, physics.batch.qvel], axis=1)
    return np.concatenate([physics.data.qpos.numpy(), physics.data.qvel.numpy()], axis=1)


def scatter(sim: SimulationContext, env_ids: np.ndarray, rng: np.random.Generator) -> None:
    sim.physics.batch.qpos[env_ids, 0] = rng.uniform(-0.3, 0.3, len(env_ids))


SLIDE = VectorTask(
    state=read_state,
    reward=lambda state, action: state[:, 0] - 0.1 * action[:, 0],
    terminated=lambda state: np.abs(state[:, 0]) > LIMIT,
    frame_skip=2,
    max_episode_steps=15,
)


def make_env(
    num_envs: int = 3, engine: str = "mujoco_batch", cameras=(TOP,), sim_settings=None, task=None, **settings
) -> SimulationVectorEnv:
    physics = MujocoPhysicsCfg(MODEL, engine, num_envs)
    sim = SimulationContext(SimulationCfg(physics, cameras=cameras, **(sim_settings or {})))
    changes = task or {}
    return SimulationVectorEnv(sim, VectorTask(**{**SLIDE.__dict__, **changes}), **settings)


def slab_position(segmentation: np.ndarray) -> np.ndarray:
    """Where the slab stands in each image [pixels from the left]."""
    seen = segmentation[..., 0] == 1
    return (seen * (np.arange(32) + 0.5)).sum(axis=(-2, -1)) / seen.sum(axis=(-2, -1))


def assert_belongs_to_its_state(observation: dict[str, np.ndarray]) -> None:
    """The image shows the slab where the state beside it says it is."""
    focal = 12.0 / np.tan(np.radians(30.0))
    expected = 16.0 + focal * observation["state"][..., 0] / 2.4
    np.testing.assert_allclose(slab_position(observation["top/segmentation"]), expected, atol=0.6)


class SlabEnv(gym.Env):
    """The same task in one environment, on MuJoCo's C engine and nothing of ours."""

    observation_space = gym.spaces.Dict({"state": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)})
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self):
        self.data = mujoco.MjData(MODEL)

    def observe(self) -> dict[str, np.ndarray]:
        return {"state": np.array([self.data.qpos[0], self.data.qvel[0]], np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mujoco.mj_resetDataKeyframe(MODEL, self.data, 0)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.data.ctrl[:] = action
        mujoco.mj_step(MODEL, self.data, 2)
        self.steps += 1
        reward = self.data.qpos[0] - 0.1 * action[0]
        return self.observe(), reward, bool(abs(self.data.qpos[0]) > LIMIT), self.steps >= 15, {}


def test_spaces_are_those_of_the_cameras_the_state_and_the_actuators():
    cameras = (CameraCfg("top", 8, 6, ("rgb", "depth"), options=OPTIONS),)
    env = make_env(cameras=cameras)
    box = gym.spaces.Box
    assert env.single_observation_space == gym.spaces.Dict(
        {
            "top/rgb": box(0, 255, (6, 8, 3), np.uint8),
            "top/depth": box(0.0, np.inf, (6, 8, 1), np.float32),
            "state": box(-np.inf, np.inf, (2,), np.float32),
        }
    )
    assert env.single_action_space == box(-2.0, 2.0, (1,), np.float32)
    assert env.action_space.shape == (3, 1)
    observation, info = env.reset(seed=0)
    assert observation in env.observation_space
    assert info == {}
    env.close()


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
def test_an_image_is_what_the_camera_makes_of_its_frame(arrays):
    """The floor, 3 m away, is clipped; the ids of instances are made of the segmentation."""
    data_types = ("depth", "instance_segmentation")
    clipped = CameraCfg(
        "top", 8, 6, data_types, options=OPTIONS, depth_clipping_behavior="zero", clipping_range=(1, 2.5)
    )
    env = make_env(1, cameras=(clipped,), arrays=arrays)
    observation, _ = env.reset()
    assert {key: np.asarray(values) for key, values in observation.items()} in env.observation_space
    assert observation["top/depth"][0, 0, 0, 0] == 0.0
    assert observation["top/depth"].max().item() == pytest.approx(2.4, abs=1e-4)
    expected = env.sim.cameras["top"].data["instance_segmentation"]
    np.testing.assert_array_equal(observation["top/instance_segmentation"], expected)
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_every_autoreset_mode_is_gymnasiums(mode):
    """Step for step what `SyncVectorEnv` returns for the same task."""
    ours = make_env(cameras=(), task={"keyframe": "right"}, autoreset_mode=mode)
    theirs = SyncVectorEnv([SlabEnv] * 3, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] is mode
    np.testing.assert_allclose(ours.reset()[0]["state"], theirs.reset()[0]["state"])
    rng = np.random.default_rng(0)
    ends = {"terminated": 0, "truncated": 0}
    for _ in range(60):
        # The first environment runs out of bounds, the second out of time, the third whichever comes first.
        actions = np.array([[2.0], [0.0], [rng.uniform(-2.0, 2.0)]], np.float32)
        observation, reward, terminated, truncated, info = ours.step(actions)
        expected, expected_reward, *expected_ends, expected_info = theirs.step(actions)
        np.testing.assert_allclose(observation["state"], expected["state"], atol=1e-6)
        np.testing.assert_allclose(reward, expected_reward, atol=1e-6)
        np.testing.assert_array_equal([terminated, truncated], expected_ends)
        np.testing.assert_array_equal(info.get("_final_obs", []), expected_info.get("_final_obs", []))
        for final, expected_final in zip(info.get("final_obs", []), expected_info.get("final_obs", []), strict=True):
            assert (final is None) == (expected_final is None)
            if final is not None:
                np.testing.assert_allclose(final["state"], expected_final["state"], atol=1e-6)
        ends["terminated"] += terminated.sum()
        ends["truncated"] += truncated.sum()
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            mask = terminated | truncated
            reset, _ = ours.reset(options={"reset_mask": mask})
            expected, _ = theirs.reset(options={"reset_mask": mask})
            np.testing.assert_allclose(reset["state"], expected["state"], atol=1e-6)
    assert min(ends.values()) >= 3
    ours.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_image_shows_the_state_beside_it_through_resets_and_at_the_end(mode):
    env = make_env(autoreset_mode=mode, task={"randomize": scatter})
    observation, _ = env.reset(seed=3)
    assert_belongs_to_its_state(observation)
    first_steps = final_count = 0
    for step in range(40):
        actions = np.array([[2.0], [0.0], [-2.0]]) * (1.0 if step % 2 else 0.5)
        observation, _, terminated, _, info = env.step(actions)
        assert_belongs_to_its_state(observation)
        finals = [final for final in info.get("final_obs", []) if final is not None]
        for final in finals:
            assert_belongs_to_its_state(final)
        if mode is AutoresetMode.SAME_STEP:
            outside = np.abs([final["state"][0] for final in finals]) > LIMIT
            assert outside.sum() == terminated.sum()
        final_count += len(finals)
        first_steps += int((np.abs(observation["state"][:, 1]) == 0.0).sum())
    assert first_steps > 5
    assert (final_count > 5) == (mode is AutoresetMode.SAME_STEP)
    env.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_partial_reset_shows_at_once_and_leaves_the_others_alone(engine):
    env = make_env(engine=engine, autoreset_mode=AutoresetMode.DISABLED)
    env.reset()
    for _ in range(8):
        moved, *_ = env.step(np.array([[1.0], [-1.0], [0.5]]))
    assert_belongs_to_its_state(moved)
    now = env.sim.simulation_time_ns
    reset, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert_belongs_to_its_state(reset)
    assert reset["state"][1].tolist() == [0.0, 0.0]
    for key, values in reset.items():
        np.testing.assert_array_equal(values[[0, 2]], moved[key][[0, 2]])
    assert env.sim.simulation_time_ns == now
    env.close()


def test_derived_poses_are_those_of_the_state_when_it_is_read():
    def read(sim: SimulationContext) -> np.ndarray:
        return np.stack([sim.physics.batch.qpos[:, 0], sim.physics.batch.xpos[:, 1, 0]], axis=1)

    env = make_env(cameras=(), task={"state": read})
    env.reset()
    for _ in range(3):
        state = env.step(np.array([[2.0], [1.0], [-2.0]]))[0]["state"]
    assert (np.abs(state[:, 0]) > 0.01).all()
    np.testing.assert_allclose(state[:, 1], state[:, 0], rtol=1e-6)
    env.close()


class OneEnv(gym.Env):
    """The first environment of a vector environment, for gymnasium's checker of single ones."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, env: SimulationVectorEnv):
        self.env = env
        self.action_space, self.observation_space = env.single_action_space, env.single_observation_space
        self.render_mode = env.render_mode

    @staticmethod
    def _first(observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {key: values[0] for key, values in observation.items()}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        observation, info = self.env.reset(seed=seed, options=options)
        return self._first(observation), info

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action[None])
        return self._first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def render(self):
        return self.env.render()[0]


@pytest.mark.filterwarnings("ignore::UserWarning")  # recommends other ranges
def test_gymnasiums_checker_passes():
    cameras = (CameraCfg("top", 8, 6, ("rgb", "depth"), options=OPTIONS),)
    env = make_env(1, cameras=cameras, task={"randomize": scatter}, render_camera="top")
    env_checker.check_env(OneEnv(env))
    env_checker.check_reset_seed_determinism(env)
    env_checker.check_reset_return_type(env)
    env_checker.check_reset_options(env)
    env_checker.check_returned_data_not_reused(env)
    env.close()


def test_the_same_seed_and_actions_give_the_same_episodes():
    def episodes(seed: int) -> list[np.ndarray]:
        env = make_env(task={"randomize": scatter})
        env.action_space.seed(5)
        trace = [env.reset(seed=seed)[0]]
        trace += [env.step(env.action_space.sample())[0] for _ in range(40)]
        env.close()
        return [values for observation in trace for values in observation.values()]

    first, again, other = episodes(1), episodes(1), episodes(2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_wrappers_of_gymnasium_work_on_it(mode):
    env = RecordEpisodeStatistics(make_env(task={"randomize": scatter}, autoreset_mode=mode))
    if mode is AutoresetMode.NEXT_STEP:  # the other is more than this wrapper can do
        env = FilterObservation(env, ["top/segmentation"])
    env.reset(seed=0)
    lengths = []
    for _ in range(31):
        observation, _, _, _, info = env.step(np.array([[2.0], [0.0], [0.0]]))
        assert observation in env.observation_space
        lengths += info["episode"]["l"][1:][info["_episode"][1:]].tolist() if "episode" in info else []
    assert lengths == [15] * 4
    env.close()


def test_tensors_are_the_frames_themselves_and_stay_as_they_are():
    torch = pytest.importorskip("torch")
    env = make_env(arrays="torch")
    observation, _ = env.reset()
    image = observation["top/segmentation"]
    frame = env.sim.cameras["top"].data.lease("segmentation").numpy()
    assert image.data_ptr() == frame.ctypes.data
    before = image.clone()
    stepped, *rest = env.step(torch.tensor([[1.0], [-1.0], [0.5]]))
    for _ in range(5):
        stepped = env.step(torch.tensor([[1.0], [-1.0], [0.5]]))[0]
    assert torch.equal(image, before)
    assert not torch.equal(image, stepped["top/segmentation"])
    assert stepped["state"].dtype == torch.float32
    assert [value.dtype for value in rest[:3]] == [torch.float64, torch.bool, torch.bool]
    env.close()


def test_a_task_may_work_on_tensors():
    torch = pytest.importorskip("torch")
    functions = {
        "state": lambda sim: torch.from_numpy(read_state(sim)),
        "terminated": lambda state: torch.abs(state[:, 0]) > LIMIT,
        "reward": lambda state, action: torch.sub(state[:, 0], action[:, 0], alpha=0.1),
    }
    actions = np.array([[2.0], [0.0], [-2.0]], np.float32)
    for arrays in ("numpy", "torch"):
        env, plain = make_env(task=functions, arrays=arrays), make_env()
        env.reset()
        plain.reset()
        for _ in range(20):
            for value, expected in zip(env.step(actions)[1:4], plain.step(actions)[1:4], strict=True):
                assert isinstance(value, np.ndarray if arrays == "numpy" else torch.Tensor)
                np.testing.assert_allclose(np.asarray(value), expected, rtol=1e-6)
        env.close()
        plain.close()


def test_numpy_observations_cost_no_budget_and_tensors_do():
    env = make_env(sim_settings={"held_frames": 1})
    kept = [env.reset()[0]] + [env.step(np.zeros((3, 1)))[0] for _ in range(20)]
    assert len({values["top/segmentation"].ctypes.data for values in kept}) == 21
    env.close()
    lending = make_env(arrays="torch", sim_settings={"held_frames": 1})
    kept = [lending.reset()[0]]
    kept += [lending.step(np.zeros((3, 1)))[0] for _ in range(2)]
    with pytest.raises(RuntimeError, match="held are .* of top/segmentation"):
        lending.step(np.zeros((3, 1)))
    lending.close()


@pytest.mark.parametrize("engine", ["mujoco_batch", "mujoco_warp"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_diverged_environment_ends_its_episode_and_hurts_no_other(engine, mode):
    env, sound = (make_env(engine=engine, autoreset_mode=mode, cameras=()) for _ in range(2))
    actions = np.array([[1.0], [0.2], [0.5]])
    for each in (env, sound):
        each.reset()
        each.step(actions)
    velocities = env.sim.physics.batch.qvel if engine == "mujoco_batch" else env.sim.physics.data.qvel.numpy()
    velocities[1] = np.nan
    if engine == "mujoco_warp":
        env.sim.physics.data.qvel.assign(velocities)
    observation, reward, terminated, _, info = env.step(actions)
    expected, expected_reward, *_ = sound.step(actions)
    assert terminated.tolist() == info["diverged"].tolist() == info["_diverged"].tolist() == [False, True, False]
    assert reward[1] == 0.0
    assert np.isfinite(observation["state"]).all()
    np.testing.assert_array_equal(observation["state"][[0, 2]], expected["state"][[0, 2]])
    np.testing.assert_array_equal(reward[[0, 2]], expected_reward[[0, 2]])
    for _ in range(3):
        observation, _, terminated, _, info = env.step(actions)
        assert not terminated.any()
        assert info == {}
    assert observation["state"][1, 0] > 0.0
    env.close()
    sound.close()


def test_a_camera_may_be_watched_without_being_observed():
    camera = CameraCfg("top", 8, 6, ("rgb",), options=OPTIONS)
    env = make_env(cameras=(camera,), observe=("state",), render_camera="top")
    observation, _ = env.reset()
    assert list(observation) == ["state"]
    assert env.sim.render_core.stats()["captures"] == 0
    images = env.render()
    assert len(images) == 3
    assert images[0].shape == (6, 8, 3)
    assert images[0].dtype == np.uint8
    env.close()
    env.close()
    blind = make_env(cameras=())
    assert blind.render() is None
    blind.close()


class TestBadInput:
    def test_steps_before_a_reset_and_after_an_end(self):
        env = make_env(cameras=(), autoreset_mode=AutoresetMode.DISABLED)
        with pytest.raises(gym.error.ResetNeeded, match="before the first step"):
            env.step(np.zeros((3, 1)))
        env.reset()
        while not env.step(np.array([[2.0], [0.0], [0.0]]))[2].any():
            pass
        with pytest.raises(gym.error.ResetNeeded, match=r"environments \[0\] have ended.*reset_mask"):
            env.step(np.zeros((3, 1)))
        env.close()

    def test_shapes(self):
        env = make_env(cameras=())
        env.reset()
        with pytest.raises(ValueError, match=r"control must have shape \(3, 1\), got \(3,\)"):
            env.step(np.zeros(3))
        for mask in (np.zeros(2, bool), np.zeros(3)):
            with pytest.raises(ValueError, match=r"reset_mask must be bool of shape \(3,\)"):
                env.reset(options={"reset_mask": mask})
        env.close()

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"observe": ("top/rgb",)}, "observation 'top/rgb'. Known: top/segmentation, state"),
            ({"observe": ()}, "nothing is observed"),
            ({"arrays": "jax"}, "arrays 'jax'. Known: numpy, torch"),
            ({"render_camera": "front"}, "camera 'front'. Known: top"),
            ({"render_camera": "top"}, "'top' has no 'rgb'"),
            ({"sim_settings": {"render_mode": "pipelined"}}, "lag the state in render mode 'pipelined'"),
            ({"task": {"state": lambda sim: np.zeros(3)}}, r"state must have shape \(3, k\), got \(3,\)"),
            ({"task": {"frame_skip": 0}}, "frame_skip must be at least 1"),
            ({"task": {"max_episode_steps": 0}}, "max_episode_steps must be at least 1"),
            ({"autoreset_mode": "later"}, "later"),
        ],
    )
    def test_settings_that_cannot_be_used_leave_the_simulation_open(self, settings, message):
        try:
            with pytest.raises(ValueError, match=message):
                make_env(**settings)
            sim = SimulationContext.instance()
            assert sim is not None
            sim.step()
        finally:
            SimulationContext.clear_instance()

    def test_without_gymnasium_the_error_names_the_extra(self, monkeypatch):
        for name in [name for name in sys.modules if name.partition(".")[0] == "gymnasium"]:
            monkeypatch.delitem(sys.modules, name)
        for name in ("scene_data.vector_env", "scene_data.vector_observation"):
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr("builtins.__import__", _without("gymnasium"))
        with pytest.raises(MissingDependencyError, match=r"scene-data\[gym\]"):
            import scene_data.vector_env  # noqa: F401

    def test_an_unknown_keyframe(self):
        env = make_env(cameras=(), task={"keyframe": "left"})
        with pytest.raises(UnknownNameError, match="keyframe 'left'. Known: right"):
            env.reset()
        env.close()


def _without(library: str):
    real_import = __import__

    def imported(name, *rest, **options):
        if name.partition(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
        return real_import(name, *rest, **options)

    return imported
