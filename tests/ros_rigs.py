"""The two ROSes on loopback: what a test needs to publish on one and to listen to it."""

import os
import socket
import subprocess
import sys
import xmlrpc.client
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest
from listening import WAIT_S, Listener, wait_until

from scene_data.renderers.transports import Ros1Transport, Ros2Transport

ROS1_PACKAGES = ("rospy", "rosmaster", "sensor_msgs", "tf2_msgs", "geometry_msgs", "rosgraph_msgs")
LOOPBACK = """
<CycloneDDS><Domain id="any">
  <General>
    <Interfaces><NetworkInterface name="lo"/></Interfaces>
    <AllowMulticast>false</AllowMulticast>
  </General>
  <Discovery>
    <ParticipantIndex>auto</ParticipantIndex>
    <MaxAutoParticipantIndex>60</MaxAutoParticipantIndex>
    <Peers><Peer address="localhost"/></Peers>
    <LeaseDuration>2 s</LeaseDuration>
  </Discovery>
</Domain></CycloneDDS>
"""


class Subscriber(Protocol):
    """One who subscribes to images, in this process."""

    def next(self) -> tuple[int, int]:
        """Height and width of the next image."""
        ...

    def close(self) -> None: ...


class Rig(ABC):
    """A ROS."""

    @abstractmethod
    def transport(self, namespace: str, **settings: Any) -> Ros1Transport | Ros2Transport:
        """Publishes on it."""

    @abstractmethod
    def listen(self, topic: str, type_name: str = "sensor_msgs/Image") -> Listener:
        """Another process that listens to a topic."""

    @abstractmethod
    def subscribe(self, topic: str) -> Subscriber:
        """One of many who subscribe, with a connection of its own."""


@cache
def _master_port() -> int:
    # One for the life of the process: rospy's only node is registered there.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ros1Rig(Rig):
    """A rosmaster of one's own, for this process and its children."""

    def __init__(self):
        self.port = _master_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", "import rosmaster; rosmaster.rosmaster_main()", "--core", "-p", str(self.port)]
        self._process = subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.DEVNULL)
        wait_until(self._answers, "the master starts")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)

    def transport(self, namespace: str, **settings: Any) -> Ros1Transport:
        return Ros1Transport(namespace, **settings)

    def listen(self, topic: str, type_name: str = "sensor_msgs/Image") -> Listener:
        script = Path(__file__).parent / "ros1_listener.py"
        return Listener([sys.executable, str(script), topic, type_name], dict(os.environ))

    def subscribe(self, topic: str) -> Subscriber:
        from ros1_subscriber import Ros1Subscriber

        return Ros1Subscriber(self.uri, topic)

    def _answers(self) -> bool:
        try:
            return xmlrpc.client.ServerProxy(self.uri).getPid("/test")[0] == 1
        except OSError:
            return False


class Ros2Rig(Rig):
    """A DDS domain of its own, so that two runs on one machine hear nothing of each other."""

    def __init__(self):
        self.domain = 1 + os.getpid() % 200

    def transport(self, namespace: str, **settings: Any) -> Ros2Transport:
        return Ros2Transport(namespace, **settings)

    def listen(self, topic: str, type_name: str = "sensor_msgs/Image") -> Listener:
        script = Path(__file__).parent / "ros2_listener.py"
        return Listener([sys.executable, str(script), str(self.domain), topic, type_name], dict(os.environ))

    def subscribe(self, topic: str) -> Subscriber:
        from ros2_subscriber import Ros2Subscriber

        return Ros2Subscriber(self.domain, topic)


@contextmanager
def open_ros1() -> Iterator[Ros1Rig]:
    for package in ROS1_PACKAGES:
        pytest.importorskip(package, reason="ROS 1's Python packages are not installed; see `make setup-ros`")
    rig = Ros1Rig()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ROS_MASTER_URI", rig.uri)
        environment.setenv("ROS_IP", "127.0.0.1")
        try:
            rig.start()
            yield rig
        finally:
            rig.kill()


@contextmanager
def open_ros2() -> Iterator[Ros2Rig]:
    pytest.importorskip("cyclonedds", reason="the extra 'ros2' is not installed")
    rig = Ros2Rig()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CYCLONEDDS_URI", LOOPBACK)
        environment.setenv("ROS_DOMAIN_ID", str(rig.domain))
        yield rig


RIGS = {"ros1": open_ros1, "ros2": open_ros2}
