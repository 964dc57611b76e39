"""How much pictures differ: in numbers that follow by hand, in files, and from the command line."""

import re

import numpy as np
import pytest
from PIL import Image
from test_cli import fails, run

from scene_data.cli.difference_sheet import SheetRow, colour_difference, draw_difference_sheet
from scene_data.picture_difference import Tolerance, Unit, compare_pictures
from scene_data.picture_files import read_planes, write_planes

RANDOM = np.random.default_rng(3)
COLOURS = RANDOM.integers(0, 200, (10, 20, 3)).astype(np.uint8)
DEPTH = RANDOM.uniform(0.5, 9.0, (10, 20, 1)).astype(np.float32)
DEPTH[0, :5] = np.inf
OBJECTS = RANDOM.integers(0, 400, (10, 20, 2)).astype(np.int32)
OBJECTS[..., 1] %= 10
OBJECTS[3, 4] = -1


# -- numbers


def test_colours_differ_by_their_channel_that_differs_most():
    other = COLOURS.copy()
    other[2, 3] += np.array((0, 40, 10), np.uint8)
    other[4, 5, 0] += 8
    found = compare_pictures("rgb", COLOURS, other)
    assert found.unit is Unit.LEVELS
    assert found.largest == 40
    assert found.error[2, 3] == 40
    assert found.share == 1 / 200  # 8 levels are not more than 8 levels
    assert found.mean == pytest.approx(58 / 600)
    assert found.is_within
    assert not compare_pictures("rgb", COLOURS, other, Tolerance(share=0.004)).is_within
    assert compare_pictures("rgb", COLOURS, other, Tolerance(levels=40, share=0)).is_within
    assert not compare_pictures("rgb", COLOURS, other, Tolerance(mean_levels=0.09)).is_within
    assert compare_pictures("rgb", other, COLOURS).mean == found.mean  # not wrapped around


def test_distances_differ_in_metres_and_wholly_where_only_one_hits():
    other = DEPTH.copy()
    other[5, 5] += 0.25
    other[0, 0] = 2.0
    found = compare_pictures("depth", DEPTH, other)
    assert found.unit is Unit.METRES
    assert found.share == 2 / 200
    assert np.isposinf(found.largest)
    assert found.error[5, 5] == pytest.approx(0.25, abs=1e-6)
    assert found.mean == pytest.approx(0.25 / 195, rel=1e-5)
    assert not found.is_within
    assert compare_pictures("depth", DEPTH, other, Tolerance(share=0.01)).is_within
    nothing = np.full_like(DEPTH, np.inf)
    assert compare_pictures("depth", nothing, nothing).mean == 0.0
    normals = np.zeros((2, 2, 3), np.float32)
    assert compare_pictures("normals", normals, normals + 1).unit is Unit.NONE


def test_objects_are_the_same_or_not():
    other = OBJECTS.copy()
    other[6, 6, 0] += 1
    other[7, 7, 1] += 1
    for plane in ("segmentation", "instance_segmentation"):
        found = compare_pictures(plane, OBJECTS, other)
        assert found.unit is Unit.OBJECTS
        assert found.share == found.mean == 2 / 200
    assert compare_pictures("segmentation", OBJECTS, OBJECTS).largest == 0


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (COLOURS, COLOURS[:5], r"'rgb' have different shapes: \(10, 20, 3\) and \(5, 20, 3\)"),
        (COLOURS[0], COLOURS[0], r"'rgb' has the shape \(20, 3\), which is no picture"),
        (COLOURS[:0], COLOURS[:0], "which is no picture"),
    ],
)
def test_what_cannot_be_compared_is_refused(first, second, message):
    with pytest.raises(ValueError, match=message):
        compare_pictures("rgb", first, second)


def test_a_tolerance_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="tolerance levels must be 0 or more, got -1"):
        Tolerance(levels=-1)
    with pytest.raises(ValueError, match="tolerance share must lie between 0 and 1, got 2"):
        Tolerance(share=2)


# -- files


def test_planes_are_read_back_as_they_were_written(tmp_path):
    planes = {"rgb": COLOURS, "depth": DEPTH, "segmentation": OBJECTS}
    paths = write_planes(tmp_path / "new", "front", planes)
    assert [path.name for path in paths] == ["front.rgb.png", "front.depth.png", "front.segmentation.png"]
    for path, (plane, picture) in zip(paths, planes.items(), strict=True):
        (read,) = read_planes(path).items()
        assert read[0] == plane
        assert read[1].dtype == picture.dtype
        np.testing.assert_allclose(read[1], picture, atol=0.0 if plane != "depth" else 5.1e-4)
    with pytest.raises(ValueError, match="ids up to 70000"):
        write_planes(tmp_path, "big", {"segmentation": np.full((2, 2, 2), 70000)})
    with pytest.raises(ValueError, match="'normals' of shape .* cannot be written"):
        write_planes(tmp_path, "big", {"normals": np.zeros((2, 2, 3))})


# -- the command


