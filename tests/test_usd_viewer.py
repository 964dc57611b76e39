"""The USD viewer: what it records, read back with plain USD and compared with what was published."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mujoco
import numpy as np
import pytest
from pxr import Usd, UsdGeom
from rich.console import Console

from scene_data import SceneDataFormat, SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.cli.view import View, run_view
from scene_data.errors import UnknownNameError
from scene_data.stage_motion import BodyMotion
from scene_data.visualizers import UsdVisualizer, UsdVisualizerCfg
from scene_data.visualizers.sampling import SampleClock
from tests.usd_reading import validation_errors, world_matrix

TIMESTEP = 0.01
MODEL = f"""
<mujoco>
  <option timestep="{TIMESTEP}"/>
  <asset>
    <texture name="grid" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="8" height="8"/>
    <material name="tiles" texture="grid"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 .1" material="tiles"/>
    <body name="top" pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .05" rgba="1 0 0 1"/>
      <camera name="eye" mode="track"/></body>
    <body name="rod" pos="1 0 1"><joint type="hinge" axis="0 1 0"/>
      <geom type="capsule" size=".05 .3" pos=".3 0 0"/></body>
    <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".2 .2 .2" pos="0 2 2" dim="2" radius=".01">
      <edge equality="true"/></flexcomp>
  </worldbody>
