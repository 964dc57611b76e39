"""A ROS 1 master of one's own on loopback, and programs that listen to it."""

import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
import xmlrpc.client
from collections.abc import Callable
from pathlib import Path

import numpy as np

WAIT_S = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Listener:
    """Another process that listens to a topic, and says what it hears."""

    def __init__(self, command: list[str], environment: dict[str, str]):
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.heard: list[list[str]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        wait_until(lambda: ["ready"] in self.heard, "the listener starts")
        self.heard.remove(["ready"])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.heard.append(line.split())

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)
        self._reading.join(WAIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()


def wait_until(condition: Callable[[], object], what: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        meanwhile()
        time.sleep(0.01)


class Master:
    """A rosmaster on a port of its own, for this process and its children."""

    def __init__(self):
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.environment = {**os.environ, "ROS_MASTER_URI": self.uri, "ROS_IP": "127.0.0.1"}
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", "import rosmaster; rosmaster.rosmaster_main()", "--core", "-p", str(self.port)]
        self._process = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL)
        wait_until(self._answers, "the master starts")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)

    def listen(self, topic: str, type_name: str) -> Listener:
        script = Path(__file__).parent / "ros1_listener.py"
        return Listener([sys.executable, str(script), topic, type_name], self.environment)

    def _answers(self) -> bool:
        try:
            return xmlrpc.client.ServerProxy(self.uri).getPid("/test")[0] == 1
        except OSError:
            return False


def digest(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()
