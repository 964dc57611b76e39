"""Render modes and reload: what waits, what lags, and what a change of model leaves alone."""

import os
import threading
import time

import mujoco
import numpy as np
import pytest
from test_simulation import OPTIONS, SIDE, TOP, XML, expected_position, open_context, segmentation, slab_position

from scene_data import SceneDataFormat
from scene_data.camera import CameraCfg
from scene_data.errors import ModelLoadError, UnknownNameError
from scene_data.renderers import FrameStatusCode, StaleGenerationError

DEADLINE = 20.0

# The same slab, further to the right, under a camera of another size and name besides `top`.
OTHER_XML = XML.replace('<body name="slab" pos="0 0 0.5">', '<body name="slab" pos="0.5 0 0.5">').replace(
    'name="side"', 'name="flank"'
)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def other() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(OTHER_XML)


class Gate:
    """Holds the render thread inside a render until it is opened."""

    def __init__(self, core, monkeypatch):
        backend = core._host.backend
        self.entered, self.opened = threading.Event(), threading.Event()
        render = backend.render

        def gated(*arguments):
            self.entered.set()
            assert self.opened.wait(DEADLINE)
            return render(*arguments)

        monkeypatch.setattr(backend, "render", gated)


def test_pipelined_frames_lag_by_exactly_one_step(model):
    with open_context(model, render_mode="pipelined") as sim:
        for step in range(1, 5):
            sim.step()
            data = sim.cameras["top"].data
            assert sim.cameras["top"].lag == 1
            assert sim.cameras["top"].lag_ns == 10_000_000
            assert data.info.simulation_time_ns == (step - 1) * 10_000_000
        assert sim.render_core.stats()["turns"] == 5


def test_pipelined_a_read_before_any_step_waits_for_the_initial_state(model):
    with open_context(model, render_mode="pipelined") as sim:
        assert sim.cameras["top"].data.info.simulation_time_ns == 0
        assert sim.cameras["top"].lag == 0


def test_free_running_physics_never_waits_and_what_is_dropped_is_counted(model, monkeypatch):
    with open_context(model, render_mode="free_running") as sim:
        first = sim.cameras["top"].data
        gate = Gate(sim.render_core, monkeypatch)
        sim.step()
        assert gate.entered.wait(DEADLINE)
        for _ in range(4):
            sim.step()
        assert sim.physics.batch.time[0] == pytest.approx(0.05)
        assert sim.cameras["top"].data is first
        assert sim.cameras["top"].lag == 1
        assert sim.cameras["top"].lag_ns == 50_000_000
        assert sim.dropped_turns == 4
        gate.opened.set()
        sim.render_core.finish_or_cancel_render_turn(DEADLINE)
        assert sim.cameras["top"].data.info.simulation_time_ns == 10_000_000
        assert sim.cameras["top"].lag == 0


@pytest.mark.parametrize(
    ("settings", "threads"),
    [({}, 4), ({"render_mode": "free_running"}, 3), ({"render_mode": "free_running", "render_threads": 2}, 2)],
)
def test_drawing_leaves_a_core_to_physics_that_runs_free(model, monkeypatch, settings, threads):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    with open_context(model, cameras=(TOP,), **settings) as sim:
        assert sim.cameras["top"].data["rgb"].shape[0] == 2
        assert sim.render_core._host.backend._tracer._crew.size == threads


def test_reload_shows_the_other_model_and_leaves_held_frames(model, other):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        provider, camera = sim.get_scene_data_provider(), sim.cameras["top"]
        poses = SceneDataFormat.Transform()
        provider.get_transforms(poses)
        held = camera.data
        copy = held.lease("segmentation").numpy().copy()
        sim.step()
        sim.reload(other, cameras=(TOP, CameraCfg("flank", 20, 10, ("rgb", "depth"), options=OPTIONS)))
        assert sim.simulation_time_ns == 0
        assert list(sim.cameras) == ["top", "flank"]
        assert sim.get_scene_data_provider() is provider
        provider.get_transforms(poses)
        np.testing.assert_allclose(poses.transforms.numpy()[1, :3], [0.5, 0.0, 0.5], atol=1e-6)
        np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0.5, 0.5]), atol=0.6)
        assert sim.cameras["flank"].data.lease("rgb").numpy().shape == (2, 10, 20, 3)
        np.testing.assert_array_equal(held.lease("segmentation").numpy(), copy)
        with pytest.raises(StaleGenerationError, match="'top'"):
            camera.data  # noqa: B018
        sim.step()
        assert sim.cameras["top"].data.info.simulation_time_ns == 10_000_000


