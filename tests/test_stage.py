"""The USD stage of a scene, read back with plain USD."""

import subprocess
import sys
from pathlib import Path

import mujoco
import mujoco.batch
import numpy as np
import pytest
from mujoco_models import robot
from pxr import Gf, Usd, UsdGeom, UsdUtils
from real_models import ROBOTS, load, model_id
from usd_reading import validation_errors, world_matrix

from scene_data.backends.mjcf_scene import describe_model
from scene_data.backends.mujoco import MujocoSceneDataBackend
from scene_data.backends.mujoco_batch import MujocoBatchSceneDataBackend
from scene_data.errors import UnknownNameError
from scene_data.formats import SceneDataFormat
from scene_data.provider import SceneDataProvider
from scene_data.stage import SceneStage, stage_camera_transforms, stage_num_envs

NUM_ENVS = 3
CROWD = 1024
TIMES = (0.0, 1.0, 2.0, 3.0)


def published_matrices(provider: SceneDataProvider) -> np.ndarray:
    poses = SceneDataFormat.Matrix44()
    assert provider.get_transforms(poses, allow_passthrough=False)
    return poses.matrices.numpy().astype(np.float64)


class Recording:
    """Three environments that fall apart, written to a file, and what the provider said at each time."""

    def __init__(self, folder: Path):
        self.model = robot()
        batch = mujoco.batch.Batch(self.model, NUM_ENVS, 1)
        self.backend = MujocoBatchSceneDataBackend(batch)
        self.provider = SceneDataProvider(self.backend)
        self.scene = self.backend.describe_scene()
        self.bodies, self.cameras, self.lights, self.points = [], [], [], []
        written = SceneStage(self.scene, folder / "robot.usdc", time_codes_per_second=25.0)
        rng = np.random.default_rng(1)
        for time in TIMES:
            batch.bind("qpos")[:, :7] += rng.normal(scale=0.2, size=(NUM_ENVS, 7))
            batch.bind("mocap_pos")[:] = rng.normal(size=(NUM_ENVS, 1, 3))
            for _ in range(5):
                batch.step()
            written.update(self.provider, time)
            self.bodies.append(published_matrices(self.provider))
            self.cameras.append((batch.bind("cam_xpos").copy(), batch.bind("cam_xmat").copy()))
            self.lights.append((batch.bind("light_xpos").copy(), batch.bind("light_xdir").copy()))
            views = self.provider.get_geometry_points()
            self.points.append({path: view.numpy().copy() for path, view in views.items()})
        written.save()
        del written
        self.file = folder / "robot.usdc"
        self.stage = Usd.Stage.Open(str(self.file))


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Recording:
    return Recording(tmp_path_factory.mktemp("recording"))


class TestMotion:
    def test_bodies_stand_at_the_published_paths_and_poses_at_every_time(self, recording):
        paths = recording.backend.transform_paths
        assert len(paths) == NUM_ENVS * len(recording.scene.bodies)
        for time, expected in zip(TIMES, recording.bodies, strict=True):
            actual = np.array([world_matrix(recording.stage, path, time) for path in paths])
            np.testing.assert_allclose(actual, expected, atol=1e-6)

    def test_cameras_that_track_and_cameras_that_do_not_are_where_the_engine_has_them(self, recording):
        scene = recording.scene
        assert {camera.mode for camera in scene.cameras} == {"fixed", "targetbody", "trackcom"}
        for time, (positions, rotations) in zip(TIMES, recording.cameras, strict=True):
            for env in range(NUM_ENVS):
                for index, path in enumerate(scene.paths(scene.cameras, env)):
                    matrix = world_matrix(recording.stage, path, time)
                    np.testing.assert_allclose(matrix[:3, 3], positions[env, index], atol=1e-6)
                    np.testing.assert_allclose(matrix[:3, :3], rotations[env, index].reshape(3, 3), atol=1e-6)

    def test_lights_shine_from_where_the_engine_has_them(self, recording):
        scene, stage = recording.scene, recording.stage
        names = [light.name for light in scene.lights]
        for time, (positions, directions) in zip(TIMES, recording.lights, strict=True):
            for env in range(NUM_ENVS):
                for name in ("lamp", "follow"):
                    index = names.index(name)
                    matrix = world_matrix(stage, scene.paths(scene.lights, env)[index], time)
                    np.testing.assert_allclose(matrix[:3, 3], positions[env, index], atol=1e-6)
                    np.testing.assert_allclose(-matrix[:3, 2], directions[env, index], atol=1e-6)
        sun = world_matrix(stage, "/World/Lights/sun")
        np.testing.assert_allclose(-sun[:3, 2], recording.lights[0][1][0, names.index("sun")], atol=1e-6)

    def test_points_and_extents_follow_the_deformable(self, recording):
        assert {path.rpartition("/")[2] for path in recording.points[0]} == {"cloth", "cord"}
        for time, expected in zip(TIMES, recording.points, strict=True):
            for path, points in expected.items():
                prim = UsdGeom.PointBased(recording.stage.GetPrimAtPath(path))
                np.testing.assert_array_equal(prim.GetPointsAttr().Get(time), points)
                extent = np.array(prim.GetExtentAttr().Get(time))
                margin = 0.004 if path.endswith("cord") else 0.0
                np.testing.assert_allclose(
                    extent, (points.min(axis=0) - margin, points.max(axis=0) + margin), atol=1e-6
                )

    def test_the_time_line_is_declared(self, recording):
        stage = recording.stage
        assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (TIMES[0], TIMES[-1])
        assert stage.GetTimeCodesPerSecond() == 25.0

    def test_a_recording_passes_every_validator(self, recording):
        assert validation_errors(recording.stage) == []


