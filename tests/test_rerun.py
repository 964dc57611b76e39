"""The Rerun viewer: what it serves and sends, read back from the files that it writes."""

import io
import os
import re
import socket
import threading
import time
from pathlib import Path

import mujoco
import numpy as np
import psutil
import pytest
from PIL import Image

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg
from scene_data.cli import main
from scene_data.extra_geometry import GeometryBatch
from scene_data.formats import SceneDataFormat
from scene_data.registry import visualizers

rr = pytest.importorskip("rerun")

from rerun.chunk import RrdReader  # noqa: E402
from rrd_reading import Recorded  # noqa: E402

from scene_data.visualizers import RerunVisualizer, RerunVisualizerCfg  # noqa: E402
from scene_data.visualizers.ports import PortInUseError  # noqa: E402
from scene_data.visualizers.rerun_stream import NoViewerError, RecordingFileError  # noqa: E402

XML = """
<mujoco model="table">
  <option timestep="0.01" gravity="0 0 -1"/>
  <statistic center="0 0 0" extent="2"/>
  <asset>
    <texture name="chess" type="2d" builtin="checker" width="8" height="8" rgb1="1 1 0" rgb2="0 1 1"/>
    <material name="chess" texture="chess" texrepeat="2 2"/>
    <mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <hfield name="hills" nrow="2" ncol="2" size="1 1 1 .1" elevation="0 1 0 1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 .1" rgba=".1 .1 .15 1"/>
    <geom name="hills" type="hfield" hfield="hills" pos="5 0 0" rgba=".5 .4 .3 1"/>
    <body name="arm" pos="-1 0 1">
      <joint name="shoulder" type="hinge" axis="0 1 0"/>
      <geom name="upper" type="capsule" size=".1 .2" rgba="1 0 0 1"/>
      <geom name="twin" type="capsule" size=".05 .1" pos=".3 0 0" rgba="0 0 1 1"/>
      <body name="hand" pos="0 0 .5" quat="1 1 0 0">
        <joint type="hinge" axis="1 0 0"/>
        <geom name="palm" type="mesh" mesh="wedge" rgba="0 1 0 .5"/>
        <camera name="wrist" pos="0 0 .2" fovy="60"/>
      </body>
    </body>
    <body name="ball" pos="1 0 .3"><freejoint/>
      <geom name="ball" type="sphere" size=".3" rgba="0 1 0 1"/>
      <geom name="egg" type="ellipsoid" size=".1 .2 .15" pos="0 0 .4" rgba="0 .8 0 1"/>
      <geom name="can" type="cylinder" size=".1 .2" pos="0 .4 0" rgba="1 1 0 1"/>
      <geom name="collider" type="box" size=".2 .2 .2" group="3"/></body>
    <body name="tile" pos="0 -.7 .2"><joint type="slide" axis="0 1 0"/>
      <geom name="tile" type="box" size=".3 .3 .05" material="chess"/></body>
    <camera name="top" pos="0 0 4"/>
  </worldbody>
</mujoco>
"""

SOFT = """
<mujoco model="soft">
  <option timestep="0.005"/>
  <asset><texture name="print" type="2d" builtin="checker" width="8" height="8" rgb1="1 0 0" rgb2="0 0 1"/>
    <material name="print" texture="print"/></asset>
  <worldbody>
    <site name="anchor" pos="0 0 2"/>
    <body name="bob" pos="0 0 1"><freejoint/><geom size=".1"/><site name="hook" pos="0 0 .1"/></body>
    <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".2 .2 .2" pos="1 0 2" dim="2" radius=".01"
              material="print"
              texcoord="0 0  0 1  0 2  0 3  1 0  1 1  1 2  1 3  2 0  2 1  2 2  2 3  3 0  3 1  3 2  3 3">
      <edge equality="true"/></flexcomp>
  </worldbody>
  <tendon><spatial name="rope" width=".02" rgba="0 1 0 1"><site site="anchor"/><site site="hook"/></spatial></tendon>
</mujoco>
"""

BOX = "<mujoco model='box'><worldbody><geom name='box' type='box' size='1 1 1'/></worldbody></mujoco>"


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind():
    process = psutil.Process()
    threads, children = set(threading.enumerate()), process.children()
    yield
    SimulationContext.clear_instance()
    deadline = time.monotonic() + 20.0
    while set(threading.enumerate()) - threads and time.monotonic() < deadline:
        time.sleep(0.05)
    assert set(threading.enumerate()) <= threads
    assert process.children() == children
    assert not native_threads("RecordingStream"), "a recording was left open"


