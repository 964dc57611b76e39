"""The viser viewer: what it serves, what it sends, and what a browser shows of it."""

import gc
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable

import msgspec
import mujoco
import numpy as np
import pytest
import warp as wp
import zstandard

from scene_data import SimulationContext
from scene_data.camera import CameraCfg
from scene_data.cli import main
from scene_data.extra_geometry import GeometryBatch
from scene_data.registry import visualizers

viser = pytest.importorskip("viser")

from browser import CHROMIUM, Browser  # noqa: E402
from viser_rig import XML, Client, batched, nodes, open_context, viewer_of, wait_for_clients  # noqa: E402

from scene_data.visualizers import ViserVisualizer, ViserVisualizerCfg  # noqa: E402
from scene_data.visualizers.ports import PortInUseError  # noqa: E402

BOX = "<mujoco><worldbody><geom type='box' size='1 1 1'/></worldbody></mujoco>"

SOFT = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <site name="anchor" pos="0 0 2"/>
    <body name="bob" pos="0 0 1"><freejoint/><geom size=".1"/><site name="hook" pos="0 0 .1"/></body>
    <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".2 .2 .2" pos="1 0 2" dim="2" radius=".01" rgba="1 0 0 1">
      <edge equality="true"/></flexcomp>
  </worldbody>
  <tendon><spatial name="rope" width=".02" rgba="0 1 0 1"><site site="anchor"/><site site="hook"/></spatial></tendon>
