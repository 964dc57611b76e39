"""A ROS 1 master of one's own on loopback."""

import os
import socket
import subprocess
import sys
import xmlrpc.client
from pathlib import Path

from listening import WAIT_S, Listener, wait_until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