def test_reload_of_the_same_size_keeps_the_core_and_its_budget(model, other):
    with open_context(model) as sim:
        core = sim.render_core
        held = [sim.cameras["top"].data]
        sim.reload(other)
        assert sim.render_core is core
        np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0.5, 0.5]), atol=0.6)
        assert held[0].lease("rgb").stamp.model_generation == 1
        assert sim.cameras["top"].data.lease("rgb").stamp.model_generation == 2


def test_reload_while_readers_hold_the_whole_budget(model, other):
    with open_context(model) as sim:
        held = []
        for _ in range(4):
            sim.step()
            held.append(sim.cameras["top"].data)
        copies = [data.lease("rgb").numpy().copy() for data in held]
        sim.reload(other)
        np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0.5, 0.5]), atol=0.6)
        for data, copy in zip(held, copies, strict=True):
            np.testing.assert_array_equal(data.lease("rgb").numpy(), copy)


def test_a_reload_that_cannot_be_leaves_everything_as_it_was(model, tmp_path):
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        core, physics, data = sim.render_core, sim.physics, sim.cameras["top"].data
        with pytest.raises(ModelLoadError):
            sim.reload(tmp_path / "nowhere.xml")
        without_side = mujoco.MjModel.from_xml_string(OTHER_XML)
        with pytest.raises(UnknownNameError, match="camera 'side'. Known: top, flank, free"):
            sim.reload(without_side)
        assert (sim.render_core, sim.physics) == (core, physics)
        assert sim.cameras["top"].data is data
        sim.step()
        assert sim.cameras["top"].data.info.simulation_time_ns == 10_000_000


@pytest.mark.parametrize("mode", ["synchronous", "pipelined", "free_running"])
def test_reload_waits_for_a_render_under_way_and_refuses_the_turns_between(model, other, mode, monkeypatch):
    with open_context(model, render_mode=mode) as sim:
        sim.cameras["top"].data  # noqa: B018
        gate = Gate(sim.render_core, monkeypatch)
        reader = threading.Thread(target=lambda: (sim.step(), sim.cameras["top"].data), daemon=True)
        reader.start()
        assert gate.entered.wait(DEADLINE)
        reloader = threading.Thread(target=lambda: sim.reload(other), daemon=True)
        reloader.start()
        time.sleep(0.1)
        assert reloader.is_alive()
        gate.opened.set()
        reloader.join(DEADLINE)
        reader.join(DEADLINE)
        assert not reloader.is_alive()
        assert not reader.is_alive()
        np.testing.assert_allclose(slab_position(segmentation(sim)), expected_position([0.5, 0.5]), atol=0.6)


def test_reload_ends_a_wait_for_capacity(model, other):
    with open_context(model) as sim:
        assert sim.render_core.set_backpressure_policy("wait_for_slot").ok
        held = []
        for _ in range(4):
            sim.step()
            held.append(sim.cameras["top"].data)
        failure: list[BaseException] = []

        def read() -> None:
            try:
                sim.step()
                sim.cameras["top"].data  # noqa: B018
            except RuntimeError as error:
                failure.append(error)

        camera_reader = threading.Thread(target=read, daemon=True)
        camera_reader.start()
        time.sleep(0.2)
        assert camera_reader.is_alive()
        sim.reload(other)
        camera_reader.join(DEADLINE)
        assert failure
        assert failure[0].status.code is FrameStatusCode.STOPPED
        assert sim.render_core.backpressure_policy == "wait_for_slot"


def test_close_ends_a_render_that_is_blocked(model, monkeypatch):
    sim = open_context(model)
    sim.cameras["top"].data  # noqa: B018
    gate = Gate(sim.render_core, monkeypatch)
    monkeypatch.setattr(sim.render_core._host.backend, "request_stop", gate.opened.set)
    sim.step()
    reader = threading.Thread(target=lambda: sim.cameras["top"].data, daemon=True)
    reader.start()
    assert gate.entered.wait(DEADLINE)
    sim.close()
    reader.join(DEADLINE)
    assert not reader.is_alive()


@pytest.mark.parametrize("mode", ["pipelined", "free_running"])
def test_closing_with_a_turn_under_way_leaves_no_thread(model, mode):
    before = set(threading.enumerate())
    sim = open_context(model, render_mode=mode)
    sim.step()
    sim.close()
    assert set(threading.enumerate()) == before
