"""What only ROS 1 has: a master that comes and goes, and one node per process."""

import threading

import mujoco
import pytest
from listening import WAIT_S, wait_until
from ros_rigs import open_ros1
from test_simulation import SIDE, TOP, XML, open_context

from scene_data.renderers.transports import Ros1Transport, TransportError, TransportStatusCode


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def master():
    with open_ros1() as rig:
        yield rig


@pytest.fixture
def listen(master):
    listeners = []

    def start(topic: str):
        listeners.append(master.listen(topic))
        return listeners[-1]

    yield start
    for listener in listeners:
        listener.kill()


def step_until(sim, condition, what: str) -> None:
    wait_until(condition, what, meanwhile=sim.step)


def test_the_master_is_killed_and_restarted(model, master, listen):
    with open_context(model, cameras=(TOP,)) as sim:
        ros = sim.add_transport(Ros1Transport("/patient"))
        listener = listen("/patient/top/image_raw")
        step_until(sim, lambda: listener.heard, "frames arrive")
        master.kill()
        step_until(sim, lambda: ros.status.code is TransportStatusCode.MASTER_UNREACHABLE, "the loss is noticed")
        assert f"127.0.0.1:{master.port}" in ros.status.message
        count = len(listener.heard)
        step_until(sim, lambda: len(listener.heard) > count + 3, "the connected subscriber is served on")
        master.start()
        step_until(sim, lambda: ros.status.ok, "the return is noticed")
        newcomer = listen("/patient/top/image_raw")
        step_until(sim, lambda: newcomer.heard, "a subscriber of the new master finds us")


def test_a_reload_does_not_wait_for_a_master_that_is_gone(model, master, listen):
    with open_context(model, cameras=(TOP,)) as sim:
        ros = sim.add_transport(Ros1Transport("/orphaned"))
        listener = listen("/orphaned/top/image_raw")
        step_until(sim, lambda: listener.heard, "frames arrive")
        master.kill()
        step_until(sim, lambda: ros.status.code is TransportStatusCode.MASTER_UNREACHABLE, "the loss is noticed")
        reloading = threading.Thread(target=sim.reload, args=(model,), kwargs={"cameras": (TOP, SIDE)})
        reloading.start()
        reloading.join(WAIT_S)
        waited = reloading.is_alive()
        count = len(listener.heard)
        if not waited:
            step_until(sim, lambda: len(listener.heard) > count + 3, "the connected subscriber is served on")
        master.start()
        reloading.join()
        assert not waited, "the simulation waits for the master"
        step_until(sim, lambda: ros.status.ok, "the return is noticed")
        newcomer = listen("/orphaned/side/depth/image")
        step_until(sim, lambda: newcomer.heard, "the new camera is found, too")


def test_a_transport_closes_without_a_master(model, master):
    with open_context(model, cameras=(TOP,)) as sim:
        ros = sim.add_transport(Ros1Transport("/left_alone"))
        before = set(threading.enumerate())
        sim.remove_transport(sim.add_transport(Ros1Transport("/short")))
        sim.step()
        master.kill()
        step_until(sim, lambda: ros.status.code is TransportStatusCode.MASTER_UNREACHABLE, "the loss is noticed")
        sim.remove_transport(ros)
        assert ros.status.code is TransportStatusCode.STOPPED
        assert set(threading.enumerate()) < before
        master.start()


def test_nothing_is_left_of_a_closed_transport(model, master):
    with open_context(model, cameras=(TOP,)) as sim:
        sim.add_transport(Ros1Transport("/first"))  # rospy's node stays
        before = set(threading.enumerate())
        second = sim.add_transport(Ros1Transport("/second"))
        assert "/second/top/image_raw" in second.topics
        sim.remove_transport(second)
        wait_until(lambda: set(threading.enumerate()) <= before, "the threads end")
        assert second.status.code is TransportStatusCode.STOPPED
        import rosgraph

        published = [topic for topic, _ in rosgraph.Master("/test").getPublishedTopics("/")]
        assert "/first/top/image_raw" in published
        assert "/second/top/image_raw" not in published


def test_no_master_is_an_error_that_says_where(master, monkeypatch):
    before = set(threading.enumerate())
    monkeypatch.setenv("ROS_MASTER_URI", "http://127.0.0.1:1")
    with pytest.raises(TransportError, match=r"MASTER_UNREACHABLE.*127\.0\.0\.1:1"):
        Ros1Transport("/robot")
    assert set(threading.enumerate()) == before