</mujoco>
"""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind():
    before = set(threading.enumerate())
    yield
    SimulationContext.clear_instance()
    deadline = time.monotonic() + 5.0
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert set(threading.enumerate()) <= before


@pytest.fixture
def watched(monkeypatch):
    """Somebody looks."""
    monkeypatch.setattr(viser.ViserServer, "get_clients", lambda self: {0: None})


class TestServing:
    def test_it_listens_on_this_machine_alone_unless_told_otherwise(self, model):
        assert ViserVisualizerCfg().bind_address == "127.0.0.1"
        with open_context(model) as sim:
            viewer = viewer_of(sim)
            assert viewer.url == f"http://127.0.0.1:{viewer.server.get_port()}"
            assert viewer.address == viewer.url
            with socket.create_connection(("127.0.0.1", viewer.server.get_port()), timeout=5):
                pass

    def test_a_busy_port_is_one_clear_error_and_leaves_nothing_behind(self, model):
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = busy.getsockname()[1]
            with pytest.raises(PortInUseError, match=rf"127\.0\.0\.1:{port}: Address already in use.* another port"):
                open_context(model, port=port)
        assert SimulationContext.instance() is None

    def test_the_port_is_free_again_after_close(self, model):
        with open_context(model) as sim:
            port = viewer_of(sim).server.get_port()
        with open_context(model, port=port) as sim:
            assert viewer_of(sim).server.get_port() == port

    @pytest.mark.parametrize("settings", [{"port": 70000}, {"port": -1}, {"record_fps": 0.0}, {"speed": -1.0}])
    def test_what_cannot_be_used_is_refused(self, settings):
        with pytest.raises(ValueError, match=r"must"):
            ViserVisualizerCfg(**settings)

    def test_it_is_found_by_name(self):
        assert visualizers.get("viser") is ViserVisualizer
        assert ViserVisualizer.cfg_type is ViserVisualizerCfg
        assert ViserVisualizer.requires == ()


class TestNobodyLooks:
    def test_nothing_is_read_and_nothing_is_sent(self, model, monkeypatch):
        with open_context(model) as sim:
            viewer = viewer_of(sim)
            monkeypatch.setattr(sim.provider, "get_transforms", lambda *a, **k: pytest.fail("read"))
            monkeypatch.setattr(viewer.server.scene._websock_interface, "queue_message", lambda *a: pytest.fail("sent"))
            for _ in range(3):
                sim.step()
            assert sim.visualizers == (viewer,)

    def test_clients_that_come_and_go_leak_nothing(self, model):
        with open_context(model) as sim:
            viewer = viewer_of(sim)

            def come_and_go(times: int) -> None:
                for _ in range(times):
                    client = Client(viewer.url)
                    wait_for_clients(viewer, 1)
                    sim.step()
                    client.close()
                    wait_for_clients(viewer, 0)

            come_and_go(5)
            gc.collect()
            tracemalloc.start()
            threads = threading.active_count()
            before = tracemalloc.get_traced_memory()[0]
            buffered = len(viewer.server._websock_server._broadcast_buffer.message_from_id)
            come_and_go(20)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            assert threading.active_count() <= threads + 1
            assert len(viewer.server._websock_server._broadcast_buffer.message_from_id) <= buffered
            assert grown < 20 * 20_000, f"{grown / 20:.0f} bytes per client"


class TestWhatIsSent:
    def test_one_batch_for_each_geometry_over_all_environments(self, model, watched):
        with open_context(model, num_envs=5, env_spacing=3.0) as sim:
            viewer = viewer_of(sim)
            sphere = batched(viewer, "sphere")
            # The ball and the egg of every environment, in sizes of their own.
            assert sphere.batched_positions.shape == (10, 3)
            np.testing.assert_allclose(sphere.batched_scales[:2], [[0.3, 0.3, 0.3], [0.1, 0.2, 0.1]], atol=1e-6)
            np.testing.assert_array_equal(sphere.batched_colors[:2], [[0, 255, 0], [0, 204, 0]])
            assert len([name for name in nodes(viewer) if "box" in name]) == 3  # slabs, tiles, and what is hidden

    def test_poses_are_those_of_the_engine(self, model, watched):
        with open_context(model, num_envs=3, env_spacing=5.0) as sim:
            viewer = viewer_of(sim)
            sim.physics.batch.qpos[:, 0] = (0.5, -0.5, 1.0)
            sim.step()
            boxes = [handle for name, handle in nodes(viewer).items() if "moving" in name and name.endswith("box")]
            slab = next(handle for handle in boxes if isinstance(handle, viser.BatchedMeshHandle))
            expected = np.array([[-1.0, 0.5, 0.2], [-1.0, -0.5, 0.2], [-1.0, 1.0, 0.2]])
            # Two columns, the first row further along +Y, the last row not full.
            offsets = np.array([[-2.5, 2.5, 0.0], [2.5, 2.5, 0.0], [-2.5, -2.5, 0.0]])
            np.testing.assert_allclose(slab.batched_positions, expected + offsets, atol=1e-5)
            np.testing.assert_allclose(slab.batched_wxyzs, [[1.0, 0.0, 0.0, 0.0]] * 3, atol=1e-6)

    def test_chosen_environments_in_their_order(self, model, watched):
        with open_context(model, num_envs=4, env_spacing=0.0, visible_env_indices=[3, 1]) as sim:
            sim.physics.batch.qpos[:, 1] = (0.0, 0.1, 0.2, 0.3)
            sim.step()
            sphere = batched(viewer_of(sim), "sphere")
            np.testing.assert_allclose(sphere.batched_positions[::2, 1], [0.3, 0.1], atol=1e-5)

    def test_no_environment_shows_nothing(self, model, watched):
        with open_context(model, num_envs=2, max_visible_envs=0) as sim:
            sim.step()
            assert [name for name in nodes(viewer_of(sim)) if "moving" in name] == []
            assert len(sim.visualizers) == 1

    def test_updates_send_poses_and_never_meshes_and_nothing_where_nothing_moves(self, model):
        with open_context(model, num_envs=4) as sim:
            viewer = viewer_of(sim)
            client = Client(viewer.url)
            wait_for_clients(viewer, 1)
            sim.step()
            client.receive()
            first = client.nbytes
            sim.physics.batch.qpos[:, 1] = 0.5
            sim.step()
            client.receive()
            moved = client.nbytes - first
            # 4 environments with 2 round instances: positions alone have changed.
            assert 96 <= moved < 3000, moved
            sim.step()
            client.receive()
            assert client.nbytes - first - moved < 1000, "the status alone"
            client.close()
            wait_for_clients(viewer, 0)

    def test_a_pose_that_is_not_finite_hides_its_instance_and_no_other(self, model, watched, monkeypatch):
        with open_context(model, num_envs=2, env_spacing=0.0) as sim:
            viewer = viewer_of(sim)
            sphere = batched(viewer, "sphere")
            get_transforms = sim.provider.get_transforms

            def diverged(output, *arguments, **settings):
                get_transforms(output, *arguments, **settings)
                positions = output.positions.numpy().copy()
                positions[sim.physics.model.body("ball").id] = np.nan
                output.positions = wp.array(positions, dtype=wp.vec3f)
                return True

            monkeypatch.setattr(sim.provider, "get_transforms", diverged)
            sim.step()
            assert np.isfinite(sphere.batched_positions).all()
            assert (sphere.batched_scales[:2] == 0.0).all()
            assert (sphere.batched_scales[2:] > 0.0).all()
            monkeypatch.setattr(sim.provider, "get_transforms", get_transforms)
            sim.step()
            assert (sphere.batched_scales > 0.0).all()
            np.testing.assert_allclose(sphere.batched_positions[0], [1.0, 0.0, 0.3], atol=1e-6)

    def test_cloth_and_tendons_follow_the_engine(self, watched):
        soft = mujoco.MjModel.from_xml_string(SOFT)
        with open_context(soft, num_envs=2, env_spacing=4.0) as sim:
            viewer = viewer_of(sim)
            for _ in range(10):
                sim.step()
            points = sim.provider.get_geometry_points()
            cloth = nodes(viewer)["/scene/deforming/0"]
            shifts = np.array([[-2.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
            expected = [points[f"/World/envs/env_{env}/cloth"].numpy() + shifts[env] for env in range(2)]
            np.testing.assert_allclose(cloth.vertices, np.concatenate(expected), atol=1e-5)
            assert cloth.faces.max() == 31
            rope = nodes(viewer)["/scene/lines/0"]
            expected = [points[f"/World/envs/env_{env}/rope"].numpy() + shifts[env] for env in range(2)]
            np.testing.assert_allclose(rope.points, expected, atol=1e-5)
            assert rope.points[0, 1, 2] < 1.1, "the bob falls"
            assert rope.thickness == pytest.approx(0.04)

    def test_extra_geometry_comes_and_goes(self, model, watched):
        shown = [GeometryBatch.spheres([[0, 0, 1], [0, 0, 2]], 0.2, rgba=(1, 0, 0, 1), envs=[-1, 1])]
        shown.append(GeometryBatch.capsules([[0, 0, 0]], [[0, 0, 1]], 0.1, envs=0))
        with open_context(model, num_envs=2, env_spacing=3.0) as sim:
            sim.add_geometry_source(lambda: shown)
            sim.step()
            spheres = nodes(viewer_of(sim))["/scene/markers/sphere"]
            present = spheres.batched_scales[:, 0] > 0.0
            expected = [[-1.5, 0, 1], [1.5, 0, 1], [1.5, 0, 2]]
            np.testing.assert_allclose(spheres.batched_positions[present], expected, atol=1e-5)
            caps = nodes(viewer_of(sim))["/scene/markers/cap"]
            np.testing.assert_allclose(caps.batched_positions[:2], [[-1.5, 0, 1], [-1.5, 0, 0]], atol=1e-5)
            shown.clear()
            sim.step()
            assert (spheres.batched_scales == 0.0).all()

    def test_reload_shows_the_new_model_and_nothing_of_the_old(self, model, watched):
        with open_context(model) as sim:
            viewer = viewer_of(sim)
            sim.reload(mujoco.MjModel.from_xml_string(BOX))
            sim.step()
            assert sim.visualizers == (viewer,)
            shapes = [name for name in nodes(viewer) if name.count("/") == 3 and "_" in name]
            assert len(shapes) == 1
            assert shapes[0].endswith("box")


class TestPanel:
    def test_pause_step_and_play(self, model, watched):
        with open_context(model, start_paused=True) as sim:
            panel = viewer_of(sim)._panel
            stepping = threading.Thread(target=lambda: [sim.step() for _ in range(2)])
            stepping.start()
            time.sleep(0.2)
            assert sim.simulation_time_ns == 0
            panel.ask_for_step()
            deadline = time.monotonic() + 20.0
            while sim.simulation_time_ns == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.2)
            assert sim.simulation_time_ns == 10_000_000
            panel.set_paused(False)
            stepping.join(20.0)
            assert sim.simulation_time_ns == 20_000_000

    def test_reset_speed_groups_and_spacing(self, model, watched):
        with open_context(model, num_envs=2, env_spacing=2.0, speed=0.5) as sim:
            viewer = viewer_of(sim)
            assert viewer.real_time_factor() == 0.5
            assert viewer._scene.groups == {0: True, 3: False}
            hidden = [handle for name, handle in nodes(viewer).items() if name.count("/") == 3 and not handle.visible]
            assert hidden
            viewer._panel.groups[3] = True
            viewer._panel.spacing = 6.0
            sim.step()
            assert all(handle.visible for name, handle in nodes(viewer).items() if name != "/scene/frames")
            sphere = batched(viewer, "sphere")
            assert sphere.batched_positions[2, 0] - sphere.batched_positions[0, 0] == pytest.approx(6.0)
            viewer._panel.reset_wanted = True
            sim.step()
            assert sim.simulation_time_ns == 0

    def test_what_is_switched_while_a_switch_is_followed_is_not_lost(self, model, watched, monkeypatch):
        with open_context(model) as sim:
            viewer = viewer_of(sim)
            show_frames = viewer._scene.show_frames

            def show(is_shown):
                show_frames(is_shown)
                # Another thread brings a second click just now.
                viewer._panel.shows_frames = False

            monkeypatch.setattr(viewer._scene, "show_frames", show)
            viewer._panel.shows_frames = True
            sim.step()
            assert viewer._scene.shows_frames
            sim.step()
            assert not viewer._scene.shows_frames

    def test_images_and_plots(self, model, watched):
        plots = {"height": lambda: 1.5}
        with open_context(
            model, 2, (CameraCfg("top", 16, 12),), camera_images=("top",), live_plots=plots, image_frequency=1e6
        ) as sim:
            sim.step()
            panel = viewer_of(sim)._panel
            image = panel._images["top"].image
            frames = sim.cameras["top"].data.lease("rgb").numpy()
            np.testing.assert_array_equal(image, np.concatenate(list(frames), axis=1))
            panel.plots._due = np.inf
            sim.step()
            panel.plots._due = 0.0
            sim.step()
            times, values = panel.plots.values("height")
            assert times == pytest.approx([0.01, 0.03]), "two points come no closer than people see"
            assert values == [[1.5, 1.5]]


def test_a_recording_holds_the_scene_and_its_motion(model, tmp_path):
    path = tmp_path / "deep" / "run.viser"
    with open_context(model, record_to_viser=path, record_fps=20.0) as sim:
        for _ in range(50):
            sim.physics.batch.qpos[:, 0] += 0.01
            sim.step()
        assert not path.exists()
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    inner = zstandard.ZstdDecompressor().decompress(data[8:], max_output_size=size)
    length = int.from_bytes(inner[:8], "little")
    recording = msgspec.msgpack.decode(inner[8 : 8 + length])
    assert recording["durationSeconds"] == pytest.approx(0.5)
    times = sorted({round(seconds, 3) for seconds, _ in recording["messages"]})
    np.testing.assert_allclose(times, np.arange(11) * 0.05, atol=1e-3)


def test_the_command_line_says_what_a_viewer_lacks(capsys, model, tmp_path):
    path = tmp_path / "table.xml"
    path.write_text(XML)
    with pytest.raises(SystemExit) as stop:
        main(["view", str(path), "--headless"])
    assert stop.value.code == 2
    assert "--headless needs --steps" in capsys.readouterr().err
    main(["view", str(path), "--headless", "--steps", "20", "--port", "0", "--record", str(tmp_path / "run.viser")])
    out = capsys.readouterr().out
    assert "http://127.0.0.1:" in out
    assert "run.viser" in out
    with pytest.raises(SystemExit):
        main(["view", str(path), "--viewer", "crystal_ball"])
    assert "viewer 'crystal_ball'. Known:" in capsys.readouterr().err


def test_ctrl_c_ends_the_command_cleanly_and_keeps_the_recording(tmp_path):
    model, recording = tmp_path / "table.xml", tmp_path / "run.viser"
    model.write_text(XML)
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from scene_data.cli import main\n"
        f"main(['view', {str(model)!r}, '--port', '0', '--record', {str(recording)!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        while not lines or "Ctrl-C ends it" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended by itself"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(20) == 0
    assert "http://127.0.0.1:" in "".join(lines)
    assert "steps" in rest
    assert recording.stat().st_size > 1000


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
class TestSeen:
    def test_colours_and_places_in_a_picture(self, model):
        with open_context(model, eye=(0.0, -0.01, 4.0), lookat=(0.0, 0.0, 0.0)) as sim:
            sim.render()
            picture = viewer_of(sim).screenshot(240, 160).astype(int)
        red, green, blue = (picture[..., channel] for channel in range(3))
        focal = 80.0 / np.tan(np.radians(22.5))

        def middle(mask: np.ndarray) -> tuple[float, float]:
            rows, columns = np.nonzero(mask)
            assert len(rows) > 20, "it is not seen"
            return float(columns.mean()), float(rows.mean())

        x, y = middle((red > 200) & (green < 100) & (blue < 100))
        assert x == pytest.approx(120 - focal / 3.7, abs=3)
        assert y == pytest.approx(80, abs=3)
        x, y = middle((green > 150) & (red < green - 40) & (blue < green - 40))
        assert x == pytest.approx(120 + focal / 3.5, abs=6)
        x, y = middle((blue > 150) & (red < 100) & (green < 100))
        assert (x, y) == pytest.approx((120, 80), abs=4)
        x, y = middle((red > 200) & (blue > 200) & (green < 120))
        assert y == pytest.approx(80 - focal / 3.5, abs=4)
        # The tile shows both colours of its texture, each on the right half of its diagonal.
        tile = (120, 80 + 0.7 * focal / 3.75)
        half = 0.15 * focal / 3.75
        colours = [picture[round(tile[1] + dy * half), round(tile[0] + dx * half)] for dx in (-1, 1) for dy in (-1, 1)]
        yellow = [colour[0] > colour[2] + 40 for colour in colours]
        cyan = [colour[2] > colour[0] + 40 for colour in colours]
        assert sum(yellow) == sum(cyan) == 2
        assert yellow[0] == yellow[3]

    def test_primitives_of_every_kind_are_seen_with_a_texture(self):
        kinds = {"sphere": ".3", "ellipsoid": ".2 .3 .2", "cylinder": ".3 .1", "capsule": ".2 .2", "box": ".3 .3 .1"}
        geoms = "".join(
            f'<geom type="{kind}" size="{size}" pos="{place - 2} 0 .3" material="red"/>'
            for place, (kind, size) in enumerate(kinds.items())
        )
        model = mujoco.MjModel.from_xml_string(
            '<mujoco><asset><texture name="red" type="2d" builtin="flat" width="8" height="8" rgb1="1 0 0"/>'
            f'<material name="red" texture="red"/></asset><worldbody>{geoms}</worldbody></mujoco>'
        )
        with open_context(model, eye=(0.0, -0.01, 6.0), lookat=(0.0, 0.0, 0.0)) as sim:
            sim.render()
            picture = viewer_of(sim).screenshot(300, 100).astype(int)
        is_red = (picture[..., 0] > 150) & (picture[..., 1:] < 110).all(axis=-1)
        focal = 50.0 / np.tan(np.radians(22.5))
        for place, kind in enumerate(kinds):
            column = round(150 + focal * (place - 2) / 5.7)
            assert is_red[45:55, column - 3 : column + 4].any(), kind

    def test_the_page_shows_the_scene_and_its_panel_and_follows_the_motion(self, model):
        with open_context(model, eye=(0.0, -0.01, 4.0), lookat=(0.0, 0.0, 0.0), speed=None) as sim:
            viewer = viewer_of(sim)
            browser = Browser(760, 240)
            try:
                page = browser.page(viewer.url)
                wait_for_clients(viewer, 1)
                sim.step()
                page.wait_until("document.body.innerText.includes('1 environment')")
                text = page.evaluate("document.body.innerText")
                for word in ("table", "Pause", "Step", "Reset", "Speed", "View", "Group 3"):
                    assert word in text
                # On machines without a graphics card a note lies over the scene.
                page.evaluate("document.querySelectorAll('[class*=Notification-close]').forEach(each => each.click())")
                before = _ball(page.wait_for(_rests(lambda ball: True), 90.0))
                assert before is not None, "the ball is not seen"
                sim.physics.batch.qpos[:, 1] = 0.5
                sim.step()
                after = _ball(page.wait_for(_rests(lambda ball: ball[1] < before[1] - 20), 60.0))
                assert after is not None
                assert after[1] < before[1] - 20, "the ball has not moved up"
                assert after[0] == pytest.approx(before[0], abs=10)
                page.close()
            finally:
                browser.close()


def _ball(picture: np.ndarray) -> tuple[float, float] | None:
    """Where the green ball is on the left of the page; None where it is not seen clearly."""
    red, green, blue = (picture[:, :430, channel].astype(int) for channel in range(3))
    rows, columns = np.nonzero((green > 120) & (red < green - 40) & (blue < green - 40))
    return (float(columns.mean()), float(rows.mean())) if len(rows) > 300 else None


def _rests(is_there: Callable[[tuple[float, float]], bool]) -> Callable[[np.ndarray], bool]:
    """Says of one picture after the other whether the ball is there, and where it was in the one before."""
    last: list[tuple[float, float]] = []

    def check(picture: np.ndarray) -> bool:
        ball = _ball(picture)
        if ball is None or not is_there(ball):
            last.clear()
            return False
        rests = bool(last) and np.allclose(ball, last[-1], atol=0.5)
        last.append(ball)
        return rests

    return check
