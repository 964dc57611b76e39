"""Rerun's servers of the data and of the page, in a process of their own.

Inside this process, Rerun's page would be served on all networks, and for good; and whatever pages that are opened late
need would take the memory and the time of the simulation.
"""

import socket
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import IO
from urllib.parse import quote

import rerun_cli

from scene_data.errors import SceneDataError

from .ports import PortInUseError, listening_port, reachable

__all__ = ["RerunServer"]

_DATA = "Rerun server"
_PAGE = "Rerun page"
_START_SECONDS = 20.0
_END_SECONDS = 5.0
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class RerunServer:
    """Takes the data of recordings and hands it to whoever looks, now or later.

    Args:
        address: Which network to serve on.
        data_port: Where the data is; 0 takes a free port.
        page_port: Where the page is; 0 takes a free port, None serves no page.
        memory_limit: How much of the past is kept, as Rerun writes it.

    Attributes:
        data_url: Address of the data, for recordings and native viewers.
        page_url: Address of the page, None where there is none.
        close: Ends it.

    Raises:
        PortInUseError: Somebody else listens on a port.
        SceneDataError: Rerun's program does not start.
    """

    def __init__(self, address: str, data_port: int, page_port: int | None, memory_limit: str):
        self._address = address
        self._ports = {_DATA: listening_port(_DATA, address, data_port)}
        if page_port is not None:
            self._ports[_PAGE] = listening_port(_PAGE, address, page_port)
        self.data_url = f"rerun+http://{reachable(address)}:{self._ports[_DATA]}/proxy"
        self.page_url: str | None = None
        command = [_program(), "--bind", address, "--port", f"{self._ports[_DATA]}"]
        command += ["--server-memory-limit", memory_limit]
        if page_port is None:
            command += ["--serve-grpc"]
        else:
            self.page_url = f"http://{reachable(address)}:{self._ports[_PAGE]}/?url={quote(self.data_url, safe='')}"
            command += ["--serve-web", "--web-viewer-port", f"{self._ports[_PAGE]}"]
        if address not in _LOOPBACK:  # a page that another machine opens is of another origin
            command += ["--cors-allow-origin", "*"]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the program runs
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C is for the simulation, which then ends it in its turn
        )
        # The program must not outlive a process that ends without closing its viewers.
        self.close = weakref.finalize(self, _end, self._process, self._said)
        try:
            for consumer, port in self._ports.items():
                self._wait_until_served(consumer, port)
        except BaseException:
            self.close()
            raise

    @property
    def is_running(self) -> bool:
        """Whether it still serves."""
        return self._process.poll() is None

    def _wait_until_served(self, consumer: str, port: int) -> None:
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._address, self._address)
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None:
            try:
                with socket.create_connection((here, port), timeout=1.0):
                    return
            except OSError:
                if time.monotonic() > deadline:
                    raise SceneDataError(f"The {consumer} did not start within {_START_SECONDS:g} s.") from None
                time.sleep(0.02)
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").rpartition("Error: ")[2].strip()
        if "in use" in said:
            raise PortInUseError(consumer, self._address, port, "somebody else took it just now")
        raise SceneDataError(f"Rerun's program ended at once: {said or 'it said nothing'}")


def _end(process: subprocess.Popen, said: IO[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    said.close()


def _program() -> str:
    """Rerun's program, which comes with the library."""
    return str(Path(rerun_cli.__file__).with_name("rerun.exe" if sys.platform == "win32" else "rerun"))
