"""The life of a SimulationContext with viewers, behaviour by behaviour as users of Isaac Lab know it."""

import logging
import socket
import threading
import time
import urllib.request
from types import SimpleNamespace
from xml.etree import ElementTree

import mujoco
import pytest
from listening import wait_until

from scene_data import SceneDataProvider, SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg, MujocoSceneDataBackend
from scene_data.camera import CameraCfg
from scene_data.extra_geometry import GeometryBatch
from scene_data.formats import SceneDataFormat
from scene_data.registry import visualizers
from scene_data.visualizers import BaseVisualizer, VisualizerCfg

XML = """
<mujoco>
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <body name="slab"><joint type="slide" axis="1 0 0"/><geom type="box" size=".3 .3 .1" rgba=".9 .1 .1 1"/></body>
    <camera name="top" pos="0 0 3"/>
  </worldbody>
</mujoco>
"""

WEB_VIEWERS = {"viser": {"port": 0}, "rerun": {"web_port": 0, "grpc_port": 0}}


class Dummy(BaseVisualizer):
    """A viewer that does as it is told, and counts."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.dts: list[float] = []
        self.closes = 0
        self.running = True
        self.paused = False
        self.rendering_paused = False
        self.raising = ""
        self.resets: list[bool] = []
        self.reading = True
        self.asked: list[float] = []
        self.seen: list[int] = []

    def step(self, dt):
        self.dts.append(dt)
        if self.reading and self.provider is not None:
            with self.provider.consistent_read():
                self.seen.append(self.provider.backend.transforms_timestamp)
        self._may_raise("step")

    def close(self):
        super().close()
        self.closes += 1

    def is_running(self):
        return self.running

    def is_training_paused(self):
        self._may_raise("is_training_paused")
        return self.paused

    def is_rendering_paused(self):
        return self.rendering_paused

    def reset(self, soft=False):
        self.resets.append(soft)
        self._may_raise("reset")

    def set_camera_view(self, eye, target):
        super().set_camera_view(eye, target)
        self._may_raise("set_camera_view")

    def requires_forward_before_step(self):
        self._may_raise("requires_forward_before_step")
        return False

    def wanted_cameras(self):
        self._may_raise("wanted_cameras")
        return ()

    def wants_markers(self):
        self._may_raise("wants_markers")
        return False

    def wants_poses(self, dt):
        self._may_raise("wants_poses")
        self.asked.append(dt)
        return self.reading

    def consume_reset_request(self):
        self._may_raise("consume_reset_request")
        return super().consume_reset_request()

    def real_time_factor(self):
        self._may_raise("real_time_factor")
        return

    def play(self):
        self._may_raise("play")

    def _may_raise(self, call: str) -> None:
        if self.raising == call:
            raise RuntimeError(f"no {call}")


class DummyCfg(VisualizerCfg):
    visualizer_type = "dummy"

    def create(self):
        return Dummy(self)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind():
    before = set(threading.enumerate())
    yield
    SimulationContext.clear_instance()
    _wait_for_the_end_of_others(before)


def _wait_for_the_end_of_others(before: set[threading.Thread]) -> None:
    deadline = time.monotonic() + 10.0
    while others := set(threading.enumerate()) - before:
        assert time.monotonic() < deadline, others
        time.sleep(0.01)


def open_context(model, *cfgs, **settings) -> SimulationContext:
    return SimulationContext(SimulationCfg(MujocoPhysicsCfg(model), visualizer_cfgs=cfgs, **settings))


class TestReading:
    @pytest.fixture
    def refreshes(self, monkeypatch) -> list[threading.Thread]:
        """The thread of each refresh of the engine's poses."""
        threads = []
        refresh = MujocoSceneDataBackend._refresh

        def noted(self, stale):
            threads.append(threading.current_thread())
            refresh(self, stale)

        monkeypatch.setattr(MujocoSceneDataBackend, "_refresh", noted)
        return threads

    def test_poses_are_refreshed_once_for_all_and_on_the_thread_that_steps(self, model, refreshes):
        with open_context(model, DummyCfg(), DummyCfg()) as sim:
            refreshes.clear()
            sim.physics.data.qvel[:] = 1.0
            sim.step()
            assert refreshes == [threading.current_thread()]
            first, second = sim.visualizers
            assert first.seen == second.seen == [sim.provider.backend.transforms_timestamp]
            assert first.asked == second.asked == pytest.approx([0.01])

    def test_what_was_refreshed_for_viewers_is_not_compared_again(self, model, monkeypatch):
        with open_context(model, DummyCfg(), DummyCfg()) as sim:
            compared, reconcile = [], MujocoSceneDataBackend._reconcile

            def noted(self):
                compared.append(threading.current_thread())
                reconcile(self)

            monkeypatch.setattr(MujocoSceneDataBackend, "_reconcile", noted)
            sim.step()
            assert compared == [threading.current_thread()]
            assert len(sim.visualizers[0].seen) == len(sim.visualizers[1].seen) == 1

    def test_viewers_see_what_a_source_of_geometry_moves(self, model, monkeypatch):
        def push():
            sim.physics.data.qpos[0] += 1.0
            return GeometryBatch.spheres((0, 0, 1), 0.1)

        monkeypatch.setattr(Dummy, "wants_markers", lambda viewer: True)
        with open_context(model, DummyCfg()) as sim:
            sim.add_geometry_source(push)
            sim.step()
            with sim.provider.consistent_read():
                assert sim.visualizers[0].seen == [sim.provider.backend.transforms_timestamp]
            assert sim.physics.data.xpos[1, 0] == 1.0

    def test_nothing_is_refreshed_for_viewers_that_read_nothing(self, model, refreshes):
        with open_context(model, DummyCfg(), DummyCfg()) as sim:
            for viewer in sim.visualizers:
                viewer.reading = False
            refreshes.clear()
            sim.step()
            assert refreshes == []
            sim.visualizers[1].reading = True
            sim.step()
            assert len(refreshes) == 1

    def test_others_read_what_they_have_just_written_while_a_viewer_takes_its_time(self, model):
        at_work, done = threading.Event(), threading.Event()
        with open_context(model, DummyCfg()) as sim:
            viewer = sim.visualizers[0]
            viewer.step = lambda dt: at_work.set() or done.wait(10.0)
            stepping = threading.Thread(target=sim.step)
            stepping.start()
            try:
                assert at_work.wait(10.0)
                poses = SceneDataFormat.Vec3_Quat()
                with sim.physics_lock:
                    sim.physics.data.qpos[:] = 0.75
                    assert sim.provider.get_transforms(poses)
                assert poses.positions.numpy()[1, 0] == pytest.approx(0.75)
            finally:
                done.set()
                stepping.join()

    def test_a_viewer_that_raises_leaves_later_reads_current(self, model):
        with open_context(model, DummyCfg()) as sim:
            sim.visualizers[0].raising = "step"
            sim.step()
            sim.physics.data.qpos[:] = 0.25
            poses = SceneDataFormat.Vec3_Quat()
            assert sim.provider.get_transforms(poses)
            assert poses.positions.numpy()[1, 0] == pytest.approx(0.25)


