"""Pictures over HTTP: feeds that clients look at, and the server of these and of the page that shows them."""

import logging
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, cast

__all__ = ["PictureClient", "PictureFeed", "PictureServer"]

_BOUNDARY = "picture"
_LOOPBACK_NAMES = ("127.0.0.1", "localhost")
_LOOK_S = 0.25
_SEND_BUFFER_BYTES = 2**17
_CLIENT_TIMEOUT_S = 30.0
_JOIN_TIMEOUT_S = 5.0

_logger = logging.getLogger(__name__)


class PictureClient:
    """One who looks at a feed.

    Args:
        seen: Sequence number of the picture that it took last.

    Attributes:
        is_waiting: Whether it has sent on all that it took, and wants more.
        seen: As above.
    """

    def __init__(self, seen: int):
        self.is_waiting = False
        self.seen = seen


class PictureFeed:
    """The latest of a sequence of pictures. Each client takes it when it is ready for one. Thread-safe.

    Args:
        name: For people.
    """

    def __init__(self, name: str):
        self.name = name
        self._changed = threading.Condition()
        self._clients: set[PictureClient] = set()
        self._part = b""
        self._sequence = 0
        self._is_ended = False

    @property
    def client_count(self) -> int:
        """How many look at it."""
        return len(self._clients)

    @property
    def is_ended(self) -> bool:
        """Whether no picture will come any more."""
        return self._is_ended

    def has_waiting_client(self) -> bool:
        """Whether anybody wants a picture now."""
        with self._changed:
            return any(client.is_waiting for client in self._clients)

    @contextmanager
    def client(self) -> Iterator[PictureClient]:
        """Look at it, from the next picture on: the latest may be old, since none is made while nobody waits."""
        with self._changed:
            client = PictureClient(self._sequence)
            self._clients.add(client)
        try:
            yield client
        finally:
            with self._changed:
                self._clients.discard(client)

    def show(self, jpeg: bytes, simulation_time_ns: int) -> None:
        """Have the clients take a picture."""
        with self._changed:
            if self._clients and not self._is_ended:
                self._part = _part(jpeg, simulation_time_ns)
                self._sequence += 1
                self._changed.notify_all()

    def take(self, client: PictureClient, timeout: float) -> bytes:
        """The latest picture, as part of a multipart stream, once it is new to a client; empty after `timeout` [s]."""
        with self._changed:
            client.is_waiting = True
            self._changed.wait_for(lambda: self._is_new_to(client) or self._is_ended, timeout)
            if self._is_ended or not self._is_new_to(client):
                return b""
            client.is_waiting, client.seen = False, self._sequence
            return self._part

    def clear(self) -> None:
        """Show the picture of before to nobody any more."""
        with self._changed:
            self._part = b""

    def end(self) -> None:
        """Send every client away."""
        with self._changed:
            self._is_ended = True
            self._part = b""
            self._changed.notify_all()

    def _is_new_to(self, client: PictureClient) -> bool:
        return bool(self._part) and client.seen != self._sequence


def _part(jpeg: bytes, simulation_time_ns: int) -> bytes:
    # The boundary comes right behind the picture: browsers show a part once they know that it is over.
    lines = ("Content-Type: image/jpeg", f"Content-Length: {len(jpeg)}", f"X-Simulation-Time-Ns: {simulation_time_ns}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode() + jpeg + f"\r\n--{_BOUNDARY}\r\n".encode()


class PictureServer:
    """Serves feeds by path, and a page at `/`, with a thread for each connection.

    Args:
        address: Where to listen, an address of this machine alone.
        port: Where to listen; 0 takes a free one.
        page: HTML that shows feeds, by path.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, address: str, port: int, page: Callable[[Mapping[str, PictureFeed]], str]):
        self.feeds: Mapping[str, PictureFeed] = {}
        self.page = page
        self._http = _HttpServer((address, port), self)
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), name="stream server", daemon=True)
        self._thread.start()

    def offer(self, feeds: Mapping[str, PictureFeed]) -> None:
        """Serve these feeds; those of before that are not among them end."""
        before, self.feeds = self.feeds, dict(feeds)
        for path, feed in before.items():
            if feeds.get(path) is not feed:
                feed.end()

    def close(self) -> None:
        """End the feeds, the connections, the threads and the socket."""
        self.offer({})
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        self._http.end_connections()


class _HttpServer(ThreadingHTTPServer):
    allow_reuse_port = False  # a port that is taken is an error
    request_queue_size = 64
    daemon_threads = True

    def __init__(self, address: tuple[str, int], pictures: PictureServer):
        self.pictures = pictures
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's would ask a name server what this machine is called
        self.server_name, self.server_port = "localhost", cast(int, self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        arguments = (request, client_address)
        thread = threading.Thread(target=self._serve, args=arguments, name="stream client", daemon=True)
        with self._lock:
            self._connections[thread] = request
        thread.start()

    def end_connections(self) -> None:
        """Cut the connections, and wait for their threads. No new one may come any more."""
        with self._lock:
            connections = dict(self._connections)
        for connection in connections.values():
            with suppress(OSError):  # it may have ended by itself
                connection.shutdown(socket.SHUT_RDWR)
        for thread in connections:
            thread.join(_JOIN_TIMEOUT_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if isinstance(sys.exception(), OSError):
            return  # clients go away as they please
        _logger.exception("serving %s failed", client_address)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._connections[threading.current_thread()]


class _Handler(BaseHTTPRequestHandler):
    server_version = "scene-data"
    sys_version = ""
    timeout = _CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        pictures = cast(_HttpServer, self.server).pictures
        path = self.path.partition("?")[0]
        # A page elsewhere whose name was made to lead here must not read what the cameras see.
        if self.headers.get("Host", "localhost").partition(":")[0] not in _LOOPBACK_NAMES:
            self.send_error(HTTPStatus.FORBIDDEN, "Open it as 127.0.0.1 or localhost")
        elif path == "/":
            self._send_page(pictures.page(pictures.feeds).encode())
        elif (feed := pictures.feeds.get(path)) is not None:
            self._send_feed(feed)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nothing to tell people about."""

    def _send_page(self, page: bytes) -> None:
        self._send_head("text/html; charset=utf-8", {"Content-Length": str(len(page))})
        self.wfile.write(page)

    def _send_feed(self, feed: PictureFeed) -> None:
        # What the kernel holds for a slow client is old when it gets there.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._send_head(f"multipart/x-mixed-replace; boundary={_BOUNDARY}", {})
        self.wfile.write(f"--{_BOUNDARY}\r\n".encode())
        with feed.client() as client:
            while not feed.is_ended:
                if part := feed.take(client, _LOOK_S):
                    self.wfile.write(part)
                elif self._has_left():
                    return

    def _send_head(self, content_type: str, headers: Mapping[str, str]) -> None:
        self.send_response(HTTPStatus.OK)
        policy = {"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin"}
        for name, value in {"Content-Type": content_type, **policy, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _has_left(self) -> bool:
        readable = select.poll()
        readable.register(self.connection, select.POLLIN)
        return bool(readable.poll(0)) and not self.connection.recv(4096)
