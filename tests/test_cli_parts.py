"""The pieces of the command line that need no simulation."""

import numpy as np
import pytest

from scene_data.cli.archive import CaptureArchive
from scene_data.cli.camera_spec import CameraSpec, parse_camera_spec
from scene_data.cli.colour import colour_depth, colour_segmentation, depth_range
from scene_data.cli.contact_sheet import SheetBlock, draw_contact_sheet, sheet_columns
from scene_data.cli.images import ImageFolder
from scene_data.cli.tiling import tile
from scene_data.errors import UnknownNameError
from scene_data.picture_files import depth_image


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("front:320x240", CameraSpec("front", 320, 240, ("rgb",))),
        ("free:64x48:rgb,depth,seg", CameraSpec("free", 64, 48, ("rgb", "depth", "segmentation"))),
        ("robot:wrist:64x48:seg", CameraSpec("robot:wrist", 64, 48, ("segmentation",))),
        ("front:8x8:seg,segmentation", CameraSpec("front", 8, 8, ("segmentation",))),
        ("1x1:64x48", CameraSpec("1x1", 64, 48, ("rgb",))),
    ],
)
def test_camera_notation(text, expected):
    assert parse_camera_spec(text) == expected


@pytest.mark.parametrize("text", ["front", ":64x48", "front:64", "front:64x", "front:-3x4", "front:1.5x2"])
def test_a_camera_that_cannot_be_read_names_itself_and_the_notation(text):
    with pytest.raises(ValueError, match=r"NAME:WIDTHxHEIGHT") as error:
        parse_camera_spec(text)
    assert repr(text) in str(error.value)


def test_a_size_of_zero_names_the_camera():
    with pytest.raises(ValueError, match=r"'front'.*0x48"):
        parse_camera_spec("front:0x48")


def test_an_unknown_plane_names_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"'front' 'normal'\. Known: rgb, depth, seg"):
        parse_camera_spec("front:64x48:rgb,normal")


def test_depth_gets_darker_with_distance_and_misses_are_darkest():
    depth = np.array([[[1.0], [2.0], [3.0], [np.inf]]], np.float32)
    luminance = colour_depth(depth, (1.0, 3.0)).astype(float).mean(axis=-1)[0]
    assert (np.diff(luminance) < 0).all()


def test_the_depth_range_ignores_misses_and_survives_a_picture_without_hits():
    assert depth_range(np.array([2.0, 2.0, np.inf])) == pytest.approx((2.0, 2.0), abs=1e-5)
    near, far = depth_range(np.full((4, 4, 1), np.inf))
    assert far > near


def test_objects_differ_in_colour_and_the_background_is_dark():
    segmentation = np.array([[[0, 5], [1, 5], [0, 9], [-1, -1]]], np.int32)
    colours = [tuple(colour) for colour in colour_segmentation(segmentation)[0]]
    assert len(set(colours)) == 4
    assert max(colours[3]) < 64


def test_tiles_stand_in_reading_order_with_even_sides():
    images = np.stack([np.full((3, 5, 3), value, np.uint8) for value in (10, 20, 30)])
    grid = tile(images)
    assert grid.shape == (6, 10, 3)
    assert grid[0, 0, 0] == 10
    assert grid[0, 5, 0] == 20
    assert grid[3, 0, 0] == 30
    assert grid[5, 9, 0] == 0
    assert tile(images[:1]).shape == (4, 6, 3)


def test_an_archive_is_read_back_by_numpy(tmp_path):
    frames = np.arange(2 * 1 * 2 * 3 * 3, dtype=np.uint8).reshape(2, 1, 2, 3, 3)
    with CaptureArchive(tmp_path / "front.npz", 2, {"rgb": ((1, 2, 3, 3), np.dtype(np.uint8))}) as archive:
        for index, frame in enumerate(frames):
            archive.append({"rgb": frame}, index * 10, index + 1)
    with np.load(tmp_path / "front.npz") as stored:
        assert set(stored) == {"rgb", "simulation_time_ns", "capture_id"}
        np.testing.assert_array_equal(stored["rgb"], frames)
        np.testing.assert_array_equal(stored["simulation_time_ns"], [0, 10])
        np.testing.assert_array_equal(stored["capture_id"], [1, 2])
    assert [path.name for path in tmp_path.iterdir()] == ["front.npz"]


def test_an_archive_that_fails_leaves_nothing(tmp_path):
    archive = CaptureArchive(tmp_path / "front.npz", 2, {"depth": ((1, 2, 2, 1), np.dtype(np.float32))})
    archive.append({"depth": np.zeros((1, 2, 2, 1), np.float32)}, 0, 1)
    with pytest.raises(ValueError, match="not a plane"), archive:
        archive.append({"depth": "not a plane"}, 0, 2)  # pyright: ignore[reportArgumentType]
    assert list(tmp_path.iterdir()) == []


def test_the_sheet_shows_environments_or_times():
    assert sheet_columns(captures=5, num_envs=2) == [(4, 0), (4, 1)]
    assert sheet_columns(captures=5, num_envs=9) == [(4, env) for env in range(4)]
    assert sheet_columns(captures=1, num_envs=1) == [(0, 0)]
    assert sheet_columns(captures=10, num_envs=1) == [(0, 0), (3, 0), (6, 0), (9, 0)]


def test_the_sheet_holds_every_plane_of_every_column():
    planes = {
        "rgb": np.stack([np.full((6, 8, 3), value, np.uint8) for value in (200, 100)]),
        "depth": np.ones((2, 6, 8, 1), np.float32),
        "segmentation": np.zeros((2, 6, 8, 2), np.int32),
    }
    sheet = np.asarray(draw_contact_sheet("demo", "two", [SheetBlock("front", planes, ["env 0", "env 1"])]))
    assert (sheet == (200, 200, 200)).all(axis=-1).sum() > 320 * 240 * 0.9
    assert (sheet == (100, 100, 100)).all(axis=-1).sum() > 320 * 240 * 0.9


def test_a_folder_of_images_that_fails_takes_back_only_its_own(tmp_path):
    path = tmp_path / "front_png"
    path.mkdir()
    (path / "mine.txt").write_text("keep")

    def interrupted():
        with ImageFolder(path) as images:
            images.append({"rgb": np.zeros((2, 3, 4, 3), np.uint8)})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert [file.name for file in path.iterdir()] == ["mine.txt"]


def test_depth_that_does_not_fit_in_millimetres_is_none():
    depth = np.array([[[0.0004], [1.2344], [65.535], [65.6], [np.inf]]], np.float32)
    np.testing.assert_array_equal(depth_image(depth), [[0, 1234, 65535, 0, 0]])
