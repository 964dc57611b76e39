"""Other processes that listen, and how tests wait for them."""

import hashlib
import subprocess
import threading
import time
from collections.abc import Callable

import numpy as np

WAIT_S = 40.0


class Listener:
    """Another process that listens to a topic, and says what it hears."""

    def __init__(self, command: list[str], environment: dict[str, str]):
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.heard: list[list[str]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

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


def digest(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).hexdigest()
