"""Camera images for people: a page in the browser, as JPEG over HTTP."""

import errno
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from html import escape
from io import BytesIO
from urllib.parse import quote

import numpy as np
from PIL import Image

from scene_data.cli.colour import colour_plane
from scene_data.cli.tiling import MAX_TILES, tile

from ..render_core import CameraDescriptor, PlaneKind, RenderCore
from ..render_core.publication import CameraFrames, FrameTransport
from .picture_server import PictureFeed, PictureServer
from .queue import PublicationWorker
from .status import CameraCounts, TransportError, TransportStatus, TransportStatusCode

__all__ = ["STREAM_PORT", "StreamTransport"]

STREAM_PORT = 8081
"""Where the page is unless told otherwise."""

_ADDRESS = "127.0.0.1"
_CLOSE_TIMEOUT_S = 5.0
_PICTURES = (PlaneKind.RGB, PlaneKind.RGBA, PlaneKind.DEPTH, PlaneKind.SEGMENTATION)


@dataclass(eq=False)
class _Plane:
    """One plane of a camera, and who looks at it.

    Attributes:
        kind: Which plane.
        feed: Where its pictures go.
        consumer: Its consumer in the render core, 0 while there is none.
        is_enabled: Whether that consumer has demand.
        asked_at: When it last had a frame made [s].
    """

    kind: PlaneKind
    feed: PictureFeed
    consumer: int = 0
    is_enabled: bool = False
    asked_at: float = -np.inf


@dataclass(frozen=True, eq=False)
class _Item:
    """Frames to encode, and the planes that they are encoded for."""

    frames: CameraFrames
    planes: list[_Plane]


class _CameraPictures:
    """A camera's planes, and the thread that encodes them."""

    def __init__(self, name: str, quality: int):
        self.planes: list[_Plane] = []
        self._quality = quality
        self._lock = threading.Lock()
        self.worker: PublicationWorker[_Item] = PublicationWorker(f"stream {name}", self._publish, depth=1)

    def _publish(self, item: _Item) -> None:
        time_ns = item.frames.simulation_time_ns
        for plane in item.planes:
            if plane.feed.client_count:
                pixels = item.frames.leases[plane.kind].numpy()[:MAX_TILES]
                picture = _jpeg(tile(colour_plane(plane.kind.value, pixels)), self._quality)
                with self._lock:
                    if plane.consumer:  # else the model went while its picture was encoded
                        plane.feed.show(picture, time_ns)
        item.frames.release()

    def unregister(self, core: RenderCore | None) -> None:
        """Have no frames made any more, and show none of those that were."""
        with self.worker.queue.superseding(), self._lock:
            for plane in self.planes:
                if core is not None and plane.consumer:
                    core.unregister_consumer(plane.consumer)
                plane.consumer, plane.is_enabled = 0, False
                plane.feed.clear()