</mujoco>
"""
ENV_BODY = "/World/envs/env_{}/{}"


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MODEL)


@pytest.fixture(autouse=True)
def _no_context_is_left():
    yield
    SimulationContext.clear_instance()


def open_context(model, path: Path, num_envs: int = 1, **settings) -> SimulationContext:
    settings = {"fps": 1.0 / TIMESTEP, **settings}
    physics = MujocoPhysicsCfg(model, "mujoco_batch" if num_envs > 1 else "mujoco", num_envs)
    return SimulationContext(SimulationCfg(physics, visualizer_cfgs=[UsdVisualizerCfg(path=path, **settings)]))


def published(sim) -> tuple[np.ndarray, np.ndarray]:
    """Poses as matrices for column vectors, and points of the flexes."""
    provider = sim.get_scene_data_provider()
    poses = SceneDataFormat.Matrix44()
    assert provider.get_transforms(poses)
    points = np.concatenate([view.numpy() for view in provider.get_geometry_points().values()])
    return poses.matrices.numpy().copy(), points.copy()


def record(model, path: Path, steps: int, **settings) -> list[tuple[np.ndarray, np.ndarray]]:
    """What was published at each sample."""
    with open_context(model, path, **settings) as sim:
        sim.render()
        truth = [published(sim)]
        for _ in range(steps):
            sim.step()
            truth.append(published(sim))
    return truth


def compare(stage: Usd.Stage, truth, envs=(0,), bodies=("world", "top", "rod"), num_envs: int = 1) -> None:
    names = {"world": 0, "top": 1, "rod": 2}
    for code, (matrices, points) in enumerate(truth):
        matrices = matrices.reshape(num_envs, -1, 4, 4)
        points = points.reshape(num_envs, -1, 3)
        for env in envs:
            placed = world_matrix(stage, f"/World/envs/env_{env}", code)
            for name in bodies:
                found = world_matrix(stage, ENV_BODY.format(env, name), code)
                np.testing.assert_allclose(found, placed @ matrices[env, names[name]], atol=1e-5)
            cloth = UsdGeom.Mesh(stage.GetPrimAtPath(ENV_BODY.format(env, "cloth")))
            np.testing.assert_allclose(cloth.GetPointsAttr().Get(code), points[env], atol=1e-5)
            low, high = cloth.GetExtentAttr().Get(code)
            np.testing.assert_allclose((low, high), (points[env].min(axis=0), points[env].max(axis=0)), atol=1e-5)


@pytest.mark.parametrize("suffix", ["usda", "usdc", "usdz"])
def test_every_sample_is_what_was_published(model, tmp_path, suffix):
    path = tmp_path / "new" / f"run.{suffix}"
    truth = record(model, path, 12)
    stage = Usd.Stage.Open(str(path))
    assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (0.0, 12.0)
    assert stage.GetTimeCodesPerSecond() == pytest.approx(1.0 / TIMESTEP)
    compare(stage, truth)
    assert not np.allclose(truth[0][0], truth[-1][0])
    assert validation_errors(stage) == []
    beside = set() if suffix == "usdz" else {"run_textures"}
    assert {each.name for each in path.parent.iterdir()} == {path.name, *beside}


def test_cameras_are_where_they_are_published(model, tmp_path):
    path = tmp_path / "run.usdc"
    with open_context(model, path) as sim:
        sim.render()
        for _ in range(30):
            sim.step()
        (position,) = sim.get_scene_data_provider().get_camera_transforms()["positions"]
    stage = Usd.Stage.Open(str(path))
    camera = stage.GetPrimAtPath(ENV_BODY.format(0, "top/eye"))
    assert camera.IsA(UsdGeom.Camera)
    np.testing.assert_allclose(world_matrix(stage, str(camera.GetPath()), 30)[:3, 3], position[0], atol=1e-5)


def test_chosen_environments_stand_apart(model, tmp_path):
    path = tmp_path / "run.usdc"
    truth = record(model, path, 3, num_envs=4, visible_env_indices=(3, 1), env_spacing=5.0)
    stage = Usd.Stage.Open(str(path))
    assert {prim.GetName() for prim in stage.GetPrimAtPath("/World/envs").GetChildren()} == {"env_1", "env_3"}
    compare(stage, truth, envs=(1, 3), num_envs=4)
    places = [world_matrix(stage, f"/World/envs/env_{env}")[:3, 3] for env in (1, 3)]
    assert np.linalg.norm(places[0] - places[1]) == pytest.approx(5.0)
    body = stage.GetPrimAtPath(ENV_BODY.format(1, "rod"))
    assert body.IsInstance()
    assert body.GetPrototype() == stage.GetPrimAtPath(ENV_BODY.format(3, "rod")).GetPrototype()


def test_samples_come_at_the_rate_of_simulation_time(model, tmp_path):
    path = tmp_path / "run.usda"
    record(model, path, 100, fps=25.0)
    stage = Usd.Stage.Open(str(path))
    times = stage.GetPrimAtPath(ENV_BODY.format(0, "top")).GetAttribute("xformOp:transform").GetTimeSamples()
    np.testing.assert_allclose(times, np.arange(26), atol=1e-6)
    assert stage.GetEndTimeCode() / stage.GetTimeCodesPerSecond() == pytest.approx(1.0)


def test_a_reset_goes_on_along_the_time_line(model, tmp_path):
    path = tmp_path / "run.usdc"
    with open_context(model, path) as sim:
        sim.render()
        for _ in range(5):
            sim.step()
        sim.reset()
        sim.step()
        matrices, _ = published(sim)
    stage = Usd.Stage.Open(str(path))
    assert stage.GetEndTimeCode() == 6.0
    np.testing.assert_allclose(world_matrix(stage, ENV_BODY.format(0, "top"), 6.0), matrices[1], atol=1e-5)


def test_a_pause_adds_nothing(model, tmp_path):
    path = tmp_path / "run.usdc"
    with open_context(model, path) as sim:
        for _ in range(5):
            sim.render()
        sim.step()
    assert Usd.Stage.Open(str(path)).GetEndTimeCode() == 1.0


def test_what_diverged_keeps_its_last_pose(model, tmp_path, monkeypatch):
    path = tmp_path / "run.usdc"
    read = BodyMotion.read

    def read_diverged(self, provider):
        read(self, provider)
        self.poses.values = self.poses.values.copy()
        self.poses.values[model.nbody + 1] = np.nan

    with open_context(model, path, num_envs=2) as sim:
        sim.render()
        sim.step()
        matrices, _ = published(sim)
        monkeypatch.setattr(BodyMotion, "read", read_diverged)
        sim.step()
        healthy, _ = published(sim)
    stage = Usd.Stage.Open(str(path))
    for env, expected in ((0, healthy), (1, matrices)):
        placed = world_matrix(stage, f"/World/envs/env_{env}")
        found = world_matrix(stage, ENV_BODY.format(env, "top"), 2.0)
        np.testing.assert_allclose(found, placed @ expected.reshape(2, -1, 4, 4)[env, 1], atol=1e-5)


class TestLong:
    """What does not fit into memory becomes value clips."""

    LIMIT = 0.004  # [MB]: three samples

    @pytest.mark.parametrize("suffix", ["usda", "usdz"])
    def test_every_sample_is_what_was_published(self, model, tmp_path, suffix):
        path = tmp_path / f"run.{suffix}"
        truth = record(model, path, 20, memory_limit=self.LIMIT)
        stage = Usd.Stage.Open(str(path))
        assert len(Usd.ClipsAPI(stage.GetDefaultPrim()).GetClipAssetPaths()) > 2
        assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (0.0, 20.0)
        compare(stage, truth)
        assert validation_errors(stage) == []
        names = {each.name for each in tmp_path.iterdir()}
        assert names == ({path.name} if suffix == "usdz" else {path.name, "run_recording"})

    def test_nothing_stands_still_between_clips(self, model, tmp_path):
        path = tmp_path / "run.usdc"
        truth = record(model, path, 20, memory_limit=self.LIMIT)
        heights = np.array([matrices[1, 2, 3] for matrices, _ in truth])
        stage = Usd.Stage.Open(str(path))
        between = [world_matrix(stage, ENV_BODY.format(0, "top"), code + 0.5)[2, 3] for code in range(20)]
        np.testing.assert_allclose(between, 0.5 * (heights[1:] + heights[:-1]), atol=1e-6)

    def test_what_rests_until_a_clip_ends_does_not_begin_to_move_before(self, tmp_path):
        model = mujoco.MjModel.from_xml_string(
            "<mujoco><option gravity='0 0 0' timestep='.01'/>"
            "<worldbody><body name='top'><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
        )
        path = tmp_path / "run.usdc"
        with open_context(model, path, memory_limit=1e-6) as sim:
            sim.render()
            for step in range(1, 13):
                if step == 6:  # clips of two samples begin at even ones
                    sim.physics.data.qpos[0] = 1.0
                sim.step()
        stage = Usd.Stage.Open(str(path))
        assert [start for start, _ in Usd.ClipsAPI(stage.GetDefaultPrim()).GetClipActive()] == [0, 2, 4, 6, 8, 10, 12]
        places = [world_matrix(stage, ENV_BODY.format(0, "top"), code)[0, 3] for code in (4.5, 5.0, 5.5, 6.0, 6.5)]
        np.testing.assert_allclose(places, (0.0, 0.0, 0.5, 1.0, 1.0), atol=1e-6)

    def test_memory_stays_bounded(self, model, tmp_path):
        with open_context(model, tmp_path / "run.usdc", memory_limit=self.LIMIT) as sim:
            (viewer,) = sim.visualizers
            for _ in range(40):
                sim.step()
                assert viewer._recording.nbytes <= 2 * self.LIMIT * 1e6

    def test_a_shorter_recording_takes_the_place_of_a_longer_one(self, model, tmp_path):
        path = tmp_path / "run.usda"
        record(model, path, 20, memory_limit=self.LIMIT)
        truth = record(model, path, 2)
        compare(Usd.Stage.Open(str(path)), truth)
        assert not (tmp_path / "run_recording").exists()

    def test_a_folder_of_another_kind_is_left_alone(self, model, tmp_path):
        other = tmp_path / "run_recording" / "thesis.tex"
        other.parent.mkdir()
        other.write_text("all of it")
        with pytest.raises(FileExistsError, match="run_recording"):
            record(model, tmp_path / "run.usda", 1)
        assert other.read_text() == "all of it"


class TestSampleClock:
    def test_the_rate_holds_on_average_where_steps_do_not_divide_it(self):
        clock = SampleClock(30.0)
        samples = sum(clock.advance(0.01) for _ in range(1000))
        assert samples == pytest.approx(300, abs=1)

    def test_steps_that_are_longer_than_a_period_have_one_sample_each(self):
        clock = SampleClock(1000.0)
        assert all(clock.advance(0.01) for _ in range(5))
        assert not any(clock.advance(0.0) for _ in range(5))
        assert clock.seconds == pytest.approx(0.05)


class TestInterrupted:
    @pytest.mark.parametrize("suffix", ["usda", "usdz"])
    def test_what_was_saved_can_be_read_while_it_records(self, model, tmp_path, suffix, capfd):
        path = tmp_path / f"run.{suffix}"
        truth = []
        with open_context(model, path, save_interval=1e-9) as sim:
            sim.render()
            truth.append(published(sim))
            time.sleep(0.2)  # saving takes a small share of the time
            sim.step()
            truth.append(published(sim))
            time.sleep(2.0)
            sim.step()
            assert "Warning" not in capfd.readouterr().err.replace("Warp CUDA warning", "")
            readable = path if suffix == "usda" else tmp_path / "run_recording" / "so_far.usdc"
            stage = Usd.Stage.Open(str(readable))
            assert stage.GetEndTimeCode() >= 0.0
            compare(stage, truth[: int(stage.GetEndTimeCode()) + 1])
            assert validation_errors(stage) == []

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_the_command_with_a_whole_file(self, model, tmp_path, number):
        (tmp_path / "model.xml").write_text(MODEL)
        path = tmp_path / "run.usdc"
        command = [sys.executable, "-c", "from scene_data.cli import main; main()", "view", str(tmp_path / "model.xml")]
        with subprocess.Popen(
            [*command, "--viewer", "usd", "--record", str(path)], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                for line in process.stdout:
                    if "Ctrl-C" in line:
                        break
                time.sleep(1.0)
                process.send_signal(number)
                output, _ = process.communicate(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 0
        assert "steps/s" in output
        stage = Usd.Stage.Open(str(path))
        assert stage.GetEndTimeCode() > 0.0
        assert {each.name for each in tmp_path.iterdir()} == {"model.xml", "run.usdc", "run_textures"}


def test_the_command_records(tmp_path):
    (tmp_path / "model.xml").write_text(MODEL)
    path = tmp_path / "run.usda"
    run_view(View(str(tmp_path / "model.xml"), viewer="usd", record=path, steps=50, num_envs=2, engine="mujoco_batch"),
             Console(quiet=True))  # fmt: skip
    stage = Usd.Stage.Open(str(path))
    assert stage.GetEndTimeCode() == pytest.approx(50 * TIMESTEP * 30.0)
    assert len(stage.GetPrimAtPath("/World/envs").GetChildren()) == 2


class TestMistakes:
    def test_no_path(self):
        with pytest.raises(ValueError, match="needs a path: --record"):
            UsdVisualizerCfg()

    def test_another_format(self, tmp_path):
        with pytest.raises(UnknownNameError, match=r"'run\.obj'.*\*\.usda"):
            UsdVisualizerCfg(path=tmp_path / "run.obj")

    def test_a_folder(self, tmp_path):
        (tmp_path / "run.usda").mkdir()
        with pytest.raises(IsADirectoryError, match=r"run\.usda"):
            UsdVisualizerCfg(path=tmp_path / "run.usda")

    def test_below_a_file(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError, match="file is no folder"):
            UsdVisualizerCfg(path=tmp_path / "file" / "run.usda")

    @pytest.mark.parametrize("name", ["fps", "save_interval", "memory_limit"])
    def test_numbers(self, tmp_path, name):
        with pytest.raises(ValueError, match=name):
            UsdVisualizerCfg(path=tmp_path / "run.usda", **{name: 0.0})

    def test_the_address_is_the_file(self, tmp_path):
        path = tmp_path / "run.usda"
        assert UsdVisualizer(UsdVisualizerCfg(path=path)).address == os.fspath(path)
        assert not list(tmp_path.iterdir())
