"""Crate files that are put together from recorded values, read back by USD and compared with what USD itself writes."""

import os

import numpy as np
import pytest
from pxr import Sdf, Usd

from scene_data.errors import SceneDataError
from scene_data.stage_samples import AttributeRows, Track
from scene_data.visualizers import usd_crate
from scene_data.visualizers.usd_crate import CrateTemplate
from scene_data.visualizers.usd_samples import RecordedTrack

TIMES = [0.0, 1.2, 2.4, 3.0, 4.5, 7.25]
POINTS = (3, 1, 8, 50)
MATRICES = 40


class Attributes:
    """A layer with attributes of both types, and the tracks that move them."""

    def __init__(self):
        self.layer = Sdf.Layer.CreateAnonymous("attributes.usdc")
        self.layer.defaultPrim = "scene"
        matrices = [self._declare(f"/scene/body_{i}", "xformOp:transform", "Matrix4d") for i in range(MATRICES)]
        points = [self._declare(f"/scene/cloth_{i}", "points", "Point3fArray") for i in range(len(POINTS))]
        self.poses = Track(matrices, np.tile(np.eye(4), (MATRICES, 1, 1)))
        self.points = Track(points, np.zeros((sum(POINTS), 3), np.float32), np.array(POINTS, np.intp))
        self.tracks = (self.poses, self.points)

    def _declare(self, prim: str, name: str, type_name: str) -> Sdf.Path:
        spec = Sdf.CreatePrimInLayer(self.layer, prim)
        return Sdf.AttributeSpec(spec, name, getattr(Sdf.ValueTypeNames, type_name)).path

    @property
    def paths(self) -> list[Sdf.Path]:
        return [path for track in self.tracks for path in track.paths]