class StreamTransport(FrameTransport):
    """Serves a page on 127.0.0.1 that shows the cameras' images; several environments side by side.

    Depth and segmentation are coloured for people. An image is rendered and encoded, once for all, when a client waits
    for it, and not otherwise; a client that reads slowly skips frames and holds up nobody.

    `GET /streams/<camera>/<plane>` is the stream of one image, `multipart/x-mixed-replace` of JPEG with the simulation
    time in each part's headers.

    Args:
        port: Where to listen; 0 takes a free one.
        rate_hz: Images per second of real time at most; None has no limit.
        quality: Of the JPEG, 1 to 95.

    Attributes:
        port: Where it listens.

    Raises:
        TransportError: The port cannot be listened on; the status is PORT_IN_USE where another program does.
        ValueError: A port, rate or quality out of range.
    """

    def __init__(self, port: int | str = STREAM_PORT, *, rate_hz: float | None = 30.0, quality: int = 85):
        number = _checked_port(port)
        if rate_hz is not None and not rate_hz > 0.0:
            raise ValueError(f"rate_hz must be above 0, got {rate_hz}")
        if not 1 <= quality <= 95:
            raise ValueError(f"quality must be 1 to 95, got {quality}")
        self._interval_s = 0.0 if rate_hz is None else 1.0 / rate_hz
        self._quality = quality
        self._core: RenderCore | None = None
        self._cameras: dict[str, _CameraPictures] = {}
        self._by_id: dict[int, _CameraPictures] = {}
        self._is_closed = False
        try:
            self._server = PictureServer(_ADDRESS, number, _page)
        except OSError as error:
            raise _listen_error(number, error) from error
        self.port = self._server.port

    # -- what a user asks

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{_ADDRESS}:{self.port}/"

    @property
    def client_count(self) -> int:
        """Images that are being looked at."""
        return sum(plane.feed.client_count for camera in self._cameras.values() for plane in camera.planes)

    @property
    def status(self) -> TransportStatus:
        """How it is doing."""
        return TransportStatus(TransportStatusCode.STOPPED if self._is_closed else TransportStatusCode.OK)

    def counts(self) -> dict[str, CameraCounts]:
        """What became of the frames, by camera."""
        return {
            name: CameraCounts(camera.worker.published, camera.worker.queue.dropped)
            for name, camera in self._cameras.items()
        }

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all that was handed over is encoded; False when `timeout` [s], of each camera, was not enough."""
        return all(camera.worker.flush(timeout) for camera in self._cameras.values())

    # -- what a pipeline calls

    def start(self, core: RenderCore, cameras: Mapping[str, CameraDescriptor]) -> None:
        """Serve these cameras; clients of images that are no longer there are sent away."""
        for name in set(self._cameras) - set(cameras):
            self._cameras.pop(name).worker.close(drain=False, timeout=_CLOSE_TIMEOUT_S)
        before = self._server.feeds
        feeds: dict[str, PictureFeed] = {}
        for name, camera in cameras.items():
            pictures = self._cameras.get(name)
            if pictures is None:
                pictures = self._cameras[name] = _CameraPictures(name, self._quality)
            self._by_id[camera.id] = pictures
            pictures.planes = []
            for kind in (kind for kind in camera.planes if kind in _PICTURES):
                path = f"/streams/{quote(name, safe='')}/{kind.value}"
                feeds[path] = before.get(path) or PictureFeed(f"{name} {kind.value}")
                consumer = core.register_continuous_consumer(f"stream {name}", camera.id, (kind,))
                core.set_consumer_enabled(consumer, False)
                pictures.planes.append(_Plane(kind, feeds[path], consumer))
        self._server.offer(feeds)
        self._core = core

    def look(self, simulation_time_ns: int) -> None:
        """Let demand follow the clients that wait."""
        if self._core is None:
            return
        now = time.monotonic()
        for pictures in self._by_id.values():
            for plane in pictures.planes:
                wanted = plane.feed.has_waiting_client() and now - plane.asked_at >= self._interval_s
                if wanted != plane.is_enabled:
                    plane.is_enabled = wanted
                    self._core.set_consumer_enabled(plane.consumer, wanted)

    def deliver(self, frames: CameraFrames) -> Collection[int]:
        """Queue a camera's frames for the planes that were due."""
        pictures = self._by_id.get(frames.camera.id)
        if pictures is None:
            return ()
        due = [plane for plane in pictures.planes if plane.consumer in frames.consumers and plane.kind in frames.leases]
        if not due or not pictures.worker.queue.put(_Item(frames, due)):
            return ()
        now = time.monotonic()
        for plane in due:
            plane.asked_at = now
        return [plane.consumer for plane in due]

    def stop(self) -> None:
        """Unregister, and let nothing of these cameras go out any more. Clients wait for what comes."""
        core, self._core = self._core, None
        before, self._by_id = self._by_id, {}
        for pictures in before.values():
            pictures.unregister(core)

    def close(self) -> None:
        """Unregister, send every client away, and end the threads and the sockets."""
        if self._is_closed:
            return
        self._is_closed = True
        core, self._core = self._core, None
        for pictures in self._by_id.values():
            pictures.unregister(core)
        self._by_id = {}
        for pictures in self._cameras.values():
            pictures.worker.close(drain=False, timeout=_CLOSE_TIMEOUT_S)
        self._server.close()


def _jpeg(picture: np.ndarray, quality: int) -> bytes:
    encoded = BytesIO()
    Image.fromarray(picture).save(encoded, "JPEG", quality=quality)
    return encoded.getvalue()


def _checked_port(port: int | str) -> int:
    try:
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise ValueError(f"a stream needs a port from 0 to 65535, such as stream:{STREAM_PORT}, not {port!r}")
    return number


def _listen_error(port: int, error: OSError) -> TransportError:
    is_taken = error.errno == errno.EADDRINUSE
    code = TransportStatusCode.PORT_IN_USE if is_taken else TransportStatusCode.FAILED
    message = f"{error.strerror}. Choose another port; 0 is a free one."
    return TransportError(f"the stream cannot listen on {_ADDRESS}:{port}", TransportStatus(code, message))


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Cameras</title>
<style>
body {{ margin: 0; padding: 8px; background: #16181d; color: #d7dae0; font: 14px system-ui, sans-serif; }}
main {{ display: flex; flex-wrap: wrap; gap: 12px; align-items: flex-start; }}
figure {{ margin: 0; max-width: 100%; }}
figcaption {{ padding: 4px 0; }}
img {{ display: block; max-width: 100%; min-width: 64px; background: #000; }}
</style>
<main>
{figures}
</main>
<script>
// A browser keeps six connections to one server: what is beyond five images waits to be asked for.
document.querySelectorAll("input").forEach((box, i) => {{
  const image = box.closest("figure").querySelector("img");
  const show = () => {{
    image.hidden = !box.checked;
    image.src = box.checked ? box.dataset.source : "data:,";
  }};
  image.onerror = () => box.checked && setTimeout(show, 1000);
  box.onchange = show;
  box.checked = i < 5;
  show();
}});
</script>
"""


def _page(feeds: Mapping[str, PictureFeed]) -> str:
    figures = [
        f'<figure><figcaption><label><input type="checkbox" data-source="{escape(path)}"> {escape(feed.name)}'
        f'</label></figcaption><img alt="{escape(feed.name)}"></figure>'
        for path, feed in feeds.items()
    ]
    return _PAGE.format(figures="\n".join(figures) or "No camera has an image to show.")