class Stepped:
    """A stage in memory, on an engine whose state a test writes."""

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_string(
            '<mujoco><worldbody><body name="a"><freejoint/><geom size=".1"/></body>'
            '<body name="b"><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
        )
        self.data = mujoco.MjData(self.model)
        self.provider = SceneDataProvider(MujocoSceneDataBackend(self.model, self.data))
        self.written = SceneStage(self.provider.backend.describe_scene())
        self.pose = self.written.stage.GetAttributeAtPath("/World/envs/env_0/a.xformOp:transform")

    def at(self, time: float | None, x: float) -> None:
        self.data.qpos[0] = x
        self.written.update(self.provider, time)


def test_a_rest_costs_two_samples_and_is_not_interpolated_across():
    sim = Stepped()
    for time, x in enumerate((0.0, 1.0, 1.0, 1.0, 1.0, 5.0)):
        sim.at(time, x)
    assert sim.pose.GetTimeSamples() == [0.0, 1.0, 4.0, 5.0]
    assert [sim.pose.Get(time).ExtractTranslation()[0] for time in range(6)] == [0.0, 1.0, 1.0, 1.0, 1.0, 5.0]
    assert not sim.written.stage.GetAttributeAtPath("/World/envs/env_0/b.xformOp:transform").GetTimeSamples()


def test_without_a_time_the_values_hold_at_any_time():
    sim = Stepped()
    sim.at(None, 2.0)
    sim.at(None, 3.0)
    assert not sim.pose.GetTimeSamples()
    assert sim.pose.Get().ExtractTranslation()[0] == 3.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_body_stays_where_it_was_and_heals(bad):
    sim = Stepped()
    sim.at(0.0, 1.0)
    sim.at(1.0, bad)
    sim.at(2.0, 2.0)
    assert [sim.pose.Get(time).ExtractTranslation()[0] for time in range(3)] == [1.0, 1.0, 2.0]


def test_what_cannot_be_written_is_refused(tmp_path):
    scene = describe_model(mujoco.MjModel.from_xml_string("<mujoco/>"))
    with pytest.raises(UnknownNameError, match=r"'a\.usdz'.*\*\.usda, \*\.usdc"):
        SceneStage(scene, tmp_path / "a.usdz")
    with pytest.raises(ValueError, match="env_spacing must be 0 m or more, got -1"):
        SceneStage(scene, env_spacing=-1.0)
    with pytest.raises(ValueError, match="time_codes_per_second must be above 0, got 0"):
        SceneStage(scene, time_codes_per_second=0.0)
    with pytest.raises(ValueError, match="no file"):
        SceneStage(scene).save()
    assert not list(tmp_path.iterdir())


def test_time_does_not_go_back():
    sim = Stepped()
    sim.at(2.0, 1.0)
    with pytest.raises(ValueError, match=r"1\.0 comes after 2\.0"):
        sim.at(1.0, 1.0)


def test_a_provider_of_another_scene_is_refused():
    sim = Stepped()
    other = robot()
    provider = SceneDataProvider(MujocoSceneDataBackend(other, mujoco.MjData(other)))
    with pytest.raises(ValueError, match=r"3 bodies, but \d+ transforms"):
        sim.written.update(provider)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory) -> SceneStage:
    links = "".join(
        '<body pos=".1 0 0"><joint axis="0 1 0"/><geom type="mesh" mesh="link"/><geom size=".02"/>' for _ in range(29)
    )
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><asset><mesh name="link" builtin="supersphere" params="24 .3 .4" scale=".05 .02 .02"/></asset>'
        '<worldbody><geom type="plane" size="2 2 1"/><body name="base" pos="0 0 1"><freejoint/><geom size=".1"/>'
        f'<camera name="eye"/>{links}{"</body>" * 30}</worldbody></mujoco>'
    )
    written = SceneStage(describe_model(model, CROWD), tmp_path_factory.mktemp("crowd") / "crowd.usdc", env_spacing=2.0)
    written.save()
    return written