@pytest.fixture
def folders(tmp_path):
    """Two folders of the same pictures, one of which has changed."""
    first, second = tmp_path / "first", tmp_path / "second"
    changed = COLOURS.copy()
    changed[:, 15:] += 50
    for folder, colours in ((first, COLOURS), (second, changed)):
        write_planes(folder, "front", {"rgb": colours, "depth": DEPTH})
        stack = np.stack([[COLOURS, COLOURS], [COLOURS, colours]])
        np.savez(folder / "side.npz", rgb=stack, simulation_time_ns=np.zeros(2))
        (folder / "contact_sheet.png").write_text("is left out")
        (folder / "side.mp4").write_text("is left out")
    return first, second


def test_equal_pictures_end_well(folders, capsys):
    run("compare", folders[0], folders[0])
    shown = capsys.readouterr().out
    for name in ("front.rgb.png", "front.depth.png", "side.npz rgb"):
        assert re.search(rf"{re.escape(name)} .* 0\.00% .* the same", shown)
    run("compare", folders[0] / "front.rgb.png", folders[0] / "front.rgb.png", "--share", 0)


def test_different_pictures_end_with_status_1_and_a_picture_of_both(folders, capsys, tmp_path):
    out = tmp_path / "deep" / "difference.png"
    with pytest.raises(SystemExit) as stop:
        run("compare", *folders, "--out", out)
    assert stop.value.code == 1
    shown = capsys.readouterr().out
    assert re.search(r"front\.rgb\.png .*12\.5 levels .*50 levels .*25\.00% .*differs", shown)
    assert re.search(r"side\.npz rgb .*6\.25% .*differs", shown)
    assert re.search(r"front\.depth\.png .*the same", shown)
    assert str(out) in shown
    assert Image.open(out).size[0] > 3 * 400
    run("compare", *folders, "--levels", 50, "--mean-levels", 13)


def test_what_is_on_one_side_alone_counts_as_different(folders, capsys):
    (folders[1] / "front.depth.png").unlink()
    with pytest.raises(SystemExit) as stop:
        run("compare", *folders, "--share", 1, "--mean-levels", 255)
    assert stop.value.code == 1
    assert re.search(r"front\.depth\.png .*in .*first alone", capsys.readouterr().out)


def test_mistakes_are_one_line(folders, capsys, tmp_path):
    first = folders[0]
    picture = first / "front.rgb.png"
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "times.npz", simulation_time_ns=np.zeros(2))
    write_planes(tmp_path, "small", {"rgb": COLOURS[:4]})
    for arguments, message in (
        ((first, tmp_path / "nowhere"), "nowhere' to compare"),
        ((first, picture), "one is a folder, the other a file"),
        ((tmp_path / "empty", tmp_path / "empty"), "holds an NPZ or an image"),
        ((tmp_path / "text.png", picture), "text.png cannot be read: cannot identify image file"),
        ((tmp_path / "times.npz", picture), "times.npz holds no picture"),
        ((picture, tmp_path / "small.rgb.png"), "different shapes: (10, 20, 3) and (4, 20, 3)"),
        ((picture, picture, "--share", 3), "share must lie between 0 and 1"),
    ):
        assert message in fails(capsys, "compare", *arguments).replace("\n", " ")


# -- the picture


def test_the_colours_of_a_difference_tell_the_tolerance():
    error = np.array([[0.0, 4.0, 8.0, 8.5, 32.0, np.inf]], np.float32)
    colours = colour_difference(error, 8.0)[0].astype(int)
    brightness = colours.sum(axis=-1)
    assert (np.diff(brightness[:3]) > 0).all()
    assert (colours[:3, 2] > colours[:3, 0]).all()  # dull and blue
    assert (colours[3:, 0] > colours[3:, 2] + 60).all()  # glowing
    np.testing.assert_array_equal(colours[4], colours[5])
    same, other = colour_difference(np.array([[0.0, 1.0]], np.float32), 0.0)[0].astype(int)
    assert same.sum() < 100 < other.sum()


def test_the_sheet_shows_both_and_of_a_stack_the_picture_that_differs_most():
    stack = np.zeros((3, 2, 40, 60, 3), np.uint8)
    stack[...] = (0, 0, 200)
    other = stack.copy()
    other[1, 1, :, :30] = (250, 0, 0)
    other[2, 0, :, :2] = (0, 250, 0)
    row = SheetRow("side rgb", stack, other, compare_pictures("rgb", stack, other))
    sheet = np.asarray(draw_difference_sheet("first", "second", [row]))
    blue, red = ((sheet == colour).all(axis=-1) for colour in ((0, 0, 200), (250, 0, 0)))
    scale = 7  # 40x60 pixels grow sevenfold
    assert blue.sum() == (40 * 60 + 40 * 30) * scale**2
    assert red.sum() == 40 * 30 * scale**2
    glowing = (sheet == (255, 242, 180)).all(axis=-1)
    assert glowing.sum() >= red.sum()
    many = [SheetRow(str(index), COLOURS, COLOURS, compare_pictures("rgb", COLOURS, COLOURS)) for index in range(20)]
    assert draw_difference_sheet("a", "b", many).size[1] < 12 * 500
