"""What viser shows beside poses: contacts, frames, changing terrain, textures; and that updates send poses alone."""

import threading

import mujoco
import numpy as np
import pytest

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.extra_geometry import GeometryBatch
from scene_data.visualizers.layout import EnvironmentsError, environments_text, grid_offsets, parse_environments

viser = pytest.importorskip("viser")

from browser import CHROMIUM, Browser  # noqa: E402
from viser._messages import SceneNodeUpdateMessage  # noqa: E402
from viser_rig import Client, batched, nodes, open_context, viewer_of, wait_for_clients  # noqa: E402

from scene_data.visualizers import ViserVisualizerCfg  # noqa: E402
from scene_data.visualizers.viser_updates import send_update  # noqa: E402

RESTING = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="0 0 .1"/>
    <body name="ball" pos="0 0 .1"><freejoint/><geom size=".1" mass="2"/></body>
  </worldbody>
</mujoco>
"""

# Boxes, spheres and ellipsoids of several sizes, textured and plain, and a terrain.
MIXED = """
<mujoco>
  <asset>
    <texture name="dots" type="2d" builtin="checker" width="32" height="32" rgb1="1 0 0" rgb2="0 0 1"/>
    <texture name="die" type="cube" builtin="flat" mark="edge" width="32" height="32" rgb1="1 1 0" markrgb="0 0 0"/>
    <material name="dots" texture="dots"/>
    <material name="tiles" texture="dots" texuniform="true"/>
    <material name="die" texture="die"/>
    <hfield name="terrain" nrow="5" ncol="4" size="2 2 1 .1" elevation="0 0 0 0  0 1 1 0  0 1 1 0  0 0 0 0  0 0 0 0"/>
  </asset>
  <worldbody>
    <geom name="terrain" type="hfield" hfield="terrain" pos="0 0 -2"/>
    <geom name="painted" type="hfield" hfield="terrain" pos="9 0 -2" material="dots"/>
    <body name="a"><joint type="slide"/>
      <geom name="die_1" type="box" size=".1 .1 .1" material="die"/>
      <geom name="die_2" type="box" size=".1 .2 .3" pos="1 0 0" material="die"/>
      <geom name="ball" type="sphere" size=".2" pos="2 0 0" material="dots"/>
      <geom name="egg" type="ellipsoid" size=".1 .2 .3" pos="3 0 0" material="dots"/>
      <geom name="slab_1" type="box" size=".1 .1 .1" pos="4 0 0" material="tiles"/>
      <geom name="slab_2" type="box" size=".2 .1 .1" pos="5 0 0" material="tiles"/>
      <geom name="plain_1" type="box" size=".1 .1 .1" pos="6 0 0"/>
      <geom name="plain_2" type="box" size=".3 .1 .1" pos="7 0 0"/>
      <geom name="ghost" type="box" size=".3 .1 .1" pos="8 0 0" group="3"/>
    </body>
  </worldbody>
