"""Backends cross over to Isaac Lab and from mjlab, with their arrays as they are."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import pytest
import warp as wp
from mujoco_models import robot
from publishing import transforms_at

from scene_data import SceneDataBackend, SceneDataFormat, SceneDataProvider
from scene_data.backends import MujocoSceneDataBackend, MujocoWarpSceneDataBackend
from scene_data.interop import mjlab
from scene_data.interop.isaaclab import BackendForIsaacLab, BackendFromIsaacLab

PEERS = Path(__file__).parent.parent / "build" / "peer"
ISAACLAB = PEERS / "isaaclab-3.0.0"
MJLAB = PEERS / "mjlab-1.6.0"


class StandIn:
    """Structs of the same shape as Isaac Lab's, and of other classes than ours."""

    @wp.struct
    class Transform:
        transforms: wp.array(dtype=wp.transformf) = None

    @wp.struct
    class Vec3_Matrix33:
        positions: wp.array(dtype=wp.vec3f) = None
        orientations: wp.array(dtype=wp.mat33f) = None

    @wp.struct
    class Points:
        points: wp.array(dtype=wp.vec3f) = None


@pytest.fixture(scope="module")
def isaaclab() -> Iterator[ModuleType]:
    """Isaac Lab's own `scene_data`, for as long as a test uses it."""
    if not ISAACLAB.is_dir():
        pytest.skip(f"Isaac Lab is not in {ISAACLAB}; `make test-peer` downloads it")
    paths = [str(ISAACLAB), str(PEERS / "dependencies")]
    sys.path[:0] = paths
    import isaaclab.scene_data

    yield isaaclab.scene_data
    for path in paths:
        sys.path.remove(path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "isaaclab"]:
        del sys.modules[name]


@pytest.fixture(params=["stand-in", "isaaclab"])
def formats(request: pytest.FixtureRequest) -> Any:
    return StandIn if request.param == "stand-in" else request.getfixturevalue("isaaclab").SceneDataFormat


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls = []
    for name in ("launch", "copy"):
        function = getattr(wp, name)
        monkeypatch.setattr(wp, name, lambda *a, _f=function, _n=name, **k: (calls.append(_n), _f(*a, **k))[1])
    return calls


class Ours(SceneDataBackend):
    """Two transforms and five points."""

    def __init__(self):
        self.transforms = transforms_at(1, 2)
        self.transforms_timestamp = 1
        self.transform_count = 2
        self.transform_paths = ["/World/envs/env_0/a", "/World/envs/env_1/a"]
        self.geometry_timestamp = 1
        self.points = SceneDataFormat.Points()
        self.points.points = wp.array(np.arange(15).reshape(5, 3), dtype=wp.vec3f, device="cpu")
        self.ranges = {"/World/envs/env_0/cloth": (0, 2), "/World/envs/env_1/cloth": (2, 3)}

    def get_geometry_batches(self, output_format: Any = SceneDataFormat.Points) -> list[Any]:
        return [(self.points, self.ranges)]


class Theirs:
    """The same for Isaac Lab, in structs of its own."""

    def __init__(self, formats: Any):
        ours = Ours()
        self.formats = formats
        self.transforms = formats.Transform()
        self.transforms.transforms = ours.transforms.transforms
        self.points = formats.Points()
        self.points.points = ours.points.points
        self.ranges = ours.ranges
        self.transform_paths = ours.transform_paths
        self.transform_count = 2
        self.transforms_timestamp = self.geometry_timestamp = 1
        self.native_transform_formats = (formats.Transform,)
        self.native_geometry_formats = (formats.Points,)
        self.asked: list[Any] = []

    def get_transforms(self, output_format: Any) -> Any:
        self.asked.append(output_format)
        return self.transforms

    def get_geometry_batches(self, output_format: Any = None) -> list[Any]:
        return [(self.points, self.ranges)]


# Theirs to ours


def test_our_provider_borrows_the_arrays_of_an_isaaclab_backend(formats: Any, monkeypatch: pytest.MonkeyPatch):
    theirs = Theirs(formats)
    provider = SceneDataProvider(BackendFromIsaacLab(theirs, formats))
    calls = count_copies(monkeypatch)
    poses = SceneDataFormat.Transform()
    assert provider.get_transforms(poses)
    assert poses.transforms is theirs.transforms.transforms
    assert theirs.asked == [formats.Transform]
    views = provider.get_geometry_points()
    assert views["/World/envs/env_1/cloth"].ptr == theirs.points.points.ptr + 2 * 12
    assert provider.get_geometry_points() is views
    assert calls == []
    assert (provider.num_envs, provider.transform_count) == (2, 2)
    assert provider.create_mapping(theirs.transform_paths) is None
    assert provider.backend.native_transform_formats == (SceneDataFormat.Transform,)
    assert provider.backend.native_geometry_formats == (SceneDataFormat.Points,)