class TestRemoval:
    def test_one_update_sorts_them_all_out(self, model, caplog):
        caplog.set_level(logging.INFO)
        with open_context(model, *(DummyCfg() for _ in range(5))) as sim:
            closed, stopped, failing, paused, healthy = sim.visualizers
            closed.close()
            stopped.running = False
            failing.raising = "step"
            paused.rendering_paused = True
            sim.step()
            assert sim.visualizers == (paused, healthy)
            assert (stopped.closes, failing.closes, paused.closes, healthy.closes) == (1, 1, 0, 0)
            assert closed.dts == stopped.dts == []
            assert paused.dts == [0.0]
            assert healthy.dts == pytest.approx([0.01])

    @pytest.mark.parametrize(
        "call",
        [
            *("is_training_paused", "requires_forward_before_step", "wanted_cameras", "wants_markers"),
            *("wants_poses", "consume_reset_request", "real_time_factor", "reset", "set_camera_view", "play"),
        ],
    )
    def test_one_that_raises_wherever_it_is_asked_is_logged_by_name_and_dropped(self, model, caplog, call):
        with open_context(model, DummyCfg(), DummyCfg()) as sim:
            failing, healthy = sim.visualizers
            failing.raising = call
            sim.step()
            sim.set_camera_view((1.0, 0.0, 0.0), (0.0, 0.0, 0.0))
            sim.play()
            sim.reset()
            assert sim.visualizers == (healthy,)
            assert failing.closes == 1
            sim.step()
            assert sim.simulation_time_ns == 10_000_000
        assert "The viewer 'dummy' failed" in caplog.text
        assert f"no {call}" in caplog.text

    def test_one_that_goes_while_it_holds_a_pause_lets_the_training_go_on(self, model):
        with open_context(model, DummyCfg(), DummyCfg()) as sim:
            pausing, other = sim.visualizers
            pausing.paused = True
            stepping = threading.Thread(target=sim.step)
            stepping.start()
            wait_until(lambda: len(other.dts) >= 3, "the others are kept alive")
            assert stepping.is_alive()
            assert sim.simulation_time_ns == 0
            assert set(other.dts) == {0.0}, "they see no time pass"
            pausing.running = False
            stepping.join(10.0)
            assert not stepping.is_alive()
            assert sim.simulation_time_ns == 10_000_000
            assert sim.visualizers == (other,)

    def test_one_that_hangs_in_its_close_holds_nobody_up_for_good(self, model, caplog):
        woken = threading.Event()
        sim = open_context(model, DummyCfg(step_timeout=0.2), DummyCfg())
        hanging, other = sim.visualizers
        hanging.close = woken.wait
        with pytest.raises(ExceptionGroup, match="closing the simulation failed"):
            sim.close()
        assert other.closes == 1
        assert "Closing the viewer 'dummy' failed" in caplog.text
        woken.set()

    def test_the_run_goes_on_after_the_last_viewer(self, model):
        with open_context(model, DummyCfg()) as sim:
            sim.visualizers[0].running = False
            sim.step()
            assert sim.visualizers == ()
            assert sim.is_running()