</mujoco>
"""

ENGINES = ("mujoco", "mujoco_batch", "mujoco_warp")


@pytest.fixture
def watched(monkeypatch):
    """Somebody looks."""
    monkeypatch.setattr(viser.ViserServer, "get_clients", lambda self: {0: None})


@pytest.fixture(autouse=True)
def _closed():
    yield
    SimulationContext.clear_instance()


class TestContacts:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_a_ball_at_rest_weighs_what_it_weighs(self, engine):
        physics = MujocoPhysicsCfg(mujoco.MjModel.from_xml_string(RESTING), engine, num_envs=3)
        with SimulationContext(SimulationCfg(physics)) as sim:
            for _ in range(300):
                sim.step()
            contacts = sim.provider.get_contacts(np.array([2, 1]))
            assert contacts is not None
            assert sorted(contacts.envs.tolist()) == [1, 2]
            np.testing.assert_allclose(contacts.positions, np.zeros((2, 3)), atol=2e-3)
            np.testing.assert_allclose(contacts.normals, [[0, 0, 1]] * 2, atol=1e-5)
            np.testing.assert_allclose(contacts.forces, [[0, 0, 2 * 9.81]] * 2, atol=0.05)
            assert len(sim.provider.get_contacts(np.zeros(0, np.int64))) == 0

    def test_they_are_drawn_where_they_are_when_switched_on_and_not_read_before(self, watched, monkeypatch):
        model = mujoco.MjModel.from_xml_string(RESTING)
        with open_context(model, num_envs=2, env_spacing=4.0) as sim:
            viewer = viewer_of(sim)
            asked = []
            get_contacts = sim.provider.get_contacts
            monkeypatch.setattr(sim.provider, "get_contacts", lambda envs: asked.append(envs) or get_contacts(envs))
            for _ in range(300):
                sim.step()
            assert asked == []
            viewer._panel.shows_contacts = True
            sim.step()
            discs = nodes(viewer)["/scene/contacts/cylinder"]
            shown = discs.batched_scales[:, 0] > 0.0
            # A disc and the shaft of an arrow in each environment.
            assert shown.sum() == 4
            places = discs.batched_positions[shown][[0, 2]]
            np.testing.assert_allclose(places, grid_offsets(2, 4.0), atol=3e-3)
            heads = nodes(viewer)["/scene/contacts/sphere"]
            tips = heads.batched_positions[heads.batched_scales[:, 0] > 0.0]
            assert (tips[:, 2] > 0.05).all(), "the ground pushes upwards"
            viewer._panel.shows_contacts = False
            sim.step()
            assert (discs.batched_scales == 0.0).all()

    def test_an_engine_that_tells_none_has_no_switch(self, watched, monkeypatch):
        model = mujoco.MjModel.from_xml_string(RESTING)
        monkeypatch.setattr("scene_data.backends.MujocoBatchSceneDataBackend.get_contacts", lambda self, envs: None)
        with open_context(model) as sim:
            labels = [handle.label for handle in viewer_of(sim).server.gui._gui_input_handle_from_uuid.values()]
            assert "Body frames" in labels
            assert "Contacts" not in labels


def test_frames_stand_at_the_bodies_while_they_are_shown(watched):
    model = mujoco.MjModel.from_xml_string(RESTING)
    with open_context(model, num_envs=2, env_spacing=0.0) as sim:
        viewer = viewer_of(sim)
        frames = nodes(viewer)["/scene/frames"]
        assert not frames.visible
        sim.physics.batch.qpos[:, 2] = (3.0, 4.0)
        sim.step()
        assert (frames.batched_positions[:, 2] < 1.0).all(), "nothing is sent of what is hidden"
        viewer._panel.shows_frames = True
        sim.step()
        assert frames.visible
        bodies = frames.batched_positions.reshape(2, 2, 3)
        np.testing.assert_allclose(bodies[:, 1, 2], (3.0, 4.0), atol=1e-3)
        np.testing.assert_allclose(bodies[:, 0], 0.0)


class TestTerrain:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_heights_that_the_user_changes_are_shown(self, engine, watched):
        physics = MujocoPhysicsCfg(mujoco.MjModel.from_xml_string(MIXED), engine)
        cfg = SimulationCfg(physics, visualizer_cfgs=[ViserVisualizerCfg(port=0, update_frequency=None)])
        with SimulationContext(cfg) as sim:
            viewer = viewer_of(sim)
            terrains = [handle for name, handle in nodes(viewer).items() if name.endswith("height_field")]
            (plain,) = (handle for handle in terrains if isinstance(handle, viser.BatchedMeshHandle))
            (painted,) = (handle for handle in terrains if isinstance(handle, viser.BatchedGlbHandle))
            assert plain.vertices[:20, 2].max() == 1.0
            before, image = plain.vertices, painted.glb_data
            sim.step()
            assert plain.vertices is before
            data = np.linspace(0.0, 0.5, 20, dtype=np.float32)
            if engine == "mujoco_warp":
                sim.physics.warp_model.hfield_data.assign(data)
            else:
                sim.physics.model.hfield_data[:] = data
            sim.step()
            np.testing.assert_allclose(plain.vertices[:20, 2], data, atol=1e-6)
            np.testing.assert_array_equal(plain.vertices[:20, :2], before[:20, :2])
            assert painted.glb_data != image
            sent = plain.vertices, painted.glb_data
            sim.step()
            assert (plain.vertices is sent[0], painted.glb_data is sent[1]) == (True, True), "sent once"


def test_sizes_share_one_geometry_with_a_texture_too_unless_it_lies_at_its_own_size(watched):
    with open_context(mujoco.MjModel.from_xml_string(MIXED)) as sim:
        moving = {name: handle for name, handle in nodes(viewer_of(sim)).items() if "/moving/" in name}
        counts = sorted((len(h.batched_positions), isinstance(h, viser.BatchedGlbHandle)) for h in moving.values())
        # Two dice, ball and egg in one each; the two slabs with a texture of its own scale apart; plain boxes, a ghost.
        assert counts == [(1, False), (1, True), (1, True), (2, False), (2, True), (2, True)]
        dice = next(h for h in moving.values() if len(h.batched_positions) == 2 and h.batched_scales[1, 2] > 0.25)
        assert dice.batched_scales[1].tolist() == pytest.approx([0.1, 0.2, 0.3])


LIMP = """
<mujoco>
  <worldbody>
    <body name="rod" pos="0 0 1"><joint type="slide" axis="0 0 1"/><geom size=".05"/>
      <body name="tip" pos=".5 0 0"><joint axis="0 1 0"/><geom size=".05"/></body></body>
    <flexcomp name="cable" type="grid" count="5 1 1" spacing=".1 .1 .1" pos="1 0 2" dim="1" radius=".01"/>
    <flexcomp name="jelly" type="grid" count="3 3 3" spacing=".1 .1 .1" pos="2 0 2" dim="3" radius=".01">
      <edge equality="true"/></flexcomp>
  </worldbody>
  <deformable>
    <skin name="sleeve" vertex="0 0 1.1  .5 0 1.1  0 .1 1.1  .5 .1 1.1" face="0 1 2  1 3 2" rgba="1 0 1 1">
      <bone body="rod" bindpos="0 0 1" bindquat="1 0 0 0" vertid="0 2" vertweight="1 1"/>
      <bone body="tip" bindpos=".5 0 1" bindquat="1 0 0 0" vertid="1 3" vertweight="1 1"/>
    </skin>
  </deformable>
