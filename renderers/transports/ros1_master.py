"""The ROS 1 master: whether it is there, and what is told to it, on threads of their own."""

import logging
import threading
import xmlrpc.client
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlparse

from .status import TransportError, TransportStatus, TransportStatusCode

__all__ = ["MasterWatch", "Registrar"]

_logger = logging.getLogger(__name__)

_CALLER = "/scene_data"
_WATCH_INTERVAL_S = 0.5
_MASTER_TIMEOUT_S = 2.0
_CLOSE_TIMEOUT_S = 5.0

_OK = TransportStatus(TransportStatusCode.OK)


class Registrar:
    """Has rospy talk to the master in the background: it waits for one that is away, for as long as that takes."""

    def __init__(self):
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ros registrar", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None]) -> None:
        """Do it after what was asked for before."""
        self._jobs.put(job)

    def close(self) -> None:
        """End once all is done, which without a master may be never: then the thread is left to end with it."""
        self._jobs.put(None)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # what one topic could not do must not keep the others from it
                _logger.exception("rospy could not register a topic")


class MasterWatch:
    """Looks after the master.

    Args:
        uri: Where it is.

    Attributes:
        status: Whether it answers.

    Raises:
        TransportError: No master answers.
    """

    def __init__(self, uri: str):
        self.uri = uri
        self.status = _OK
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._pid = self._ask_pid()
        except OSError as error:
            raise TransportError("Publishing over ROS 1 is not possible", self._unreachable(error)) from error

    def start(self, register_again: Callable[[], None]) -> None:
        """Watch, and call `register_again` once a master has come back."""
        self._thread = threading.Thread(target=self._run, args=(register_again,), name="ros master watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def call(self, method: str, *arguments: Any) -> Any:
        """Ask the master.

        Raises:
            OSError: It does not answer.
        """
        transport = _TimeoutTransport(_MASTER_TIMEOUT_S)
        with xmlrpc.client.ServerProxy(self.uri, transport=transport) as master:
            try:
                code, message, value = getattr(master, method)(*arguments)
            except xmlrpc.client.Error as error:
                raise ConnectionError(str(error)) from error
        if code != 1:
            raise ConnectionError(message)
        return value

    def _run(self, register_again: Callable[[], None]) -> None:
        while not self._stopped.wait(_WATCH_INTERVAL_S):
            try:
                pid = self._ask_pid()
                if pid != self._pid or not self.status.ok:
                    register_again()
                    _logger.info("The ROS master at %s is back", self.uri)
                self._pid, self.status = pid, _OK
            except OSError as error:
                if self.status.ok:
                    _logger.warning("The ROS master at %s does not answer: %s", self.uri, error)
                self.status = self._unreachable(error)

    def _ask_pid(self) -> int:
        return self.call("getPid", _CALLER)

    def _unreachable(self, error: OSError) -> TransportStatus:
        host = urlparse(self.uri).netloc or self.uri
        return TransportStatus(TransportStatusCode.MASTER_UNREACHABLE, f"No ROS master answers at {host}: {error}")


class _TimeoutTransport(xmlrpc.client.Transport):
    """HTTP that does not wait for ever."""

    def __init__(self, timeout: float):
        super().__init__()
        self._timeout = timeout

    def make_connection(self, host: Any) -> Any:
        connection = super().make_connection(host)
        with suppress(AttributeError):
            connection.timeout = self._timeout
        return connection
