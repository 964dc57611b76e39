"""`scene-data export`: the file it writes, read back with plain USD, and the mistakes that leave none."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
from pxr import Usd, UsdGeom, UsdShade, UsdUtils, UsdValidation
from rich.console import Console

import scene_data.stage
from scene_data.cli.export import Export, run_export
from scene_data.errors import ModelLoadError, UnknownNameError

MODEL = """
<mujoco>
  <option timestep="0.01"/>
  <asset>
    <texture name="grid" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="8" height="8"/>
    <material name="tiles" texture="grid"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 .1" material="tiles"/>
    <camera name="top" pos="0 0 5"/>
    <body name="ball" pos="0 0 3"><freejoint/><geom size=".1"/><camera name="eye" mode="track"/></body>
    <body name="slider" pos="1 0 1"><joint name="x" type="slide" axis="1 0 0"/><geom size=".1"/></body>
  </worldbody>
  <actuator><position joint="x" kp="50" kv="5" ctrlrange="-1 1"/></actuator>
  <keyframe><key name="right" qpos="0 0 2 1 0 0 0 0.5" ctrl="0.5"/></keyframe>
</mujoco>
"""
STEPS, EVERY = 20, 5
BALL = "/World/envs/env_0/ball"


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.xml"
    path.write_text(MODEL)
    return path


def export(model: Path | str, out: Path, **options) -> Usd.Stage:
    run_export(Export(str(model), out, **options), Console(quiet=True))
    return Usd.Stage.Open(str(out))


def position(stage: Usd.Stage, path: str, time: float | None = None) -> np.ndarray:
    when = Usd.TimeCode.Default() if time is None else Usd.TimeCode(time)
    xformable = UsdGeom.Xformable(stage.GetPrimAtPath(path))
    return np.array(xformable.ComputeLocalToWorldTransform(when).ExtractTranslation())


@pytest.mark.parametrize("suffix", ["usda", "usdc", "usdz"])
def test_the_file_holds_the_run(model_file, tmp_path, suffix):
    out = tmp_path / "new" / "folder" / f"run.{suffix}"
    stage = export(model_file, out, steps=STEPS, every=EVERY)
    assert (stage.GetStartTimeCode(), stage.GetEndTimeCode()) == (0.0, STEPS // EVERY)
    assert stage.GetTimeCodesPerSecond() == pytest.approx(1.0 / (EVERY * 0.01))
    data = mujoco.MjData(model := mujoco.MjModel.from_xml_string(MODEL))
    for time in range(STEPS // EVERY + 1):
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(position(stage, BALL, time), data.body("ball").xpos, atol=1e-9)
        np.testing.assert_allclose(position(stage, f"{BALL}/eye", time), data.camera("eye").xpos, atol=1e-9)
        mujoco.mj_step(model, data, EVERY)
    np.testing.assert_allclose(position(stage, "/World/envs/env_0/world/top"), (0, 0, 5))
    validators = UsdValidation.ValidationRegistry().GetOrLoadAllValidators()
    errors = UsdValidation.ValidationContext(validators).Validate(stage)
    assert [error.GetMessage() for error in errors] == []
    assert not UsdUtils.ComputeAllDependencies(str(out))[2]
    beside = {"run_textures"} if suffix != "usdz" else set()
    assert {path.name for path in out.parent.iterdir()} == {out.name, *beside}
    assert not list(tmp_path.rglob(".*"))


def test_textures_resolve_from_where_the_file_ends_up(model_file, tmp_path):
    for suffix in ("usdc", "usdz"):
        stage = export(model_file, tmp_path / f"run.{suffix}")
        floor = stage.GetPrimAtPath("/World/envs/env_0/world/floor")
        material, _ = UsdShade.MaterialBindingAPI(floor).ComputeBoundMaterial()
        (image,) = (
            prim.GetAttribute("inputs:file").Get() for prim in material.GetPrim().GetChildren()
            if prim.GetAttribute("inputs:file")
        )  # fmt: skip
        assert image.path == ("./run_textures/grid.png" if suffix == "usdc" else image.path)
        assert image.resolvedPath


def test_a_second_export_takes_the_place_of_the_first(model_file, tmp_path):
    out = tmp_path / "run.usda"
    export(model_file, out)
    (tmp_path / "run_textures" / "stale.png").write_bytes(b"")
    text = out.read_text()
    export(model_file, out, steps=STEPS)
    assert out.read_text() != text
    assert [path.name for path in (tmp_path / "run_textures").iterdir()] == ["grid.png"]


def test_keyframe_control_and_environments(model_file, tmp_path):
    options = {"keyframe": "right", "control": "keyframe", "engine": "mujoco_batch", "num_envs": 3, "env_spacing": 4.0}
    stage = export(model_file, tmp_path / "run.usdc", steps=100, every=50, **options)
    np.testing.assert_allclose([UsdGeom.XformCache(0).GetLocalToWorldTransform(stage.GetPrimAtPath(
        f"/World/envs/env_{env}/slider")).ExtractTranslation() - position(stage, f"/World/envs/env_{env}")
        for env in range(3)], [(1.5, 0, 1)] * 3, atol=1e-9)  # fmt: skip
    np.testing.assert_allclose(position(stage, BALL) - position(stage, "/World/envs/env_0"), (0, 0, 2), atol=1e-9)
    places = np.array([position(stage, f"/World/envs/env_{env}") for env in range(3)])
    assert sorted(np.linalg.norm(places[i] - places[j]) for i, j in ((0, 1), (0, 2), (1, 2)))[:2] == [4.0, 4.0]


def test_the_demo_is_exported(tmp_path):
    stage = export("demo", tmp_path / "demo.usdz", steps=10)
    assert {camera.GetName() for camera in stage.Traverse(Usd.TraverseInstanceProxies())
            if camera.IsA(UsdGeom.Camera)} == {"front", "overhead", "track", "wrist"}  # fmt: skip
    assert len(UsdGeom.Mesh(stage.GetPrimAtPath("/World/envs/env_0/cloth")).GetPointsAttr().GetTimeSamples()) == 2


class TestMistakes:
    @pytest.mark.parametrize("name", ["run.obj", "run", "run.usd"])
    def test_an_unknown_format_is_refused_before_the_model_is_loaded(self, tmp_path, name):
        with pytest.raises(UnknownNameError, match=rf"'{name}'.*usda, \*.usdc, \*.usdz"):
            Export("no model", tmp_path / name)

    @pytest.mark.parametrize("option", [{"steps": -1}, {"every": 0}, {"env_spacing": -1.0}])
    def test_numbers_out_of_range(self, tmp_path, option):
        (name,) = option
        with pytest.raises(ValueError, match=f"--{name.replace('_', '-')}"):
            Export("demo", tmp_path / "run.usda", **option)

    def test_a_missing_model_leaves_nothing(self, tmp_path):
        with pytest.raises(ModelLoadError):
            export("missing.xml", tmp_path / "new" / "run.usda")
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("suffix", ["usda", "usdz"])
    def test_a_run_that_fails_leaves_nothing_and_keeps_what_was_there(self, model_file, tmp_path, suffix, monkeypatch):
        out = tmp_path / f"run.{suffix}"
        out.write_bytes(b"before")
        found = sorted(tmp_path.rglob("*"))
        updates = []

        def fail(self, provider, time_code=None):
            updates.append(time_code)
            if len(updates) > 3:
                raise OSError("disk full")

        monkeypatch.setattr(scene_data.stage.SceneStage, "update", fail)
        with pytest.raises(OSError, match="disk full"):
            export(model_file, out, steps=STEPS, every=EVERY)
        assert sorted(tmp_path.rglob("*")) == found
        assert out.read_bytes() == b"before"

    def test_a_folder_in_the_place_of_the_file(self, model_file, tmp_path):
        (tmp_path / "run.usda").mkdir()
        with pytest.raises(IsADirectoryError, match=r"run\.usda is a folder"):
            export(model_file, tmp_path / "run.usda")