</mujoco>
"""


class TestDeforming:
    @pytest.mark.parametrize("engine", ["mujoco", "mujoco_batch"])
    def test_skins_cables_and_solids_follow_the_engine(self, engine, watched):
        model = mujoco.MjModel.from_xml_string(LIMP)
        settings = ViserVisualizerCfg(port=0, update_frequency=None, env_spacing=4.0)
        cfg = SimulationCfg(MujocoPhysicsCfg(model, engine, num_envs=2), visualizer_cfgs=[settings])
        with SimulationContext(cfg) as sim:
            viewer = viewer_of(sim)
            parts = {
                "cable": (nodes(viewer)["/scene/lines/0"], "points"),
                "jelly": (nodes(viewer)["/scene/deforming/1"], "vertices"),
                "sleeve": (nodes(viewer)["/scene/deforming/2"], "vertices"),
            }
            first = {name: getattr(handle, values).copy() for name, (handle, values) in parts.items()}
            for _ in range(20):
                sim.step()
            points = sim.provider.get_geometry_points()
            for name, (handle, values) in parts.items():
                expected = np.stack([points[f"/World/envs/env_{env}/{name}"].numpy() for env in range(2)])
                expected = expected + grid_offsets(2, 4.0)[:, None]
                if values == "points":
                    expected = np.stack((expected[:, :-1], expected[:, 1:]), axis=2)
                shown = getattr(handle, values)
                np.testing.assert_allclose(shown, expected.reshape(shown.shape), atol=1e-5, err_msg=name)
                assert (first[name] - shown)[..., 2].max() > 1e-3, f"{name} has not fallen"

    def test_what_is_hidden_is_not_sent_until_it_is_shown(self, watched):
        with open_context(mujoco.MjModel.from_xml_string(LIMP)) as sim:
            viewer = viewer_of(sim)
            jelly = nodes(viewer)["/scene/deforming/1"]
            viewer._panel.groups[0] = False
            sim.step()
            before = jelly.vertices
            for _ in range(10):
                sim.step()
            assert jelly.vertices is before
            viewer._panel.groups[0] = True
            sim.step()
            points = sim.provider.get_geometry_points()["/World/envs/env_0/jelly"].numpy()
            np.testing.assert_allclose(jelly.vertices, points, atol=1e-6)


class TestUpdates:
    def test_they_hold_poses_of_what_moves_and_is_seen_and_nothing_else(self):
        with open_context(mujoco.MjModel.from_xml_string(MIXED), num_envs=8) as sim:
            viewer = viewer_of(sim)
            client = Client(viewer.url)
            wait_for_clients(viewer, 1)
            sim.step()
            client.receive()
            client.messages.clear()
            first = client.nbytes
            rounds = 5
            for round in range(rounds):
                sim.physics.batch.qpos[:, 0] = round + 1.0
                sim.step()
                client.receive(0.3)
            updates = client.scene_updates()
            assert {message["type"] for message in client.messages} <= {"SceneNodeUpdateMessage", "GuiUpdateMessage"}
            assert all(set(message["updates"]) == {"batched_positions", "batched_wxyzs"} for message in updates)
            moving = [name for name, handle in nodes(viewer).items() if "/moving/" in name and handle.visible]
            assert len(moving) == 5
            assert sorted(message["name"] for message in updates) == sorted(moving * rounds)
            poses = 8 * 8 * (12 + 16) * rounds
            assert poses <= client.nbytes - first < poses + rounds * 1500
            client.close()
            wait_for_clients(viewer, 0)

    def test_what_was_handed_over_is_not_written_to_any_more(self, watched):
        with open_context(mujoco.MjModel.from_xml_string(MIXED)) as sim:
            ball = batched(viewer_of(sim), "sphere")
            sim.physics.batch.qpos[:, 0] = 1.0
            sim.step()
            handed_over = ball.batched_positions, ball.batched_wxyzs
            before = [each.copy() for each in handed_over]
            sim.physics.batch.qpos[:, 0] = 2.0
            sim.step()
            np.testing.assert_array_equal(handed_over[0], before[0])
            np.testing.assert_array_equal(handed_over[1], before[1])
            assert ball.batched_positions[0, 2] != before[0][0, 2]

    def test_a_page_that_comes_later_sees_the_present_poses(self):
        with open_context(mujoco.MjModel.from_xml_string(MIXED)) as sim:
            viewer = viewer_of(sim)
            client = Client(viewer.url)
            wait_for_clients(viewer, 1)
            sim.physics.batch.qpos[:, 0] = 3.0
            sim.step()
            late = Client(viewer.url)
            wait_for_clients(viewer, 2)
            late.receive()
            names = [message["name"] for message in late.scene_updates()]
            assert len(names) == len(set(names)) == 5, "the latest update of each, and no older one"
            box = batched(viewer, "sphere")
            assert box.batched_positions[0, 2] == pytest.approx(3.0, abs=1e-3)
            for each in (client, late):
                each.close()
            wait_for_clients(viewer, 0)


RISING = """
<mujoco>
  <asset><hfield name="terrain" nrow="4" ncol="4" size="1 1 1 .05" elevation="0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"/></asset>
  <worldbody>
    <geom type="hfield" hfield="terrain" rgba="0 .7 0 1" friction="1"/>
    <body name="block" pos="0 0 .06"><freejoint/><geom type="box" size=".3 .3 .05" rgba=".2 .2 .9 1" mass="1"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
