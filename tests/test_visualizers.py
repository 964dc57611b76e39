"""Viewers in a simulation: when they are called, what pauses, and that none of them can stop the simulation."""

import importlib
import logging
import sys
import threading
import time

import mujoco
import numpy as np
import pytest

from scene_data import SceneDataProvider, SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg, MujocoSceneDataBackend
from scene_data.camera import CameraCfg
from scene_data.errors import AdapterLoadError, UnknownNameError, UnmetRequirementError
from scene_data.registry import Registry, visualizers
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


class Recorder(BaseVisualizer):
    """Writes down what it is called with."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.calls: list[tuple] = []
        self.threads: set[int] = set()
        self.paused_for = 0
        self.rendering_paused = False
        self.running = True
        self.behave = lambda: None

    @property
    def dts(self) -> list[float]:
        return [call[1] for call in self.calls if call[0] == "step"]

    def initialize(self, provider):
        super().initialize(provider)
        self.calls.append(("initialize",))
        self.threads.add(threading.get_ident())

    def step(self, dt):
        self.calls.append(("step", dt))
        self.threads.add(threading.get_ident())
        self.behave()

    def close(self):
        super().close()
        self.calls.append(("close",))
        self.threads.add(threading.get_ident())

    def is_running(self):
        return self.running

    def is_training_paused(self):
        self.paused_for -= 1
        return self.paused_for >= 0

    def is_rendering_paused(self):
        return self.rendering_paused

    def reset(self, soft=False):
        self.calls.append(("reset", soft))

    def set_camera_view(self, eye, target):
        super().set_camera_view(eye, target)
        self.calls.append(("view", eye, target))

    def ask_for_reset(self):
        self._reset_requested = True


class RecorderCfg(VisualizerCfg):
    visualizer_type = "recorder"

    def create(self):
        return Recorder(self)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind():
    before = set(threading.enumerate())
    yield
    SimulationContext.clear_instance()
    assert set(threading.enumerate()) <= before
    assert SimulationContext.instance() is None


def open_context(model, *cfgs, num_envs=1, **settings) -> SimulationContext:
    return SimulationContext(
        SimulationCfg(MujocoPhysicsCfg(model, num_envs=num_envs), visualizer_cfgs=cfgs, **settings)
    )


class TestTheirTurns:
    def test_each_render_interval_has_the_time_since_the_last(self, model):
        with open_context(model, RecorderCfg(), render_interval=3) as sim:
            for _ in range(7):
                sim.step()
            (viewer,) = sim.visualizers
            assert viewer.dts == pytest.approx([0.03, 0.03])
            sim.render()
            assert viewer.dts == pytest.approx([0.03, 0.03, 0.01])

    def test_steps_without_rendering_are_made_up_for(self, model):
        with open_context(model, RecorderCfg()) as sim:
            for _ in range(4):
                sim.step(render=False)
            sim.step()
            assert sim.visualizers[0].dts == pytest.approx([0.05])

    def test_a_rate_of_its_own_counts_in_real_time(self, model):
        with open_context(model, RecorderCfg(), RecorderCfg(update_frequency=20.0)) as sim:
            always, seldom = sim.visualizers
            start = time.monotonic()
            steps = 0
            while time.monotonic() - start < 0.5 or len(seldom.dts) < 5:
                sim.step()
                steps += 1
            assert len(always.dts) == steps > len(seldom.dts)
            assert len(seldom.dts) <= 20.0 * (time.monotonic() - start) + 2
            assert sum(seldom.dts) <= sum(always.dts)

    def test_all_calls_come_from_one_thread_of_its_own(self, model):
        with open_context(model, RecorderCfg(), RecorderCfg()) as sim:
            sim.step()
            first, second = sim.visualizers
        assert len(first.threads) == len(second.threads) == 1
        assert first.threads.isdisjoint(second.threads | {threading.get_ident()})
        assert [call[0] for call in first.calls] == ["initialize", "step", "close"]

    def test_forward_only_where_a_viewer_needs_it(self, model, monkeypatch):
        calls = []
        with open_context(model, RecorderCfg(), RecorderCfg()) as sim:
            monkeypatch.setattr(sim, "forward", lambda: calls.append("forward"))
            sim.step()
            assert calls == []
            monkeypatch.setattr(sim.visualizers[1], "requires_forward_before_step", lambda: True)
            sim.step()
            assert calls == ["forward"]

    def test_render_callbacks_come_in_order_and_by_name(self, model):
        calls = []
        with open_context(model) as sim:
            sim.add_render_callback("last", lambda context: calls.append(("last", context)), order=2)
            sim.add_render_callback("first", lambda context: calls.append(("first", context)), order=1)
            sim.step()
            assert calls == [("first", sim), ("last", sim)]
            sim.add_render_callback("last", lambda context: calls.append(("other", context)))
            sim.remove_render_callback("first")
            sim.step()
            assert calls[2:] == [("other", sim)]

    def test_camera_images_come_where_they_are_wanted(self, model, monkeypatch):
        seen = []
        monkeypatch.setattr(Recorder, "wanted_cameras", lambda self: ("top", "nowhere"))
        monkeypatch.setattr(
            Recorder, "show_camera_images", lambda self, images: seen.extend((n, i.copy()) for n, i in images.items())
        )
        with open_context(model, RecorderCfg(), num_envs=2, cameras=(CameraCfg("top", 8, 6),)) as sim:
            sim.step()
            ((name, image),) = seen
            assert name == "top"
            np.testing.assert_array_equal(image, sim.cameras["top"].data.lease("rgb").numpy())
            assert image.shape == (2, 6, 8, 3)


class TestPauses:
    def test_one_viewer_pauses_the_physics_and_every_viewer_stays_alive(self, model):
        with open_context(model, RecorderCfg(), RecorderCfg()) as sim:
            first, second = sim.visualizers
            first.paused_for = 2
            sim.step(render=False)
            assert first.dts == second.dts == [0.0, 0.0]
            assert sim.simulation_time_ns == 10_000_000

    def test_a_paused_picture_is_stepped_with_no_time(self, model):
        with open_context(model, RecorderCfg()) as sim:
            sim.visualizers[0].rendering_paused = True
            sim.step()
            assert sim.visualizers[0].dts == [0.0]

    def test_pause_by_this_thread_returns_without_a_step(self, model):
        with open_context(model, RecorderCfg()) as sim:
            sim.pause()
            assert not sim.is_playing()
            assert sim.is_running()
            sim.step()
            assert sim.simulation_time_ns == 0
            sim.play()
            assert sim.is_playing()
            sim.step()
            assert sim.simulation_time_ns == 10_000_000

    def test_pause_by_another_thread_holds_a_step_back_until_play(self, model):
        with open_context(model, RecorderCfg()) as sim:
            pausing = threading.Thread(target=sim.pause)
            pausing.start()
            pausing.join()
            stepping = threading.Thread(target=sim.step)
            stepping.start()
            stepping.join(0.1)
            assert stepping.is_alive()
            assert sim.simulation_time_ns == 0
            sim.play()
            stepping.join(20.0)
            assert sim.simulation_time_ns == 10_000_000

    def test_stop_ends_the_run_until_a_reset(self, model):
        with open_context(model, RecorderCfg()) as sim:
            sim.step()
            sim.stop()
            assert sim.is_stopped()
            assert not sim.is_running()
            sim.step()
            assert sim.simulation_time_ns == 10_000_000
            sim.reset()
            assert sim.is_running()
            sim.step()
            assert sim.simulation_time_ns == 10_000_000

    def test_the_slowest_speed_that_is_asked_for_holds(self, model, monkeypatch):
        with open_context(model, RecorderCfg(), RecorderCfg()) as sim:
            monkeypatch.setattr(sim.visualizers[0], "real_time_factor", lambda: 1.0)
            monkeypatch.setattr(sim.visualizers[1], "real_time_factor", lambda: 0.5)
            start = time.monotonic()
            for _ in range(10):
                sim.step()
            assert time.monotonic() - start > 0.15

    def test_a_reset_from_a_viewer_resets_and_all_hear_of_it(self, model):
        with open_context(model, RecorderCfg(), RecorderCfg()) as sim:
            sim.visualizers[0].ask_for_reset()
            sim.step()
            assert sim.simulation_time_ns == 0
            assert all(("reset", False) in viewer.calls for viewer in sim.visualizers)
            sim.step()
            assert sim.simulation_time_ns == 10_000_000
            sim.reset(env_ids=[0])
            assert sim.visualizers[0].calls.count(("reset", False)) == 1


class TestFailures:
    def test_one_that_raises_is_logged_by_name_and_dropped(self, model, caplog):
        def fail():
            raise RuntimeError("lost its window")

        with open_context(model, RecorderCfg(), RecorderCfg()) as sim:
            failing, healthy = sim.visualizers
            failing.behave = fail
            sim.step()
            assert sim.visualizers == (healthy,)
            assert failing.is_closed
            sim.step()
            assert healthy.dts == pytest.approx([0.01, 0.01])
        assert "'recorder' failed" in caplog.text
        assert "lost its window" in caplog.text

    def test_one_that_is_closed_is_logged_by_name_and_dropped(self, model, caplog):
        caplog.set_level(logging.INFO)
        with open_context(model, RecorderCfg(), RecorderCfg()) as sim:
            by_user, by_itself = sim.visualizers
            by_user.running = False
            by_itself.close()
            sim.step()
            assert sim.visualizers == ()
            assert by_user.dts == []
            assert by_user.is_closed
            assert sim.is_running()
            sim.step()
            assert sim.simulation_time_ns == 20_000_000
        assert caplog.text.count("'recorder' was closed") == 2

    def test_one_that_hangs_is_logged_by_name_and_left_behind(self, model, caplog):
        woken = threading.Event()
        with open_context(model, RecorderCfg(step_timeout=0.2), RecorderCfg()) as sim:
            hanging, healthy = sim.visualizers
            sim.step()  # the first update may compile, and is waited for
            hanging.behave = woken.wait
            sim.step()
            assert not woken.is_set()
            assert sim.visualizers == (healthy,)
            sim.step()
            assert sim.simulation_time_ns == 30_000_000
            assert "'recorder' did not return within 0.2 s" in caplog.text
            woken.set()
            deadline = time.monotonic() + 20.0
            while not hanging.is_closed and time.monotonic() < deadline:
                time.sleep(0.01)
            assert hanging.is_closed, "it is closed once it wakes"
        while any(thread.name == "viewer recorder" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_one_that_cannot_be_initialized_leaves_nothing_behind(self, model, monkeypatch):
        closed = []

        class BrokenCfg(RecorderCfg):
            def create(self):
                viewer = Recorder(self)
                viewer.initialize = lambda provider: 1 / 0
                return viewer

        monkeypatch.setattr(Recorder, "close", lambda self: closed.append(self))
        with pytest.raises(ZeroDivisionError):
            open_context(model, RecorderCfg(), BrokenCfg())
        assert len(closed) == 2

    def test_failures_at_the_end_are_raised_together_after_all_is_closed(self, model):
        sim = open_context(model, RecorderCfg(), RecorderCfg())
        first, second = sim.visualizers

        def fail():
            raise RuntimeError("still here")

        first.close = fail
        with pytest.raises(ExceptionGroup) as failure:
            sim.close()
        assert "still here" in repr(failure.value.exceptions)
        assert second.is_closed


def test_teardown_goes_from_readers_to_the_engine(model):
    order = []

    class ResourceCfg:
        def create(self):
            return self

        def close(self):
            order.append("resource")

    sim = open_context(model, RecorderCfg(), cameras=(CameraCfg("top", 8, 6),))
    sim.get_or_create_backend(ResourceCfg())
    viewer, core, engine = sim.visualizers[0], sim.render_core, sim.physics
    viewer.close = lambda: order.append("viewer")
    core_shutdown, engine_close = core.shutdown, engine.close
    core.shutdown = lambda: (order.append("core"), core_shutdown())
    engine.close = lambda: (order.append("engine"), engine_close())
    sim.close()
    assert order == ["core", "viewer", "resource", "engine"]


def test_equal_configurations_share_a_resource(model):
    closed = []

    class Resource:
        def close(self):
            closed.append(self)

    class ResourceCfg:
        def __init__(self, size):
            self.size = size

        def __eq__(self, other):
            return self.size == other.size

        def create(self):
            return Resource()

    with open_context(model) as sim:
        first = sim.get_or_create_backend(ResourceCfg(1))
        assert sim.get_or_create_backend(ResourceCfg(1)) is first
        other = sim.get_or_create_backend(ResourceCfg(2))
        assert other is not first
        sim.close_backend(first)
        assert closed == [first]
        with pytest.raises(KeyError):
            sim.close_backend(first)
        with pytest.raises(TypeError, match="int has none"):
            sim.get_or_create_backend(3)
    assert closed == [first, other]


def test_a_camera_view_reaches_every_viewer_and_one_before_initialization_is_kept(model):
    viewer = Recorder(RecorderCfg())
    viewer.set_camera_view((1.0, 2.0, 3.0), (0.0, 0.0, 1.0))
    viewer.initialize(SceneDataProvider(MujocoSceneDataBackend(model, mujoco.MjData(model))))
    assert viewer._camera_view == ((1.0, 2.0, 3.0), (0.0, 0.0, 1.0))
    with open_context(model, RecorderCfg(), RecorderCfg()) as sim:
        sim.set_camera_view((4.0, 0.0, 1.0), (0.0, 0.0, 0.0))
        assert all(("view", (4.0, 0.0, 1.0), (0.0, 0.0, 0.0)) in each.calls for each in sim.visualizers)


class TestConfiguration:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, [0, 1, 2, 3]),
            ({"max_visible_envs": 2}, [0, 1]),
            ({"max_visible_envs": 0}, []),
            ({"visible_env_indices": [3, 9, -1, 1, 3]}, [3, 1]),
            ({"visible_env_indices": [3, 1, 2], "max_visible_envs": 2}, [3, 1]),
        ],
    )
    def test_environments_are_chosen(self, model, settings, expected):
        with open_context(model, RecorderCfg(**settings), num_envs=4) as sim:
            assert sim.visualizers[0].env_ids.tolist() == expected

    @pytest.mark.parametrize(
        "settings",
        [
            {"max_visible_envs": -1},
            {"update_frequency": 0.0},
            {"env_spacing": -1.0},
            {"step_timeout": 0.0},
            {"eye": (1, 2, 3)},
            {"eye": (1, 2, 3), "lookat": (1, 2, 3)},
            {"eye": (1, 2), "lookat": (1, 2, 3)},
            {"eye": (1, 2, float("nan")), "lookat": (1, 2, 3)},
        ],
    )
    def test_what_cannot_be_used_is_refused(self, settings):
        with pytest.raises(ValueError, match=r"must|together|camera"):
            VisualizerCfg(**settings)

    def test_a_name_that_is_not_known_fails_before_anything_is_built(self, model, monkeypatch):
        class UnknownCfg(VisualizerCfg):
            visualizer_type = "crystal_ball"

        monkeypatch.setattr(MujocoPhysicsCfg, "create", lambda *arguments: pytest.fail("the engine was built"))
        with pytest.raises(UnknownNameError, match=r"viewer 'crystal_ball'. Known: .*viser"):
            open_context(model, UnknownCfg())

    def test_what_an_engine_does_not_offer_is_told_with_those_that_do(self, model, monkeypatch):
        monkeypatch.setattr(Recorder, "requires", ("newton_model",))
        monkeypatch.setattr(SimulationContext, "_create_pipeline", lambda self: pytest.fail("cameras were built"))
        with pytest.raises(
            UnmetRequirementError, match=r"viewer 'recorder' needs 'newton_model'.* offer it: newton"
        ) as error:
            open_context(model, RecorderCfg())
        assert (error.value.consumer, error.value.need) == ("viewer 'recorder'", "newton_model")
        viewer = Recorder(RecorderCfg())
        with pytest.raises(UnmetRequirementError):
            viewer.initialize(SceneDataProvider(MujocoSceneDataBackend(model, mujoco.MjData(model))))

    def test_a_viewer_of_another_package_is_found_by_its_entry_point(self, model, tmp_path, monkeypatch):
        (tmp_path / "ascii_viewer.py").write_text(
            "from scene_data.visualizers import BaseVisualizer, VisualizerCfg\n"
            "class AsciiCfg(VisualizerCfg):\n"
            "    visualizer_type = 'ascii'\n"
            "class Ascii(BaseVisualizer):\n"
            "    cfg_type = AsciiCfg\n"
            "    def step(self, dt): print('|' * round(100 * dt))\n"
        )
        info = tmp_path / "ascii_viewer-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ascii-viewer\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[scene_data.visualizers]\nascii = ascii_viewer:Ascii\nbroken = ascii_viewer:Nothing\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        registry = Registry("scene_data.visualizers", "viewer")
        assert {"ascii", "broken", "viser"} <= set(registry.names())
        monkeypatch.setattr("scene_data.visualizers.base.visualizers", registry)
        with open_context(model, registry.get("ascii").cfg_type()) as sim:
            assert sim.visualizers[0].name == "ascii"
            sim.step()
        with pytest.raises(AdapterLoadError, match=r"ascii_viewer:Nothing"):
            registry.get("broken")
        sys.modules.pop("ascii_viewer", None)

    def test_a_viewer_may_be_registered_by_the_program(self, model, monkeypatch):
        monkeypatch.setitem(visualizers._targets, "mine", Recorder)

        class MineCfg(VisualizerCfg):
            visualizer_type = "mine"

        with open_context(model, MineCfg()) as sim:
            assert isinstance(sim.visualizers[0], Recorder)


def test_a_reload_has_every_viewer_start_over(model):
    with open_context(model, RecorderCfg()) as sim:
        sim.step()
        sim.reload(model)
        sim.step()
        assert [call[0] for call in sim.visualizers[0].calls] == ["initialize", "step", "reset", "step"]
        assert sim.visualizers[0].dts == pytest.approx([0.01, 0.01])