class TestRates:
    def test_each_viewer_sees_all_the_time_at_its_own_rate(self, model, monkeypatch):
        clock = SimpleNamespace(seconds=100.0, monotonic=lambda: clock.seconds, sleep=time.sleep)
        monkeypatch.setattr("scene_data.viewers.time", clock)
        cfgs = [DummyCfg(), DummyCfg(update_frequency=50.0), DummyCfg(update_frequency=10.0)]
        with open_context(model, *cfgs) as sim:
            every, often, seldom = sim.visualizers
            for _ in range(200):
                sim.step()
                clock.seconds += 0.005
            assert len(every.dts) == 200
            assert 50 <= len(often.dts) <= 52
            assert 10 <= len(seldom.dts) <= 12
            assert sum(every.dts) == pytest.approx(2.0)
            # The last update was at most a period ago.
            assert 2.0 - 4 * 0.01 <= sum(often.dts) <= 2.0 + 1e-9
            assert 2.0 - 20 * 0.01 <= sum(seldom.dts) <= 2.0 + 1e-9

    def test_the_first_update_may_take_long_and_the_next_may_not(self, model):
        with open_context(model, DummyCfg(step_timeout=0.2)) as sim:
            (viewer,) = sim.visualizers
            step, seconds = viewer.step, 0.6

            def slow_step(dt):
                time.sleep(seconds)
                step(dt)

            viewer.step = slow_step
            sim.step()
            assert sim.visualizers == (viewer,)
            sim.step()
            assert sim.visualizers == ()