def test_a_page_shows_forces_and_rising_ground_while_the_simulation_runs():
    model = mujoco.MjModel.from_xml_string(RISING)
    physics = MujocoPhysicsCfg(model, "mujoco")
    view = ViserVisualizerCfg(port=0, update_frequency=20.0, speed=1.0, eye=(0.0, -5.0, 0.5), lookat=(0.0, 0.0, 0.5))
    with SimulationContext(SimulationCfg(physics, visualizer_cfgs=[view])) as sim:
        viewer = viewer_of(sim)
        browser = Browser(700, 300)
        stop = threading.Event()
        training = threading.Thread(target=lambda: [sim.step() for _ in iter(stop.is_set, True)])
        try:
            training.start()
            page = browser.page(viewer.url)
            page.wait_until("document.body && document.body.innerText.includes('1 environment')")
            page.evaluate("document.querySelectorAll('[class*=Notification-close]').forEach(each => each.click())")
            viewer._panel.shows_contacts = True
            picture = page.wait_for(lambda picture: _count(picture, 0) > 30 and _count(picture, 1) > 300, 90.0)
            assert _count(picture, 0) > 30, "no force is seen"
            flat = _count(picture, 1)
            sim.physics.model.hfield_data[:4] = sim.physics.model.hfield_data[-4:] = 1.0
            picture = page.wait_for(lambda picture: _count(picture, 1) > 3 * flat, 60.0)
            assert _count(picture, 1) > 3 * flat, "the ground has not risen"
            page.close()
        finally:
            stop.set()
            if training.ident is not None:
                training.join(20.0)
            browser.close()


def _count(picture: np.ndarray, channel: int) -> int:
    """Pixels left of the panel in which this channel is far above the others."""
    shown = picture[:, :370].astype(int)
    others = np.delete(shown, channel, axis=2)
    return int((shown[..., channel] > others.max(axis=2) + 50).sum())


def test_markers_are_drawn_beside_contacts(watched):
    with open_context(mujoco.MjModel.from_xml_string(RESTING)) as sim:
        sim.add_geometry_source(lambda: GeometryBatch.spheres([[0, 0, 1]], 0.2))
        viewer_of(sim)._panel.shows_contacts = True
        sim.step()
        assert (nodes(viewer_of(sim))["/scene/markers/sphere"].batched_scales[:, 0] > 0.0).sum() == 1