class TestThousandEnvironments:
    def test_shapes_are_composed_once(self, crowd):
        stage = crowd.stage
        assert len(stage.GetPrototypes()) == 31
        # The environments, 30 bodies and the world in each, and a handful of ancestors and looks: no shapes.
        assert sum(1 for _ in stage.Traverse()) < CROWD * 32 + 20
        assert sum(1 for prim in stage.Traverse() if prim.IsA(UsdGeom.Gprim)) == 0
        proxies = Usd.PrimRange(stage.GetPrimAtPath("/World/envs/env_1023"), Usd.TraverseInstanceProxies())
        assert sum(1 for prim in proxies if prim.IsA(UsdGeom.Gprim)) == 1 + 1 + 29 * 2

    def test_the_file_holds_one_copy(self, crowd):
        assert Path(crowd.stage.GetRootLayer().realPath).stat().st_size < 500_000

    def test_every_environment_has_its_camera(self, crowd):
        cameras = stage_camera_transforms(crowd.stage)
        assert cameras["order"] == ["/World/envs/env_%d/base/eye"]
        assert cameras["num_envs"] == stage_num_envs(crowd.stage) == CROWD
        places = np.array(cameras["positions"][0])
        assert len(np.unique(places.round(6), axis=0)) == CROWD
        np.testing.assert_allclose(places.mean(axis=0), (0, 0, 1), atol=1e-9)
        np.testing.assert_allclose(np.ptp(places, axis=0), (62, 62, 0), atol=1e-9)


def test_a_cable_is_curves_whose_points_follow():
    model = mujoco.MjModel.from_xml_string("""
    <mujoco><worldbody>
      <flexcomp name="cable" type="grid" dim="1" count="6 1 1" spacing=".1 .1 .1" radius=".02" pos="0 0 1">
        <edge equality="true"/>
      </flexcomp>
    </worldbody></mujoco>""")
    data = mujoco.MjData(model)
    provider = SceneDataProvider(MujocoSceneDataBackend(model, data))
    written = SceneStage(provider.backend.describe_scene())
    mujoco.mj_step(model, data, 20)
    written.update(provider)
    curves = UsdGeom.BasisCurves(written.stage.GetPrimAtPath("/World/envs/env_0/cable"))
    assert list(curves.GetCurveVertexCountsAttr().Get()) == [6]
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(curves.GetPointsAttr().Get(), data.flexvert_xpos, atol=1e-6)
    low, high = np.array(curves.GetExtentAttr().Get())
    np.testing.assert_allclose(low, data.flexvert_xpos.min(axis=0) - 0.02, atol=1e-6)
    np.testing.assert_allclose(high, data.flexvert_xpos.max(axis=0) + 0.02, atol=1e-6)


def test_a_tendon_over_pulleys_is_a_curve_for_each_part():
    model = mujoco.MjModel.from_xml_string("""
    <mujoco><worldbody>
      <site name="a" pos="0 0 1"/><site name="b" pos="1 0 1"/><site name="c" pos="1 1 1"/>
      <body name="load"><joint type="slide" axis="0 0 1"/><geom size=".1"/><site name="hook"/></body>
    </worldbody><tendon><spatial name="rope" width=".02">
      <site site="a"/><site site="hook"/><pulley divisor="2"/><site site="hook"/><site site="b"/><site site="c"/>
    </spatial></tendon></mujoco>""")
    data = mujoco.MjData(model)
    provider = SceneDataProvider(MujocoSceneDataBackend(model, data))
    written = SceneStage(provider.backend.describe_scene())
    data.qpos[0] = 0.3
    written.update(provider)
    rope = written.stage.GetPrimAtPath("/World/envs/env_0/rope")
    points = [np.array(UsdGeom.BasisCurves(curve).GetPointsAttr().Get()) for curve in rope.GetChildren()]
    np.testing.assert_allclose(points[0], [(0, 0, 1), (0, 0, 0.3)], atol=1e-6)
    np.testing.assert_allclose(points[1], [(0, 0, 0.3), (1, 0, 1), (1, 1, 1)], atol=1e-6)
    assert validation_errors(written.stage) == []


