"""The thread that one viewer has for itself, so that one that hangs takes nobody with it."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from scene_data.errors import SceneDataError

__all__ = ["ViewerHangError", "ViewerThread"]


class ViewerHangError(SceneDataError, TimeoutError):
    """A viewer that did not return in time.

    Attributes:
        viewer: Its name.
        timeout: How long it was waited for [s].
    """

    def __init__(self, viewer: str, timeout: float):
        self.viewer = viewer
        self.timeout = timeout
        super().__init__(f"The viewer {viewer!r} did not return within {timeout:g} s.")


class ViewerThread:
    """Makes calls one after another, all on one thread, as graphics libraries want it.

    Args:
        name: The viewer's name.
        timeout: How long `result` waits for a call [s].
    """

    def __init__(self, name: str, timeout: float):
        self.name = name
        self.timeout = timeout
        self._calls: queue.SimpleQueue[tuple[Future, Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        # A daemon: a viewer that hangs for good must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"viewer {name}", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Have a call made; `result` waits for it."""
        future: Future = Future()
        self._calls.put((future, function, arguments))
        return future

    def result(self, future: Future, timeout: float | None = None) -> Any:
        """What a call returned; what it raised is raised.

        Args:
            future: The call.
            timeout: How long to wait for it [s]; None is as long as for any other.

        Raises:
            ViewerHangError: It did not return in time.
        """
        timeout = self.timeout if timeout is None else timeout
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():  # the call itself raised it
                raise
            raise ViewerHangError(self.name, timeout) from None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call and wait for it."""
        return self.result(self.submit(function, *arguments))

    def end(self) -> None:
        """End the thread after the calls that were submitted; one that hangs is left behind."""
        self.end_later()
        self._thread.join(self.timeout)

    def end_later(self) -> None:
        """Have the thread end after the calls that were submitted, and do not wait for it."""
        self._calls.put(None)

    def _run(self) -> None:
        while (work := self._calls.get()) is not None:
            future, function, arguments = work
            try:
                future.set_result(function(*arguments))
            except BaseException as error:  # whoever waits for the call has to hear of it, whatever it is
                future.set_exception(error)
            del work, future, function, arguments  # nothing is kept alive while waiting