def test_our_conversions_follow_an_isaaclab_timestamp(formats: Any, monkeypatch: pytest.MonkeyPatch):
    theirs = Theirs(formats)
    moved = transforms_at(8, 9).transforms
    provider = SceneDataProvider(BackendFromIsaacLab(theirs, formats))
    calls = count_copies(monkeypatch)
    matrices = SceneDataFormat.Vec3_Matrix33()
    for _ in range(3):
        provider.get_transforms(matrices)
    assert calls == ["launch"]
    theirs.transforms.transforms = moved
    theirs.transforms_timestamp += 1
    provider.get_transforms(matrices)
    np.testing.assert_array_equal(matrices.positions.numpy()[:, 0], (8, 9))
    assert calls == ["launch"] * 2
    # A format that only we have is asked for by the one that Isaac Lab publishes.
    double = SceneDataFormat.Vec3d_Matrix33d()
    provider.get_transforms(double)
    assert theirs.asked[-1] is formats.Transform


def test_a_write_is_announced_to_isaaclabs_readers_as_well(formats: Any):
    theirs = Theirs(formats)
    backend = BackendFromIsaacLab(theirs, formats)
    backend.mark_transforms_written()
    backend.mark_geometry_written()
    assert (theirs.transforms_timestamp, theirs.geometry_timestamp) == (2, 2)


# Ours to theirs


def test_structs_are_wrapped_once_and_follow_swaps(formats: Any):
    ours = Ours()
    backend = BackendForIsaacLab(ours, formats)
    struct = backend.transforms
    assert struct._cls is formats.Transform
    assert struct.transforms is ours.transforms.transforms
    ours.transforms.transforms = transforms_at(5, 6).transforms
    assert backend.get_transforms(formats.Transform) is struct
    assert struct.transforms is ours.transforms.transforms
    ((points, ranges),) = backend.get_geometry_batches(formats.Points)
    assert points._cls is formats.Points
    assert points.points is ours.points.points
    assert ranges is ours.ranges


def test_a_backend_without_bodies_has_nothing_to_show(formats: Any):
    assert BackendForIsaacLab(SceneDataBackend(), formats).transforms.transforms is None


def test_isaaclabs_provider_borrows_our_arrays(isaaclab: ModuleType, monkeypatch: pytest.MonkeyPatch):
    ours = Ours()
    provider = isaaclab.SceneDataProvider(BackendForIsaacLab(ours))
    calls = count_copies(monkeypatch)
    poses = isaaclab.SceneDataFormat.Transform()
    assert provider.get_transforms(poses)
    assert poses.transforms is ours.transforms.transforms
    views = provider.get_geometry_points()
    assert views["/World/envs/env_1/cloth"].ptr == ours.points.points.ptr + 2 * 12
    assert provider.get_geometry_points() is views
    assert calls == []
    assert provider.transform_count == 2
    mapping = provider.create_mapping(ours.transform_paths[::-1])
    matrices = isaaclab.SceneDataFormat.Vec3_Matrix33()
    assert provider.get_transforms(matrices, mapping)
    np.testing.assert_array_equal(matrices.positions.numpy()[:, 0], (2, 1))
    ours.transforms.transforms.fill_(wp.transform((4, 4, 4), wp.quat_identity()))
    ours.mark_transforms_written()
    provider.get_transforms(matrices, mapping)
    np.testing.assert_array_equal(matrices.positions.numpy(), np.full((2, 3), 4))


def test_isaaclabs_provider_reads_the_c_engine_in_single_precision(isaaclab: ModuleType):
    model = robot(cloth=True)
    data = mujoco.MjData(model)
    backend = MujocoSceneDataBackend(model, data)
    provider = isaaclab.SceneDataProvider(BackendForIsaacLab(backend))
    poses = isaaclab.SceneDataFormat.Vec3_Matrix33()
    for height in (1.0, 2.0):
        data.qpos[2] = height
        assert provider.get_transforms(poses)
        np.testing.assert_allclose(poses.positions.numpy(), data.xpos, rtol=1e-6)
        np.testing.assert_allclose(poses.orientations.numpy().reshape(-1, 9), data.xmat, atol=1e-6)
    cloth = provider.get_geometry_points()["/World/envs/env_0/cloth"]
    np.testing.assert_allclose(cloth.numpy(), data.flexvert_xpos, atol=1e-6)


SKINNED = """
<mujoco>
  <worldbody>
    <body name="bone" pos="1 2 3"><freejoint/><geom size=".1"/></body>
  </worldbody>
  <deformable>
    <skin name="skin" vertex="0 0 0 1 0 0 0 0 2" face="0 1 2">
      <bone body="bone" bindpos="0 0 0" bindquat="1 0 0 0" vertid="0 1 2" vertweight="1 1 1"/>
    </skin>
  </deformable>
</mujoco>
"""