class TestForeignStage:
    """A stage that somebody else wrote."""

    @pytest.fixture
    def stage(self) -> Usd.Stage:
        stage = Usd.Stage.CreateInMemory()
        for path in ("/World", "/World/envs"):
            UsdGeom.Xform.Define(stage, path)
        UsdGeom.Xform.Define(stage, "/Rigs/robot")
        UsdGeom.Xformable(UsdGeom.Camera.Define(stage, "/Rigs/robot/eye")).AddTranslateOp().Set(Gf.Vec3d(0, 0, 1))
        for env in (0, 2):
            UsdGeom.Xform.Define(stage, f"/World/envs/env_{env}").AddTranslateOp().Set(Gf.Vec3d(10.0 * env, 0, 0))
            robot_prim = UsdGeom.Xform.Define(stage, f"/World/envs/env_{env}/robot").GetPrim()
            robot_prim.GetReferences().AddInternalReference("/Rigs/robot")
            robot_prim.SetInstanceable(True)
        side = UsdGeom.Camera.Define(stage, "/World/envs/env_2/side")
        UsdGeom.Xformable(side).AddRotateZOp().Set(90.0)
        UsdGeom.Xformable(side).AddScaleOp().Set(Gf.Vec3f(2, 2, 2))
        hidden = UsdGeom.Xform.Define(stage, "/World/envs/env_0/hidden")
        UsdGeom.Camera.Define(stage, "/World/envs/env_0/hidden/camera")
        hidden.CreateVisibilityAttr(UsdGeom.Tokens.invisible)
        UsdGeom.Xform.Define(stage, "/World/envs/env_4x")
        return stage

    def test_environments_are_counted_by_the_highest_index(self, stage):
        assert stage_num_envs(stage) == 3
        assert stage_num_envs(Usd.Stage.CreateInMemory()) == 0
        assert stage_num_envs(None) == 0

    def test_visible_cameras_are_found_in_instances_too(self, stage):
        cameras = stage_camera_transforms(stage)
        assert cameras["num_envs"] == 3
        by_path = dict(
            zip(cameras["order"], zip(cameras["positions"], cameras["orientations"], strict=True), strict=True)
        )
        assert set(by_path) == {"/Rigs/robot/eye", "/World/envs/env_%d/robot/eye", "/World/envs/env_%d/side"}
        positions, orientations = by_path["/World/envs/env_%d/robot/eye"]
        assert positions == [[0, 0, 1], None, [20, 0, 1]]
        assert orientations == [[0, 0, 0, 1], None, [0, 0, 0, 1]]
        positions, orientations = by_path["/World/envs/env_%d/side"]
        assert positions == [None, None, [20, 0, 0]]
        assert orientations[2] == pytest.approx([0, 0, 0.5**0.5, 0.5**0.5])
        assert by_path["/Rigs/robot/eye"][0] == [[0, 0, 1], None, None]

    def test_no_stage_no_cameras(self):
        assert stage_camera_transforms(None) is None
        assert stage_camera_transforms(Usd.Stage.CreateInMemory())["order"] == []

    def test_cameras_are_found_at_their_time(self, recording):
        cameras = stage_camera_transforms(recording.stage, TIMES[-1])
        index = cameras["order"].index("/World/envs/env_%d/torso/chase")
        expected = recording.cameras[-1][0][:, [c.name for c in recording.scene.cameras].index("chase")]
        np.testing.assert_allclose(cameras["positions"][index], expected, atol=1e-6)


REAL = ("fetch/push", "hand/reach", "assets/rodent", "suite/quadruped", "suite/dog")


@pytest.mark.parametrize("path", [path for path in ROBOTS if model_id(path) in REAL], ids=model_id)
def test_models_of_other_people(path, tmp_path):
    model = load(path)
    data = mujoco.MjData(model)
    provider = SceneDataProvider(MujocoSceneDataBackend(model, data))
    scene = provider.backend.describe_scene()
    written = SceneStage(scene, tmp_path / "model.usdc")
    mujoco.mj_step(model, data, 3)
    written.update(provider, 0.0)
    written.save()
    del written
    stage = Usd.Stage.Open(str(tmp_path / "model.usdc"))
    assert validation_errors(stage) == []
    _, _, unresolved = UsdUtils.ComputeAllDependencies(str(tmp_path / "model.usdc"))
    assert unresolved == []
    points = provider.get_geometry_points()
    assert len(points) >= len(scene.skins)
    for name in points:
        np.testing.assert_array_equal(UsdGeom.PointBased(stage.GetPrimAtPath(name)).GetPointsAttr().Get(0.0),
                                      points[name].numpy())  # fmt: skip
    mujoco.mj_forward(model, data)
    actual = np.array([world_matrix(stage, body, 0.0) for body in scene.body_paths(0)])
    np.testing.assert_allclose(actual[:, :3, 3], data.xpos, atol=1e-6)
    np.testing.assert_allclose(actual[:, :3, :3], data.xmat.reshape(-1, 3, 3), atol=1e-6)


def test_without_usd_the_error_names_the_extra():
    script = "import sys; sys.modules['pxr'] = None\nimport scene_data\nimport scene_data.stage"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "MissingDependencyError" in result.stderr
    assert "scene-data[usd]" in result.stderr