def states(seed: int, share: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Poses and points at each time, of which only a share moves at a time."""
    random = np.random.default_rng(seed)
    poses, points = np.tile(np.eye(4), (MATRICES, 1, 1)), np.zeros((sum(POINTS), 3), np.float32)
    made = []
    for _ in TIMES:
        moving = random.random(MATRICES) < share
        poses = np.where(moving[:, None, None], random.normal(size=poses.shape), poses)
        is_moving = np.repeat(random.random(len(POINTS)) < share, POINTS)
        points = np.where(is_moving[:, None], random.normal(size=points.shape), points).astype(np.float32)
        made.append((poses, points))
    return made


def record(made) -> tuple[Attributes, list[RecordedTrack]]:
    attributes = Attributes()
    recorded = [RecordedTrack(track) for track in attributes.tracks]
    for poses, points in made:
        attributes.poses.values, attributes.points.values = poses, points
        for track in recorded:
            track.sample()
    return attributes, recorded


def written_by_usd(made) -> Attributes:
    """The same, by one `SetTimeSample` for each value, and everything at the first time."""
    attributes = Attributes()
    rows = [AttributeRows(attributes.layer, track) for track in attributes.tracks]
    for time, (poses, points) in zip(TIMES, made, strict=True):
        attributes.poses.values, attributes.points.values = poses, points
        for each in rows:
            each.write(time)
    for track, values in zip(attributes.tracks, made[0], strict=True):
        for path, value in zip(track.paths, track.encode(values, np.arange(len(track.paths))), strict=True):
            attributes.layer.SetTimeSample(path, TIMES[0], value)
    return attributes


def samples(layer: Sdf.Layer, path: Sdf.Path) -> dict[float, np.ndarray]:
    return {time: np.array(layer.QueryTimeSample(path, time)) for time in layer.ListTimeSamplesForPath(path)}


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.0])
def test_samples_are_those_that_usd_writes(tmp_path, share):
    made = states(7, share)
    expected = written_by_usd(made)
    attributes, recorded = record(made)
    template = CrateTemplate(attributes.layer, attributes.paths)
    template.write(tmp_path / "clip.usdc", TIMES, [track.collect() for track in recorded])
    layer = Sdf.Layer.OpenAsAnonymous(str(tmp_path / "clip.usdc"))
    for path in attributes.paths:
        found, wanted = samples(layer, path), samples(expected.layer, path)
        assert list(found) == list(wanted), path
        for time, value in wanted.items():
            np.testing.assert_array_equal(found[time], value)
    # USD writes all of it again, so that nothing in the file is out of place.
    layer.Export(str(tmp_path / "again.usdc"))
    again = Sdf.Layer.OpenAsAnonymous(str(tmp_path / "again.usdc"))
    assert again.ExportToString() == layer.ExportToString()
    assert "sceneda" not in layer.ExportToString()


def test_a_template_is_written_to_as_often_as_one_likes(tmp_path):
    made = states(3, 0.5)
    attributes, recorded = record(made)
    template = CrateTemplate(attributes.layer, attributes.paths)
    for name in ("first.usdc", "second.usdc"):
        template.write(tmp_path / name, TIMES, [track.collect() for track in recorded])
    assert (tmp_path / "first.usdc").read_bytes() == (tmp_path / "second.usdc").read_bytes()


def test_what_rests_takes_no_room(tmp_path):
    attributes, recorded = record(states(1, 0.0))
    assert sum(len(block) for track in recorded for block in track.collect().data) == sum(
        [MATRICES * 32, *((2 + 3 * count + 1) // 2 * 2 for count in POINTS)]
    )
    assert all(not track.collect().moving().paths for track in recorded)
    moving = [track.collect().moving() for track in recorded]
    CrateTemplate(attributes.layer, []).write(tmp_path / "clip.usdc", TIMES, moving)
    layer = Sdf.Layer.OpenAsAnonymous(str(tmp_path / "clip.usdc"))
    assert not any(layer.ListTimeSamplesForPath(path) for path in attributes.paths)


def test_only_what_moves_has_samples(tmp_path):
    made = [(poses.copy(), points) for poses, points in states(5, 0.0)]
    for step, (poses, _) in enumerate(made):
        poses[3, 3, 0] = step
    attributes, recorded = record(made)
    moving = [track.collect().moving() for track in recorded]
    assert [path for track in moving for path in track.paths] == [attributes.poses.paths[3]]
    CrateTemplate(attributes.layer, attributes.poses.paths[3:4]).write(tmp_path / "clip.usdc", TIMES, moving)
    stage = Usd.Stage.Open(str(tmp_path / "clip.usdc"))
    attribute = stage.GetAttributeAtPath(attributes.poses.paths[3])
    assert attribute.GetTimeSamples() == TIMES
    assert [attribute.Get(time)[3, 0] for time in TIMES] == list(range(len(TIMES)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_keeps_its_last_value(tmp_path, bad):
    made = states(9, 1.0)
    poses, points = (values.copy() for values in made[2])
    poses[4, 3, 1] = bad
    points[-1, 2] = bad
    made[2] = poses, points
    attributes, recorded = record(made)
    CrateTemplate(attributes.layer, attributes.paths).write(
        tmp_path / "clip.usdc", TIMES, [track.collect() for track in recorded]
    )
    layer = Sdf.Layer.OpenAsAnonymous(str(tmp_path / "clip.usdc"))
    pose, cloth = samples(layer, attributes.poses.paths[4]), samples(layer, attributes.points.paths[-1])
    assert list(pose) == list(cloth) == TIMES  # the rest before the next change has an end
    np.testing.assert_array_equal(pose[TIMES[2]], made[1][0][4])
    np.testing.assert_array_equal(cloth[TIMES[2]], made[1][1][-POINTS[-1] :])
    np.testing.assert_array_equal(samples(layer, attributes.poses.paths[5])[TIMES[2]], poses[5])


def test_a_long_clip_is_read_in_place(tmp_path):
    count = 3000
    track = Track(Attributes().points.paths[:1], np.zeros((1000, 3), np.float32), np.array([1000]))
    recorded = RecordedTrack(track)
    for time in range(count):
        track.values = np.full((1000, 3), time, np.float32)
        recorded.sample()
    template = CrateTemplate(Attributes().layer, track.paths)
    template.write(tmp_path / "clip.usdc", np.arange(count, dtype=float).tolist(), [recorded.collect()])
    assert os.path.getsize(tmp_path / "clip.usdc") == pytest.approx(recorded.nbytes, rel=0.01)
    layer = Sdf.Layer.OpenAsAnonymous(str(tmp_path / "clip.usdc"))
    for time in (0.0, 1234.0, count - 1.0):
        np.testing.assert_array_equal(np.array(layer.QueryTimeSample(track.paths[0], time)), time)


@pytest.mark.parametrize(
    ("name", "value"), [("_JUMP", 16), ("_TO_COUNT", -16), ("_SIXTY_FOUR_BIT_LENGTHS", (0, 99, 0))]
)
def test_files_of_another_kind_are_refused(monkeypatch, name, value):
    attributes = Attributes()
    monkeypatch.setattr(usd_crate, name, value)
    with pytest.raises(
        SceneDataError, match=r"USD 0\.\d+\.\d+ writes crate files of version 0\.\d+\.0 whose.*usd-core 26"
    ):
        CrateTemplate(attributes.layer, attributes.paths)