def native_threads(name: str) -> list[str]:
    """Threads of libraries, by the name that the system knows them by."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except FileNotFoundError:
            continue
    return [each for each in names if each.startswith(name)]


def open_context(model, num_envs=1, cameras=(), **settings) -> SimulationContext:
    """A simulation that is recorded or shown; nothing is served unless a port is given."""
    settings = {"web_port": None, "grpc_port": None, "record_fps": 1e6, "image_frequency": 1e6, **settings}
    physics = MujocoPhysicsCfg(model, "mujoco_batch", num_envs)
    cfg = SimulationCfg(physics, cameras=cameras, visualizer_cfgs=[RerunVisualizerCfg(**settings)])
    return SimulationContext(cfg)


def viewer_of(sim) -> RerunVisualizer:
    (viewer,) = sim.visualizers
    return viewer


def body_poses(sim) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    poses = SceneDataFormat.Vec3_Quat()
    assert sim.provider.get_transforms(poses)
    positions, quaternions = poses.positions.numpy().copy(), poses.orientations.numpy().copy()
    paths = sim.provider.backend.transform_paths
    return {path: (positions[i], quaternions[i]) for i, path in enumerate(paths)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TestServing:
    def test_a_page_and_its_data_on_this_machine_alone(self, model):
        assert RerunVisualizerCfg().bind_address == "127.0.0.1"
        with open_context(model, web_port=0, grpc_port=0) as sim:
            url = viewer_of(sim).address
            (server,) = psutil.Process().children()
            listening = [each.laddr for each in server.net_connections() if each.status == psutil.CONN_LISTEN]
            assert {address.ip for address in listening} == {"127.0.0.1"}
            assert len(listening) == 2
            web, data = url.split("/?url=rerun%2Bhttp%3A%2F%2F127.0.0.1%3A")
            assert {int(web.rsplit(":", 1)[1]), int(data.removesuffix("%2Fproxy"))} == {a.port for a in listening}
            limit = server.cmdline()[server.cmdline().index("--server-memory-limit") + 1]
            assert limit == RerunVisualizerCfg().memory_limit == "512MiB", "bounded by default"

    def test_the_memory_limit_is_passed_on(self, model):
        with open_context(model, grpc_port=0, memory_limit="64MiB") as sim:
            (server,) = psutil.Process().children()
            assert server.cmdline()[server.cmdline().index("--server-memory-limit") + 1] == "64MiB"
            assert viewer_of(sim).address.startswith("rerun+http://127.0.0.1:")

    @pytest.mark.parametrize("which", ["web_port", "grpc_port"])
    def test_a_busy_port_is_one_clear_error_and_leaves_nothing_behind(self, model, tmp_path, which):
        path = tmp_path / "run.rrd"
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = busy.getsockname()[1]
            ports = {"web_port": 0, "grpc_port": 0, which: port}
            with pytest.raises(PortInUseError, match=rf"Rerun .*127\.0\.0\.1:{port}: Address already in use.* another"):
                open_context(model, record_to_rrd=path, **ports)
        assert SimulationContext.instance() is None
        assert not path.exists()

    def test_the_ports_are_free_again_after_close(self, model):
        web, data = free_port(), free_port()
        for _ in range(2):
            with open_context(model, web_port=web, grpc_port=data) as sim:
                sim.step()
                assert f":{web}/" in viewer_of(sim).address

    def test_a_file_that_cannot_be_written_is_one_clear_error(self, model, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(RecordingFileError, match=r"Cannot record to .*run\.rrd.*another file"):
            open_context(model, record_to_rrd=tmp_path / "file" / "run.rrd")
        with pytest.raises(RecordingFileError, match=r"Is a directory"):
            open_context(model, record_to_rrd=tmp_path)

    def test_no_viewer_at_an_address_is_one_clear_error(self, model):
        url = f"rerun+http://127.0.0.1:{free_port()}/proxy"
        with pytest.raises(NoViewerError, match=re.escape(f"No Rerun viewer takes data at {url}")):
            open_context(model, connect_to=url)

    def test_a_server_that_is_ended_takes_its_viewer_with_it_and_nothing_else(self, model, tmp_path, caplog):
        caplog.set_level("INFO")
        path = tmp_path / "run.rrd"
        with open_context(model, grpc_port=0, record_to_rrd=path) as sim:
            sim.step()
            (server,) = psutil.Process().children()
            server.kill()
            server.wait(10)
            sim.step()
            assert sim.visualizers == ()
            sim.step()
        assert "The viewer 'rerun' was closed" in caplog.text
        assert ("/World/envs/env_0/ball", "Transform3D:translation") in Recorded(path).rows

    @pytest.mark.parametrize(
        "settings",
        [
            {"web_port": 70000},
            {"grpc_port": -1},
            {"record_fps": 0.0},
            {"image_frequency": 0.0},
            {"speed": 0.0},
            {"max_trees": -1},
            {"connect_to": "somewhere"},
            {"grpc_port": None},
            {"memory_limit": "plenty"},
        ],
    )
    def test_what_cannot_be_used_is_refused(self, settings):
        with pytest.raises(ValueError, match=r"must|has to"):
            RerunVisualizerCfg(**settings)

    def test_it_is_found_by_name(self):
        assert visualizers.get("rerun") is RerunVisualizer
        assert RerunVisualizer.cfg_type is RerunVisualizerCfg
        assert RerunVisualizer.requires == ()

    def test_the_recordings_of_others_are_left_alone(self, model, tmp_path):
        before = rr.get_global_data_recording()
        with open_context(model, record_to_rrd=tmp_path / "run.rrd") as sim:
            sim.step()
            assert rr.get_global_data_recording() is before


@pytest.fixture(scope="module")
def trees(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("trees") / "deep" / "run.rrd"
    poses = []
    with open_context(model, 2, record_to_rrd=path, env_spacing=5.0, app_id="trees") as sim:
        poses.append((sim.simulation_time_ns, body_poses(sim)))
        for step in range(4):
            sim.physics.batch.qpos[:, 0] = (0.3 * step, -0.2 * step)
            sim.step()
            poses.append((sim.simulation_time_ns, body_poses(sim)))
    return Recorded(path), poses


class TestTrees:
    """A few environments, each with entities of its own."""

    def test_bodies_are_where_the_provider_says_at_every_time(self, trees):
        recorded, poses = trees
        assert recorded.timelines == {"sim_time", "step"}
        for path in (f"/World/envs/env_{env}/{body}" for env in range(2) for body in ("arm", "hand", "ball", "tile")):
            positions = recorded.rows[path, "Transform3D:translation"]
            quaternions = recorded.rows[path, "Transform3D:quaternion"]
            np.testing.assert_allclose([row[0] for row in positions], [each[0] * 1e-9 for each in poses], atol=1e-12)
            assert [row[1] for row in positions] == sorted({row[1] for row in positions})
            for place, turn, (_, expected) in zip(positions, quaternions, poses, strict=True):
                np.testing.assert_allclose(place[2][0], expected[path][0], atol=1e-5)
                np.testing.assert_allclose(turn[2][0], expected[path][1], atol=1e-5)

    def test_environments_stand_apart_for_the_eye(self, trees):
        recorded, _ = trees
        places = [recorded.static[f"/World/envs/env_{env}", "Transform3D:translation"][0] for env in range(2)]
        np.testing.assert_allclose(places, [[-2.5, 0, 0], [2.5, 0, 0]], atol=1e-6)

    def test_each_shape_has_its_own_size_colour_and_place(self, trees):
        recorded, _ = trees
        for env in range(2):
            root = f"/World/envs/env_{env}"
            static = {key[1]: value for key, value in recorded.static.items() if key[0] == f"{root}/arm/upper"}
            assert _rgba(static["Capsules3D:colors"][0]) == (255, 0, 0, 255)
            np.testing.assert_allclose(static["Capsules3D:radii"], [0.1])
            np.testing.assert_allclose(static["Capsules3D:lengths"], [0.4])
            np.testing.assert_allclose(static["Capsules3D:translations"], [[0, 0, -0.2]])
            assert _rgba(recorded.static[f"{root}/arm/twin", "Capsules3D:colors"][0]) == (0, 0, 255, 255)
            np.testing.assert_allclose(
                recorded.static[f"{root}/arm/twin", "Transform3D:translation"][0], [0.3, 0, 0], atol=1e-6
            )
            assert _rgba(recorded.static[f"{root}/hand/palm", "Mesh3D:albedo_factor"][0]) == (0, 255, 0, 128)
            np.testing.assert_allclose(recorded.static[f"{root}/ball/ball", "Ellipsoids3D:half_sizes"], [[0.3] * 3])
            np.testing.assert_allclose(
                recorded.static[f"{root}/ball/egg", "Ellipsoids3D:half_sizes"], [[0.1, 0.2, 0.15]]
            )
            np.testing.assert_allclose(recorded.static[f"{root}/ball/can", "Cylinders3D:lengths"], [0.4])

    def test_meshes_hold_the_geometry_of_the_model(self, trees, model):
        recorded, _ = trees
        palm = "/World/envs/env_0/hand/palm"
        points = np.array(recorded.static[palm, "Mesh3D:vertex_positions"])
        faces = np.array(recorded.static[palm, "Mesh3D:triangle_indices"])
        mesh = model.mesh("wedge").id
        start, count = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
        corners = model.mesh_vert[model.mesh_vertadr[mesh] :][model.mesh_face[start : start + count]]
        np.testing.assert_allclose(points[faces], corners, atol=1e-6)
        heights = np.array(recorded.static["/World/envs/env_0/world/hills", "Mesh3D:vertex_positions"])
        assert heights[:, 2].max() == pytest.approx(1.0)
        assert heights[:, 2].min() == pytest.approx(-0.1)

    def test_textures_lie_on_shapes_as_often_as_the_material_says(self, trees, model):
        recorded, _ = trees
        tile = {key[1]: value for key, value in recorded.static.items() if key[0] == "/World/envs/env_1/tile/tile"}
        image = np.array(tile["Mesh3D:albedo_texture_buffer"][0], dtype=np.uint8).reshape(8, 8, 3)
        np.testing.assert_array_equal(image, model.tex_data.reshape(8, 8, 3))
        texcoords = np.array(tile["Mesh3D:vertex_texcoords"])
        top = np.array(tile["Mesh3D:vertex_normals"])[:, 2] > 0.9
        np.testing.assert_allclose(np.ptp(texcoords[top], axis=0), [2.0, 2.0], atol=1e-6)

    def test_geometry_is_sent_once_and_what_is_in_no_shown_group_never(self, trees):
        recorded, _ = trees
        moving = {component.split(":")[0] for _, component in recorded.rows}
        assert moving == {"Transform3D"}
        assert not any("collider" in entity for entity in recorded.entities)

    def test_what_all_environments_share_is_there_once(self, trees):
        recorded, _ = trees
        assert "/World/envs/env_0/world/floor" in recorded.entities
        assert "/World/envs/env_1/world/floor" not in recorded.entities
        assert "/World/envs/env_1/world/hills" in recorded.entities, "it has an end, and the environments are apart"

    def test_there_is_a_blueprint(self, trees):
        recorded, _ = trees
        assert [each.application_id for each in recorded.blueprints] == ["trees"]


@pytest.fixture(scope="module")
def batches(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("batches") / "run.rrd"
    with open_context(model, 6, record_to_rrd=path, env_spacing=4.0, visible_env_indices=[5, 0, 1, 2, 3]) as sim:
        sim.physics.batch.qpos[:, 0] = np.linspace(0.0, 1.0, 6)
        sim.physics.batch.qpos[:, 2] = np.linspace(0.0, 0.5, 6)
        sim.step()
        sim.physics.batch.qpos[:, 1] = np.linspace(-1.0, 1.0, 6)
        sim.step()
        states = sim.physics.batch.qpos.copy()
    positions, rotations = np.zeros((6, model.ngeom, 3)), np.zeros((6, model.ngeom, 9))
    for env, data in enumerate(mujoco.MjData(model) for _ in range(6)):
        data.qpos = states[env]
        mujoco.mj_kinematics(model, data)
        positions[env], rotations[env] = data.geom_xpos, data.geom_xmat
    return Recorded(path), (positions, rotations)


class TestBatches:
    """Many environments, with one entity for each shape."""

    # Three columns, the last row not full.
    OFFSETS = 4.0 * np.array([[-1, 0.5, 0], [0, 0.5, 0], [1, 0.5, 0], [-1, -0.5, 0], [0, -0.5, 0]])

    def test_instances_are_where_the_geoms_are_each_in_its_place(self, batches, model):
        recorded, (positions, rotations) = batches
        for body, geom in (("arm", "upper"), ("arm", "twin"), ("ball", "ball"), ("ball", "egg"), ("tile", "tile")):
            path = rf"/World/envs/env_\*/{body}/{geom}"
            index = model.geom(geom).id
            places = recorded.last(path, "InstancePoses3D:translations")
            np.testing.assert_allclose(places, positions[[5, 0, 1, 2, 3], index] + self.OFFSETS, atol=1e-5)
            turns = recorded.last(path, "InstancePoses3D:quaternions")
            expected = np.zeros((5, 4))
            for row, env in enumerate((5, 0, 1, 2, 3)):
                mujoco.mju_mat2Quat(expected[row], rotations[env, index])
            alike = np.abs((turns * np.roll(expected, -1, axis=1)).sum(axis=1))
            np.testing.assert_allclose(alike, 1.0, atol=1e-5)

    def test_each_has_its_own_colour(self, batches):
        recorded, _ = batches
        upper, twin = (
            recorded.static[rf"/World/envs/env_\*/arm/{name}", "Capsules3D:colors"] for name in ("upper", "twin")
        )
        assert (_rgba(upper[0]), _rgba(twin[0])) == ((255, 0, 0, 255), (0, 0, 255, 255))
        # Rerun draws as many capsules as there are lengths, however many poses there are.
        assert len(recorded.static[r"/World/envs/env_\*/arm/upper", "Capsules3D:lengths"]) == 5

    def test_updates_are_poses_alone(self, batches):
        recorded, _ = batches
        assert {component for _, component in recorded.rows} == {
            "InstancePoses3D:translations",
            "InstancePoses3D:quaternions",
        }

    def test_what_stands_still_is_sent_for_good(self, batches):
        recorded, _ = batches
        np.testing.assert_allclose(
            recorded.static[r"/World/envs/env_\*/world/hills", "InstancePoses3D:translations"],
            np.array([5.0, 0, 0])
            + 4.0 * np.array([[-1, 0.5, 0], [0, 0.5, 0], [1, 0.5, 0], [-1, -0.5, 0], [0, -0.5, 0]]),
            atol=1e-5,
        )
        assert len(recorded.static[r"/World/envs/env_\*/world/floor", "InstancePoses3D:translations"]) == 1


def _rgba(colour: int) -> tuple[int, int, int, int]:
    return tuple(colour.to_bytes(4, "big"))


@pytest.mark.parametrize("max_trees", [4, 0])
def test_a_pose_that_is_not_finite_hides_what_has_it_and_nothing_else(model, tmp_path, monkeypatch, max_trees):
    with open_context(model, 2, record_to_rrd=tmp_path / "run.rrd", env_spacing=0.0, max_trees=max_trees) as sim:
        sim.step()
        # The engine resets what goes NaN: the hole is made in what it publishes.
        read = sim.provider.get_transforms

        def with_hole(output, *arguments, **settings):
            done = read(output, *arguments, **settings)
            positions = output.positions.numpy().copy()
            positions[sim.provider.backend.transform_paths.index("/World/envs/env_1/ball")] = np.nan
            output.positions = type(output.positions)(positions, dtype=output.positions.dtype, device="cpu")
            return done

        monkeypatch.setattr(sim.provider, "get_transforms", with_hole)
        sim.step()
        monkeypatch.undo()
        sim.step()
    recorded = Recorded(tmp_path / "run.rrd")
    if max_trees:
        hidden = recorded.rows["/World/envs/env_1/ball", "Transform3D:scale"]
        assert [row[1] for row in hidden] == [2]
        np.testing.assert_allclose(hidden[0][2], [[1e-9] * 3])
        assert ("/World/envs/env_0/ball", "Transform3D:scale") not in recorded.rows
    else:
        hidden = recorded.rows[r"/World/envs/env_\*/ball/ball", "InstancePoses3D:scales"]
        assert [(row[1], row[2]) for row in hidden] == [(2, [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])]
    values = [row[2] for (_, name), rows in recorded.rows.items() if "trans" in name for row in rows]
    assert all(np.isfinite(np.array(value)).all() for value in values)


def test_cloth_and_tendons_follow_the_engine(tmp_path):
    soft = mujoco.MjModel.from_xml_string(SOFT)
    with open_context(soft, 2, record_to_rrd=tmp_path / "run.rrd", env_spacing=4.0) as sim:
        for _ in range(10):
            sim.step()
        points = {path: each.numpy().copy() for path, each in sim.provider.get_geometry_points().items()}
    recorded = Recorded(tmp_path / "run.rrd")
    shifts = np.array([[-2.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    cloth = r"/World/envs/env_\*/cloth"
    expected = np.concatenate([points[f"/World/envs/env_{env}/cloth"] + shifts[env] for env in range(2)])
    np.testing.assert_allclose(recorded.last(cloth, "Mesh3D:vertex_positions"), expected, atol=1e-5)
    faces = np.array(recorded.static[cloth, "Mesh3D:triangle_indices"])
    corners = expected[faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals = recorded.last(cloth, "Mesh3D:vertex_normals")
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0, atol=1e-5)
    assert ((normals[faces].mean(axis=1) * across).sum(axis=1) > 0.0).all()
    assert faces.max() == 31
    assert ("/World/envs/env_0/cloth", "Mesh3D:vertex_positions") not in recorded.rows
    texcoords = np.array(recorded.static[cloth, "Mesh3D:vertex_texcoords"])
    np.testing.assert_allclose(texcoords[:16], np.stack(np.divmod(np.arange(16), 4), axis=1), atol=1e-6)
    rope = recorded.last(r"/World/envs/env_\*/rope", "LineStrips3D:strips")
    expected = [points[f"/World/envs/env_{env}/rope"] + shifts[env] for env in range(2)]
    np.testing.assert_allclose(rope, expected, atol=1e-5)
    np.testing.assert_allclose(recorded.static[r"/World/envs/env_\*/rope", "LineStrips3D:radii"], [0.02], atol=1e-6)


def test_a_cube_may_have_one_image_for_all_its_faces(tmp_path):
    """As the walls of a kitchen have it, which other people made."""
    pixels = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, "PNG")
        png = file.getvalue()
    xml = """
    <mujoco><asset><texture name="wood" type="cube" file="wood.png"/><material name="wood" texture="wood"/></asset>
      <worldbody><geom name="box" type="box" size="1 1 1" material="wood"/></worldbody></mujoco>
    """
    with open_context(
        mujoco.MjModel.from_xml_string(xml, {"wood.png": png}), record_to_rrd=tmp_path / "run.rrd"
    ) as sim:
        sim.step()
    box = "/World/envs/env_0/world/box"
    static = Recorded(tmp_path / "run.rrd").static
    assert len(static[box, "Mesh3D:albedo_texture_buffer"][0]) == pixels.size
    texcoords = np.array(static[box, "Mesh3D:vertex_texcoords"])
    corners = texcoords[np.array(static[box, "Mesh3D:triangle_indices"])]
    spans = corners.max(axis=1) - corners.min(axis=1)
    np.testing.assert_allclose(spans, 1.0, atol=0.01)


@pytest.mark.parametrize("max_trees", [4, 0])
def test_a_height_field_that_changes_is_sent_again(tmp_path, max_trees):
    model = mujoco.MjModel.from_xml_string(XML)  # its height field is written to
    physics = MujocoPhysicsCfg(model)
    viewer = RerunVisualizerCfg(
        web_port=None, grpc_port=None, record_to_rrd=tmp_path / "run.rrd", record_fps=1e6, max_trees=max_trees
    )
    with SimulationContext(SimulationCfg(physics, visualizer_cfgs=[viewer])) as sim:
        sim.appearance.set_shape_colors((0.0, 1.0, 0.0), "hills")
        sim.step()
        model.hfield_data[:] = (0.0, 0.0, 0.5, 0.5)
        sim.step()
    recorded = Recorded(tmp_path / "run.rrd")
    hills = "/World/envs/env_0/world/hills" if max_trees else r"/World/envs/env_\*/world/hills"
    assert np.array(recorded.static[hills, "Mesh3D:vertex_positions"])[:, 2].max() == pytest.approx(0.5)
    assert _rgba(recorded.static[hills, "Mesh3D:albedo_factor"][0]) == (0, 255, 0, 255)


def test_extra_geometry_comes_and_goes(model, tmp_path):
    shown = [GeometryBatch.spheres([[0, 0, 1], [0, 0, 2]], 0.2, rgba=(1, 0, 0, 1), envs=[-1, 1])]
    shown.append(GeometryBatch.capsules([[0, 0, 0]], [[0, 0, 1]], 0.1, envs=0))
    with open_context(model, 2, record_to_rrd=tmp_path / "run.rrd", env_spacing=3.0) as sim:
        sim.add_geometry_source(lambda: shown)
        sim.step()
        shown.clear()
        sim.step()
    recorded = Recorded(tmp_path / "run.rrd")
    centres = recorded.last("/World/markers/sphere", "Ellipsoids3D:centers")
    np.testing.assert_allclose(centres, [[-1.5, 0, 1], [1.5, 0, 1], [1.5, 0, 2]], atol=1e-5)
    assert _rgba(recorded.last("/World/markers/sphere", "Ellipsoids3D:colors")[0].item()) == (255, 0, 0, 255)
    begins = recorded.last("/World/markers/capsule", "Capsules3D:translations")
    np.testing.assert_allclose(begins, [[-1.5, 0, 0]], atol=1e-5)
    cleared = [entity for entity, name in recorded.rows if name == "Clear:is_recursive"]
    assert set(cleared) == {"/World/markers/sphere", "/World/markers/capsule"}


class TestCameras:
    CAMERAS = (CameraCfg("wrist", 32, 24), CameraCfg("free", 16, 12))

    def test_each_stands_where_it_is_with_its_image(self, model, tmp_path):
        pytest.importorskip("torch")
        names = ("wrist", "free")
        with open_context(model, 2, self.CAMERAS, record_to_rrd=tmp_path / "run.rrd", camera_images=names) as sim:
            sim.physics.batch.qpos[:, 0] = (0.0, 0.5)
            sim.step()
            data = sim.cameras["wrist"].data
            pixels = data.lease("rgb").numpy().copy()
            places, turns = data.info.pos_w.numpy(), data.info.quat_w_opengl.numpy()
        recorded = Recorded(tmp_path / "run.rrd")
        focal = 12.0 / np.tan(np.radians(30.0))
        for env in range(2):
            path = f"/World/envs/env_{env}/hand/wrist"
            np.testing.assert_allclose(recorded.last(path, "Transform3D:translation")[0], places[env], atol=1e-5)
            np.testing.assert_allclose(recorded.last(path, "Transform3D:quaternion")[0], turns[env], atol=1e-5)
            assert recorded.last(path, "Transform3D:parent_frame") == [f"tf#/World/envs/env_{env}"]
            matrix = recorded.last(path, "Pinhole:image_from_camera")[0].reshape(3, 3).T
            np.testing.assert_allclose(matrix, [[focal, 0, 16], [0, focal, 12], [0, 0, 1]], atol=1e-4)
            np.testing.assert_allclose(recorded.last(path, "Pinhole:resolution"), [[32, 24]])
            file = io.BytesIO(bytes(recorded.last(f"{path}/rgb", "EncodedImage:blob")[0].tolist()))
            image = np.array(Image.open(file))
            with io.BytesIO() as again:
                Image.fromarray(pixels[env]).save(again, "JPEG", quality=85)
                np.testing.assert_array_equal(image, np.array(Image.open(again)))
            assert recorded.last(f"{path}/rgb", "EncodedImage:media_type") == ["image/jpeg"]
            assert (f"/World/envs/env_{env}/cameras/free/rgb", "EncodedImage:blob") in recorded.rows

    def test_images_of_many_environments_are_one(self, model, tmp_path):
        with open_context(
            model, 3, self.CAMERAS[:1], record_to_rrd=tmp_path / "run.rrd", camera_images=("wrist",), max_trees=2
        ) as sim:
            sim.step()
        recorded = Recorded(tmp_path / "run.rrd")
        image = Image.open(io.BytesIO(bytes(recorded.last("/cameras/wrist/rgb", "EncodedImage:blob")[0].tolist())))
        assert image.width * image.height >= 3 * 32 * 24

    def test_no_more_images_than_asked_for(self, model, tmp_path):
        with open_context(
            model,
            1,
            self.CAMERAS[:1],
            record_to_rrd=tmp_path / "run.rrd",
            camera_images=("wrist",),
            image_frequency=25.0,
        ) as sim:
            for _ in range(20):
                sim.step()
        rows = Recorded(tmp_path / "run.rrd").rows["/World/envs/env_0/hand/wrist/rgb", "EncodedImage:blob"]
        np.testing.assert_allclose([row[0] for row in rows], 0.01 + 0.04 * np.arange(5), atol=1e-9)


class TestTime:
    def test_a_recording_has_as_many_updates_as_asked_for(self, model, tmp_path):
        with open_context(model, record_to_rrd=tmp_path / "run.rrd", record_fps=20.0) as sim:
            for _ in range(20):
                sim.step()
        rows = Recorded(tmp_path / "run.rrd").rows["/World/envs/env_0/ball", "Transform3D:translation"]
        np.testing.assert_allclose([row[0] for row in rows], [0.0, 0.05, 0.1, 0.15, 0.2], atol=1e-9)

    def test_while_paused_nothing_is_sent_but_news(self, model, tmp_path):
        with open_context(model, record_to_rrd=tmp_path / "run.rrd") as sim:
            sim.step()
            for _ in range(3):
                sim.render()
            sim.physics.batch.qpos[:, 1] = 0.25
            sim.render()
        rows = Recorded(tmp_path / "run.rrd").rows["/World/envs/env_0/ball", "Transform3D:translation"]
        assert [row[0] for row in rows] == pytest.approx([0.0, 0.01, 0.01])

    def test_steps_grow_on_when_time_begins_again(self, model, tmp_path):
        with open_context(model, record_to_rrd=tmp_path / "run.rrd") as sim:
            for _ in range(3):
                sim.step()
            sim.reset()
            sim.step()
        rows = Recorded(tmp_path / "run.rrd").rows["/World/envs/env_0/ball", "Transform3D:translation"]
        assert [row[0] for row in rows][-1] == pytest.approx(0.01)
        assert [row[1] for row in rows] == list(range(len(rows)))

    def test_plots(self, model, tmp_path):
        values = iter(range(10))
        plots = {"the count": lambda: next(values)}
        with open_context(model, record_to_rrd=tmp_path / "run.rrd", live_plots=plots) as sim:
            for _ in range(3):
                sim.step()
        rows = Recorded(tmp_path / "run.rrd").rows[r"/plots/the\ count", "Scalars:scalars"]
        assert [(row[0], row[2]) for row in rows] == [(pytest.approx(0.01 * (1 + i)), [float(i)]) for i in range(3)]


def test_recording_takes_no_memory_for_an_index_that_grows(model, tmp_path):
    with open_context(model, record_to_rrd=tmp_path / "run.rrd") as sim:
        sim.step()
    with pytest.warns(rr.error_utils.RerunWarning, match="no footer"):
        RrdReader(str(tmp_path / "run.rrd"))


def test_views_are_set_as_often_as_one_likes(model, tmp_path):
    with open_context(model, record_to_rrd=tmp_path / "run.rrd") as sim:
        threads = len(native_threads("RecordingStream"))
        for height in range(1, 5):
            sim.set_camera_view((0.0, -3.0, float(height)), (0.0, 0.0, 0.0))
        assert len(native_threads("RecordingStream")) == threads == 1
    eyes = Recorded(tmp_path / "run.rrd").of_blueprints("EyeControls3D:position")
    assert [0.0, -3.0, 4.0] in eyes


def test_a_reload_begins_another_recording(model, tmp_path):
    with open_context(model, record_to_rrd=tmp_path / "run.rrd") as sim:
        sim.step()
        sim.reload(mujoco.MjModel.from_xml_string(BOX))
        sim.step()
        assert len(sim.visualizers) == 1
    assert "/World/envs/env_0/ball" in Recorded(tmp_path / "run.rrd").entities
    second = Recorded(tmp_path / "run_2.rrd").entities
    assert "/World/envs/env_0/world/box" in second
    assert "/World/envs/env_0/ball" not in second


def test_live_and_file_at_the_same_time_hold_the_same(model, tmp_path):
    """Another of rerun's servers stands for the viewer that is open: it writes down what it is sent."""
    path, heard = tmp_path / "run.rrd", tmp_path / "heard.rrd"
    port = free_port()
    import subprocess

    from scene_data.visualizers.rerun_server import _program

    command = [_program(), "--bind", "127.0.0.1", "--port", f"{port}", "--save", str(heard)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as listener:
        try:
            deadline = time.monotonic() + 20.0
            while time.monotonic() < deadline:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            with open_context(model, record_to_rrd=path, connect_to=f"rerun+http://127.0.0.1:{port}/proxy") as sim:
                assert viewer_of(sim).address == f"rerun+http://127.0.0.1:{port}/proxy"
                for _ in range(3):
                    sim.step()
            sizes = [-1]
            while len(set(sizes[-4:])) > 1 or len(sizes) < 4:
                time.sleep(0.5)
                sizes.append(heard.stat().st_size)
        finally:
            listener.send_signal(2)
            listener.wait(10)
    here, there = Recorded(path), Recorded(heard)
    assert here.static.keys() == there.static.keys()
    assert here.rows == there.rows
    assert len(here.rows["/World/envs/env_0/ball", "Transform3D:translation"]) == 4


def test_the_command_line(capsys, tmp_path):
    path, recording = tmp_path / "table.xml", tmp_path / "run.rrd"
    path.write_text(XML)
    ports = ["--port", "0", "--grpc-port", "0"]
    main(["view", str(path), "--viewer", "rerun", "--headless", "--steps", "20", *ports, "--record", str(recording)])
    out = capsys.readouterr().out
    assert "http://127.0.0.1:" in out
    assert "run.rrd" in out
    assert "/World/envs/env_0/ball" in Recorded(recording).entities
    with pytest.raises(SystemExit):
        main(["view", str(path), "--viewer", "rerun", "--headless", "--steps", "2", *ports, "--screenshot", "x.png"])
    assert "'rerun' takes no screenshots" in capsys.readouterr().err
    assert not os.path.exists("x.png")
