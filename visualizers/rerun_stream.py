"""Where the data of a Rerun viewer goes: to a server, to a viewer that is open already, into a file, or to several."""

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import rerun as rr
import rerun.blueprint as rrb
import rerun_bindings

from scene_data.errors import SceneDataError

from .rerun_blueprint import SIM_TIME, STEP
from .rerun_cfg import RerunVisualizerCfg
from .rerun_server import RerunServer

__all__ = ["NoViewerError", "RecordingFileError", "RerunStream"]

_logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
_FLUSH_SECONDS = 20.0


class RecordingFileError(SceneDataError, OSError):
    """A recording that cannot be written where it should be.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, reason: str):
        self.path = path
        super().__init__(f"Cannot record to {str(path)!r}: {reason}. Choose another file.")


class NoViewerError(SceneDataError, ConnectionError):
    """An address at which no viewer takes data.

    Attributes:
        url: The address.
    """

    def __init__(self, url: str):
        self.url = url
        super().__init__(f"No Rerun viewer takes data at {url}. Start one with `rerun`.")


class RerunStream:
    """Recordings of our own, never rerun's global one, and where they go.

    Args:
        cfg: Where.
        app_id: Name under which Rerun keeps layouts.

    Attributes:
        url: Where people look at it: the page, else the server, the viewer or the file.

    Raises:
        PortInUseError: Somebody else listens on a port.
        RecordingFileError: The file cannot be written.
        NoViewerError: There is no viewer to connect to.
    """

    def __init__(self, cfg: RerunVisualizerCfg, app_id: str):
        self._app_id = app_id
        self._recording: rr.RecordingStream | None = None
        self._path = None if cfg.record_to_rrd is None else _writable(Path(cfg.record_to_rrd))
        self._count = 0
        self._server: RerunServer | None = None
        self._sink = cfg.connect_to
        if cfg.connect_to is not None:
            if not _is_there(cfg.connect_to):  # rerun itself would wait, and say nothing
                raise NoViewerError(cfg.connect_to)
        elif cfg.grpc_port is not None:
            self._server = RerunServer(cfg.bind_address, cfg.grpc_port, cfg.web_port, cfg.memory_limit)
            self._sink = self._server.data_url
        page = None if self._server is None else self._server.page_url
        self.url = page or self._sink or str(self._path)

    @property
    def recording(self) -> rr.RecordingStream:
        """The rerun recording stream."""
        assert self._recording is not None
        return self._recording

    @property
    def is_open(self) -> bool:
        """Whether the data arrives, as far as one can tell."""
        return self._server is None or self._server.is_running

    def start_recording(self, blueprint: rrb.Blueprint) -> None:
        """Begin a recording that is shown in this way, the first one or another one, without what was sent before."""
        self._end_recording()
        sinks: list[rr.GrpcSink | rr.FileSink] = []
        if self._sink is not None:
            sinks.append(rr.GrpcSink(self._sink))
        if self._path is not None:
            self._count += 1
            again = self._path.with_stem(f"{self._path.stem}_{self._count}")
            # The footer would be kept in memory until the end, and grow with every update.
            sinks.append(rr.FileSink(self._path if self._count == 1 else again, write_footer=False))
        self._recording = rr.RecordingStream(self._app_id)
        # The times that count are those of the simulation.
        self._recording.set_log_time_enabled(False)
        native = self._recording.to_native()
        _hand_over(
            blueprint,
            self._app_id,
            lambda stored: rerun_bindings.set_sinks(list(sinks), default_blueprint=stored, recording=native),
        )

    def set_times(self, simulation_time_ns: int, step: int) -> None:
        """What this thread sends next belongs to this time [ns] and step.

        As `set_time` of the recording, which spends most of its time on finding out what kinds of times it was given.
        """
        native = self.recording.to_native()
        rerun_bindings.set_time_duration_nanos(SIM_TIME, simulation_time_ns, recording=native)
        rerun_bindings.set_time_sequence(STEP, step, recording=native)

    def show_as(self, blueprint: rrb.Blueprint) -> None:
        """Have the recording shown in another way."""
        native = self.recording.to_native()
        _hand_over(
            blueprint,
            self._app_id,
            lambda stored: rerun_bindings.send_blueprint(stored, make_active=True, recording=native),
        )

    def close(self) -> None:
        """Complete the file, and end the server."""
        try:
            self._end_recording()
        finally:
            if self._server is not None:
                self._server.close()

    def _end_recording(self) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        try:
            recording.flush(timeout_sec=_FLUSH_SECONDS)
        except RuntimeError as error:
            if self._sink is None or _is_there(self._sink):
                raise
            # Its text alone: the error itself would keep the recording, and its threads, wherever it is logged.
            _logger.warning("The Rerun viewer at %s was closed before it had everything: %s", self._sink, str(error))
        finally:
            recording.disconnect()
            del recording
            # Only this ends the threads of a recording.
            rerun_bindings.flush_and_cleanup_orphaned_recordings()


def _is_there(url: str) -> bool:
    """Whether somebody listens at an address."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _hand_over(
    blueprint: rrb.Blueprint, app_id: str, take: Callable[[rerun_bindings.PyMemorySinkStorage], None]
) -> None:
    """Have a blueprint taken as Rerun sends it. Rerun's own functions would leave two threads behind for each one."""
    native = rerun_bindings.new_blueprint(app_id, make_default=False, make_thread_default=False)
    stream = rr.RecordingStream._from_native(native)
    del native
    try:
        stream.set_time("blueprint", sequence=0)
        blueprint._log_to_stream(stream)
        take(stream.memory_recording().storage)
    finally:
        stream.disconnect()
        del stream
        rerun_bindings.flush_and_cleanup_orphaned_recordings()


def _writable(path: Path) -> Path:
    """The path, after a check that a file can be written there."""
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise RecordingFileError(path, error.strerror or str(error)) from error
    if is_new:  # whatever fails from here on leaves no empty file
        path.unlink()
    return path
