"""The command line, end to end: what it writes is read back by the libraries that others use."""

import subprocess
import sys

import imageio.v3 as iio
import numpy as np
import pytest
from test_simulation import XML, expected_position, slab_position

from scene_data.cli import main


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "slab.xml"
    path.write_text(XML)
    return path


def run(*arguments: object) -> None:
    main([str(argument) for argument in arguments])


def fails(capsys, *arguments: object) -> str:
    """The one line that a mistake prints."""
    with pytest.raises(SystemExit) as stop:
        run(*arguments)
    assert stop.value.code == 2
    return capsys.readouterr().err.strip()


@pytest.fixture(scope="module")
def rendered(model_file, tmp_path_factory):
    """Two environments under random control, on the batch."""
    out = tmp_path_factory.mktemp("out")
    run("render", model_file, "--engine", "mujoco_batch", "--num-envs", 2, "--steps", 105, "--every", 50, "--control",
        "random", "--camera", "top:32x24:rgb,depth,seg", "--camera", "free:16x12", "--out", out)  # fmt: skip
    return out


def test_render_writes_its_files_and_nothing_else(rendered):
    assert {path.name for path in rendered.iterdir()} == {
        "top.npz", "top.mp4", "free.npz", "free.mp4", "contact_sheet.png"
    }  # fmt: skip


def test_the_archive_holds_every_capture_from_the_initial_state_on(rendered):
    with np.load(rendered / "top.npz") as stored:
        assert stored["rgb"].shape == (3, 2, 24, 32, 3)
        assert stored["depth"].shape == (3, 2, 24, 32, 1)
        assert stored["segmentation"].shape == (3, 2, 24, 32, 2)
        assert stored["rgb"].dtype == np.uint8
        assert stored["depth"].dtype == np.float32
        assert stored["segmentation"].dtype == np.int32
        np.testing.assert_array_equal(stored["simulation_time_ns"], [0, 500_000_000, 1_000_000_000])
        assert (np.diff(stored["capture_id"]) > 0).all()
        np.testing.assert_allclose(slab_position(stored["segmentation"][0]), expected_position([0, 0]), atol=0.6)
        later = slab_position(stored["segmentation"][2])
        assert abs(later[0] - later[1]) > 0.5, "random control moves the environments apart"
    with np.load(rendered / "free.npz") as stored:
        assert set(stored) == {"rgb", "simulation_time_ns", "capture_id"}


def test_the_video_shows_the_environments_side_by_side(rendered):
    video = iio.imread(rendered / "top.mp4", plugin="pyav")
    assert video.shape == (3, 24, 64, 3)
    assert iio.immeta(rendered / "top.mp4", plugin="pyav")["fps"] == pytest.approx(2.0)
    with np.load(rendered / "top.npz") as stored:
        first = np.concatenate(list(stored["rgb"][0]), axis=1)
    assert np.abs(video[0].astype(int) - first).mean() < 12


def test_png_writes_every_image_losslessly(model_file, tmp_path):
    run("render", model_file, "--num-envs", 2, "--engine", "mujoco_batch", "--steps", 1, "--every", 1, "--png",
        "--camera", "top:32x24:rgb,depth,seg", "--out", tmp_path)  # fmt: skip
    folder = tmp_path / "top_png"
    assert len(list(folder.iterdir())) == 2 * 2 * 3
    with np.load(tmp_path / "top.npz") as stored:
        np.testing.assert_array_equal(iio.imread(folder / "rgb_00001_env1.png"), stored["rgb"][1, 1])
        depth = stored["depth"][1, 1, ..., 0]
    millimetres = iio.imread(folder / "depth_00001_env1.png")
    assert millimetres.dtype == np.uint16
    hits = np.isfinite(depth) & (depth < 65.0)
    assert hits.any()
    np.testing.assert_allclose(millimetres[hits] / 1000.0, depth[hits], atol=0.0006)
    assert (millimetres[~hits] == 0).all()


def test_the_contact_sheet_is_a_picture(rendered):
    sheet = iio.imread(rendered / "contact_sheet.png")
    assert sheet.shape[0] > 800
    assert sheet.shape[1] > 700
    red = (sheet[..., 0] > 150) & (sheet[..., 1] < 60) & (sheet[..., 2] < 60)
    assert red.sum() > 2000, "the slab is seen"


def test_no_steps_write_exactly_the_initial_state_of_the_keyframe(model_file, tmp_path):
    run("render", model_file, "--steps", 0, "--keyframe", "right", "--camera", "top:32x24:seg", "--out", tmp_path)
    with np.load(tmp_path / "top.npz") as stored:
        assert stored["segmentation"].shape[0] == 1
        np.testing.assert_allclose(slab_position(stored["segmentation"][0]), expected_position([0.8]), atol=0.6)