def test_opacities_of_markers_are_sent_only_when_they_change(watched):
    """A page builds the mesh anew for each, and shows nothing meanwhile."""
    alpha, count = 1.0, 1
    with open_context(mujoco.MjModel.from_xml_string(RESTING)) as sim:
        sim.add_geometry_source(
            lambda: GeometryBatch.spheres(np.arange(3.0 * count).reshape(-1, 3), 0.2, rgba=(1, 0, 0, alpha))
        )
        sim.step()
        spheres = nodes(viewer_of(sim))["/scene/markers/sphere"]
        assert spheres.batched_opacities is None
        count = 5
        sim.step()
        assert (spheres.batched_scales[:, 0] > 0.0).sum() == 5
        assert spheres.batched_opacities is None
        alpha = 0.5
        sim.step()
        np.testing.assert_allclose(spheres.batched_opacities, [0.5] * 5 + [1.0] * 11)
        sent = spheres.batched_opacities
        sim.step()
        assert spheres.batched_opacities is sent
        alpha = 1.0
        sim.step()
        assert spheres.batched_opacities is None


def test_positions_of_a_body_are_plotted(watched):
    with open_context(mujoco.MjModel.from_xml_string(RESTING), num_envs=2, visible_env_indices=[1]) as sim:
        panel = viewer_of(sim)._panel
        sim.physics.batch.qpos[:, :3] = [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)]
        panel.plotted_body = "ball"
        panel.plots._due = 0.0
        sim.step()
        times, values = panel.plots.values("ball [m]")
        assert times == pytest.approx([0.002])
        np.testing.assert_allclose(np.ravel(values), (4.0, 5.0, 6.0), atol=1e-3)
        panel.plots._due = 0.0
        sim.render()
        assert len(times) == len(values[0]) == 1, "no time has passed"
        panel.plotted_body = None
        panel.plots._due = 0.0
        sim.step()
        assert panel.plots.titles == ()


class TestChosenEnvironments:
    @pytest.mark.parametrize(
        ("text", "envs"),
        [("all", [0, 1, 2, 3, 4]), ("0-2", [0, 1, 2]), ("3, 0-1", [3, 0, 1]), (" 4 ", [4]), ("1,1-2", [1, 2])],
    )
    def test_text_names_environments(self, text, envs):
        assert parse_environments(text, 5) == envs
        assert parse_environments(environments_text(envs, 5), 5) == envs

    @pytest.mark.parametrize("text", ["", "5", "0-9", "a", "2-", "-1", "3-1"])
    def test_what_names_none_is_refused(self, text):
        with pytest.raises(EnvironmentsError, match="below 5"):
            parse_environments(text, 5)

    def test_the_panel_shows_others(self, watched):
        with open_context(mujoco.MjModel.from_xml_string(RESTING), num_envs=4, env_spacing=0.0) as sim:
            viewer = viewer_of(sim)
            sim.physics.batch.qpos[:, 2] = (1.0, 2.0, 3.0, 4.0)
            viewer._panel.env_ids = [3, 1]
            sim.step()
            assert viewer.env_ids.tolist() == [3, 1]
            np.testing.assert_allclose(batched(viewer, "sphere").batched_positions[:, 2], (4.0, 2.0), atol=1e-3)


@pytest.mark.parametrize("is_binary", [True, False], ids=["page", "recording"])
def test_updates_are_what_viser_itself_would_send(is_binary):
    arrays = {
        "batched_positions": np.arange(6, dtype=np.float32).reshape(2, 3),
        "batched_wxyzs": np.arange(8, dtype=np.float32).reshape(2, 4),
        "batched_colors": np.array([[1, 2, 3], [4, 5, 6]], np.uint8),
    }
    server = viser.ViserServer("127.0.0.1", 0, verbose=False)
    try:
        triangle = np.eye(3, dtype=np.float32), np.array([[0, 1, 2]], np.uint32)
        places = np.zeros((2, 4), np.float32), np.zeros((2, 3), np.float32)
        handle = server.scene.add_batched_meshes_simple("/things", *triangle, *places, lod="off")
        queued = []
        handle._impl.api._queue_scene_message = queued.append
        send_update(handle, **arrays)
    finally:
        server.stop()
    (ours,) = queued
    theirs = SceneNodeUpdateMessage("/things", arrays)
    assert ours.redundancy_key() == theirs.redundancy_key()
    assert ours.entity_state_key() == theirs.entity_state_key()
    sent = []
    for message in (ours, theirs):
        buffers = [] if is_binary else None
        content = message.as_serializable_dict(buffers)
        if buffers is None:
            content["updates"] = {name: values.tobytes() for name, values in content["updates"].items()}
        sent.append((content, [buffer.tobytes() for buffer in buffers or ()]))
        assert b"".join(buffers or ()) == b"".join(sent[-1][1])
    assert sent[0] == sent[1]