class TestOrder:
    def test_they_are_made_once_before_the_engine_and_initialized_after_it(self, model, monkeypatch):
        events = []

        class Cfg(DummyCfg):
            def create(self):
                events.append("viewer")
                viewer = Dummy(self)
                initialize = viewer.initialize
                viewer.initialize = lambda provider: (events.append("initialize"), initialize(provider))
                return viewer

        create = MujocoPhysicsCfg.create
        monkeypatch.setattr(
            MujocoPhysicsCfg, "create", lambda self, *rest: (events.append("engine"), create(self, *rest))[1]
        )
        with open_context(model, Cfg(), Cfg()) as sim:
            sim.reset()
            assert events == ["viewer", "viewer", "engine", "initialize", "initialize"]
            assert all(viewer.resets == [False] for viewer in sim.visualizers)

    def test_one_that_cannot_be_made_leaves_nothing_behind(self, model, monkeypatch):
        class BrokenCfg(DummyCfg):
            def create(self):
                raise RuntimeError("construction failed")

        monkeypatch.setattr(MujocoPhysicsCfg, "create", lambda *rest: pytest.fail("the engine was built"))
        with pytest.raises(RuntimeError, match="construction failed"):
            open_context(model, DummyCfg(), BrokenCfg())
        assert SimulationContext.instance() is None

    def test_what_a_render_callback_raises_is_raised_by_the_step(self, model):
        with open_context(model, DummyCfg()) as sim:
            sim.add_render_callback("bad", lambda context: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                sim.step()
            sim.remove_render_callback("bad")
            sim.step()
            assert sim.simulation_time_ns == 20_000_000

    def test_the_context_opened_last_is_the_instance(self, model):
        with open_context(model) as first:
            with open_context(model) as second:
                assert SimulationContext.instance() is second
            assert SimulationContext.instance() is first
        assert SimulationContext.instance() is None


class TestWebViewers:
    @pytest.mark.parametrize("name", WEB_VIEWERS)
    def test_clearing_the_instance_leaves_no_thread_and_no_port(self, model, name):
        pytest.importorskip(name)
        before = set(threading.enumerate())
        cfg_type = visualizers.get(name).cfg_type
        cfgs = [cfg_type(update_frequency=None, **WEB_VIEWERS[name]) for _ in range(2)]
        sim = open_context(model, *cfgs, cameras=(CameraCfg("top", 8, 6),))
        sim.step()
        ports = [int(viewer.address.split("?")[0].rstrip("/").rsplit(":", 1)[1]) for viewer in sim.visualizers]
        assert len(set(ports)) == 2
        del sim
        SimulationContext.clear_instance()
        assert SimulationContext.instance() is None
        _wait_for_the_end_of_others(before)
        for port in ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))

    @pytest.mark.parametrize("name", WEB_VIEWERS)
    def test_no_browser_opens_and_only_this_machine_is_served_unless_told_otherwise(self, name):
        pytest.importorskip(name)
        cfg = visualizers.get(name).cfg_type()
        assert cfg.open_browser is False
        assert cfg.bind_address == "127.0.0.1"

    @pytest.mark.parametrize("name", WEB_VIEWERS)
    def test_a_cell_of_a_notebook_shows_the_page(self, model, name):
        pytest.importorskip(name)
        with open_context(model, visualizers.get(name).cfg_type(**WEB_VIEWERS[name]), DummyCfg()) as sim:
            web, without_page = sim.visualizers
            source = ElementTree.fromstring(web._repr_html_()).attrib["src"]
            assert source == web.address
            with urllib.request.urlopen(source, timeout=10) as answer:
                assert b"<html" in answer.read().lower()
            assert without_page._repr_html_() is None

    def test_a_view_set_before_initialization_is_the_first_that_is_seen(self, model):
        pytest.importorskip("viser")
        from scene_data.visualizers import ViserVisualizer, ViserVisualizerCfg

        viewer = ViserVisualizer(ViserVisualizerCfg(port=0))
        viewer.set_camera_view((1.0, 2.0, 3.0), (0.0, 0.0, 1.0))
        viewer.initialize(SceneDataProvider(MujocoSceneDataBackend(model, mujoco.MjData(model))))
        try:
            assert tuple(viewer.server.initial_camera.position) == (1.0, 2.0, 3.0)
            assert tuple(viewer.server.initial_camera.look_at) == (0.0, 0.0, 1.0)
        finally:
            viewer.close()


def test_environments_that_are_shown_can_be_asked_for(model):
    cfg = SimulationCfg(
        MujocoPhysicsCfg(model, "mujoco_batch", num_envs=4),
        visualizer_cfgs=[DummyCfg(visible_env_indices=[-1, 3, 0, 99]), DummyCfg(max_visible_envs=2), DummyCfg()],
    )
    with SimulationContext(cfg) as sim:
        assert [viewer.get_visualized_env_ids() for viewer in sim.visualizers] == [[3, 0], [0, 1], [0, 1, 2, 3]]