def test_skins_reach_isaaclab_as_points(formats: Any):
    model = mujoco.MjModel.from_xml_string(SKINNED)
    backend = BackendForIsaacLab(MujocoSceneDataBackend(model, mujoco.MjData(model)), formats)
    ((points, ranges),) = backend.get_geometry_batches(formats.Points)
    assert points._cls is formats.Points
    assert ranges == {"/World/envs/env_0/skin": (0, 3)}
    np.testing.assert_allclose(points.points.numpy(), [(1, 2, 3), (2, 2, 3), (1, 2, 5)], atol=1e-6)


def test_isaaclabs_provider_draws_newtons_ropes(isaaclab: ModuleType):
    newton = pytest.importorskip("newton", reason="newton is not installed")
    from scene_data.backends import NewtonSceneDataBackend

    builder = newton.ModelBuilder()
    points = [(0.1 * i, 0, 1) for i in range(5)]
    builder.add_rod(rod=newton.Rod(points=points, radius=0.02), label="rope")
    model = builder.finalize(device="cpu")
    backend = NewtonSceneDataBackend(model, model.state())
    views = isaaclab.SceneDataProvider(BackendForIsaacLab(backend)).get_geometry_points()
    np.testing.assert_allclose(views["/World/envs/env_0/rope"].numpy(), points, atol=1e-6)
    ours = SceneDataProvider(backend).get_geometry_points()
    np.testing.assert_allclose(ours["/World/envs/env_0/rope"].numpy(), points, atol=1e-6)


def test_isaaclab_is_asked_for_its_formats_unless_they_are_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "isaaclab.scene_data", None)
    for bridge in (BackendForIsaacLab, BackendFromIsaacLab):
        with pytest.raises(ImportError, match="Pass them as `formats`"):
            bridge(Ours())


# mjlab


def warp_simulation() -> SimpleNamespace:
    """What a simulation of mjlab has, without mjlab."""
    model = robot(cloth=False)
    with wp.ScopedDevice("cpu"):
        return SimpleNamespace(
            mj_model=model, wp_model=mjw.put_model(model), wp_data=mjw.put_data(model, mujoco.MjData(model), nworld=2)
        )


@pytest.fixture
def mjlab_simulation(monkeypatch: pytest.MonkeyPatch) -> Any:
    """mjlab's own `Simulation`. Its packages are entered without their `__init__`, which needs what we lack."""
    if not MJLAB.is_dir():
        pytest.skip(f"mjlab is not in {MJLAB}; `make test-peer` downloads it")
    for name in ("mjlab", "mjlab.entity", "mjlab.managers", "mjlab.sim", "mjlab.utils"):
        package = ModuleType(name)
        package.__path__ = [str(MJLAB / name.replace(".", "/"))]
        monkeypatch.setitem(sys.modules, name, package)
    events = ModuleType("mjlab.managers.event_manager")
    events.RecomputeLevel = object  # it names a type there, and no more
    monkeypatch.setitem(sys.modules, events.__name__, events)
    from mjlab.sim.sim import Simulation, SimulationCfg

    yield Simulation(2, SimulationCfg(), robot(cloth=False), device="cpu")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mjlab"]:
        monkeypatch.delitem(sys.modules, name, raising=False)


def check_mjlab(simulation: Any, step: Any) -> None:
    backend = mjlab.backend_of(simulation)
    assert isinstance(backend, MujocoWarpSceneDataBackend)
    assert backend.num_envs == 2
    provider = SceneDataProvider(backend)
    poses = SceneDataFormat.Vec3_Matrix33()
    assert provider.get_transforms(poses)
    assert poses.positions.ptr == simulation.wp_data.xpos.ptr
    step()
    assert provider.get_transforms(poses)
    torso = backend.transform_paths.index("/World/envs/env_1/torso")
    qpos = simulation.wp_data.qpos.numpy()
    np.testing.assert_allclose(poses.positions.numpy()[torso], qpos[1, :3], atol=1e-6)
    assert qpos[1, 2] < 0.6


def test_a_simulation_of_mjlabs_shape_becomes_a_backend():
    simulation = warp_simulation()
    check_mjlab(simulation, lambda: mjw.step(simulation.wp_model, simulation.wp_data))


def test_an_mjlab_simulation_becomes_a_backend(mjlab_simulation: Any):
    check_mjlab(mjlab_simulation, mjlab_simulation.step)


def test_what_is_no_mjlab_simulation_is_refused():
    with pytest.raises(TypeError, match="SimpleNamespace is no mjlab simulation: it has no wp_model and no wp_data"):
        mjlab.backend_of(SimpleNamespace(mj_model=None))