def test_keyframe_control_drives_and_zero_control_rests(model_file, tmp_path):
    for control, x in (("keyframe", 0.5), ("zero", 0.0)):
        out = tmp_path / control
        run("render", model_file, "--steps", 100, "--every", 100, "--control", control, "--camera", "top:32x24:seg",
            "--out", out)  # fmt: skip
        with np.load(out / "top.npz") as stored:
            np.testing.assert_allclose(slab_position(stored["segmentation"][1]), expected_position([x]), atol=0.8)


def test_random_control_is_reproduced_by_its_seed(model_file, tmp_path):
    def end(seed: int) -> np.ndarray:
        out = tmp_path / str(seed)
        run("render", model_file, "--steps", 30, "--every", 30, "--control", "random", "--seed", seed,
            "--camera", "top:32x24:depth", "--out", out)  # fmt: skip
        with np.load(out / "top.npz") as stored:
            return stored["depth"][1]

    np.testing.assert_array_equal(end(3), end(3))
    assert (end(3) != end(4)).any()


def test_without_cameras_named_every_camera_of_the_model_is_rendered(model_file, tmp_path):
    run("render", model_file, "--steps", 0, "--out", tmp_path)
    assert {path.stem for path in tmp_path.glob("*.npz")} == {"top", "side"}


def test_info_names_bodies_paths_cameras_and_consumers(model_file, capsys):
    run("info", model_file, "--num-envs", 3, "--engine", "mujoco_batch")
    text = capsys.readouterr().out
    for expected in (
        "/World/envs/env_0/slab",
        "/World/envs/env_0/world",
        "6, index env * 2 + body",
        "top",
        "perspective, 60° high",
        "mujoco_warp",
        "mujoco_model",
        "box",
    ):
        assert expected in text


def test_help_comes_from_the_installed_command():
    text = subprocess.run(
        [sys.executable, "-c", "from scene_data.cli import main; main(['render', '--help'])"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for option in ("--engine", "--num-envs", "--steps", "--camera", "--every", "--out", "--control"):
        assert option in text


class TestMistakes:
    """One line on standard error, status 2, and no file."""

    @pytest.fixture(autouse=True)
    def _writes_nothing(self, tmp_path):
        self.out = tmp_path / "out"
        yield
        assert not self.out.exists() or list(self.out.iterdir()) == []

    def test_missing_model(self, capsys):
        assert "nowhere.xml': there is no such file" in fails(capsys, "render", "nowhere.xml", "--out", self.out)

    def test_model_without_cameras(self, capsys, tmp_path):
        path = tmp_path / "bare.xml"
        path.write_text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
        assert "has no camera. Add '--camera free:320x240'" in fails(capsys, "render", path, "--out", self.out)

    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            ("--camera", "front:64x48", "Unknown camera 'front'. Known: top, side, free."),
            ("--camera", "top:64", "Cannot read the camera 'top:64'. Write NAME:WIDTHxHEIGHT"),
            ("--camera", "top:0x48", "the size 0x48 is below 1x1"),
            ("--camera", "top:64x48:heat", "Unknown plane of camera 'top' 'heat'. Known: rgb, depth, seg"),
            ("--engine", "bullet", "Unknown engine 'bullet'. Known: mujoco, mujoco_batch, mujoco_warp."),
            ("--num-envs", 0, "num_envs must be at least 1, got 0"),
            ("--steps", -1, "--steps must be 0 or more, got -1"),
            ("--every", 0, "--every must be at least 1, got 0"),
            ("--keyframe", "left", "Unknown keyframe 'left'. Known: right."),
            ("--control", "wild", "Unknown control 'wild'. Known: zero, random, keyframe."),
            ("--device", "cuda:7", "Unknown device 'cuda:7'. Known: cpu"),
            ("--render-backend", "vulkan", "Unknown render backend 'vulkan'."),
        ],
    )
    def test_options(self, capsys, model_file, option, value, message):
        assert message in fails(capsys, "render", model_file, "--out", self.out, option, value)

    def test_a_library_that_is_missing_names_its_extra(self, capsys, model_file, monkeypatch):
        monkeypatch.setitem(sys.modules, "av", None)
        assert "pip install 'scene-data[video]'" in fails(capsys, "render", model_file, "--out", self.out)


def test_bench_measures_steps_reads_and_frames(model_file, capsys):
    run(
        "bench", model_file, "--num-envs", 2, "--seconds", 0.01, "--camera", "top:16x12:rgb,depth", "--engine", "mujoco"
    )
    printed = capsys.readouterr().out
    rows = [line for line in printed.splitlines() if " ms " in line]
    assert [row.split("│")[1].strip() for row in rows] == ["step", "+ transforms", "+ frames", "step with frames"]
    assert "images of top" in printed
    assert f"{2 * 16 * 12 * (3 + 4) / 1e6:.2f} MB" in printed


def test_bench_refuses_a_time_that_measures_nothing(model_file, capsys):
    assert "--seconds must be above 0" in fails(capsys, "bench", model_file, "--seconds", 0)
