"""Who looks at web viewers while they are measured: each in a process of its own, that takes all that is sent."""

import asyncio
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["free_port", "rerun_viewer", "viser_page"]

_CHUNK = 1 << 18
_PING = 9


def free_port() -> int:
    """A port that nobody listens on at present."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def viser_page(url: str) -> Iterator[Callable[[], int]]:
    """A page of viser, without a browser; gives what says how many bytes it has taken."""
    with _process(_take_viser, url) as received:
        _wait_until(lambda: received.value > 0, f"nothing came from {url}")
        yield lambda: received.value


@contextmanager
def rerun_viewer() -> Iterator[tuple[str, Callable[[], int]]]:
    """What takes the data of a Rerun viewer; gives its address, and what says how many bytes it has taken."""
    port = free_port()
    with _process(_take_rerun, port) as received:
        _wait_until(lambda: _is_open(port), "the Rerun server did not start")
        yield f"rerun+http://127.0.0.1:{port}/proxy", lambda: received.value


@contextmanager
def _process(take: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")
    received, stop = context.Value("q", 0), context.Event()
    process = context.Process(target=take, args=(*arguments, received, stop), daemon=True)
    process.start()
    try:
        yield received
    finally:
        stop.set()
        process.join(5.0)
        if process.is_alive():
            process.kill()
            process.join()


def _wait_until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint)
        time.sleep(0.05)


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def _take_viser(url: str, received: Any, stop: Any) -> None:
    """Be a page of viser: say where the camera is, and take what comes, with as little work as can be."""
    import msgspec
    import viser
    from websockets.client import ClientProtocol
    from websockets.typing import Subprotocol
    from websockets.uri import parse_uri

    camera = {
        "type": "ViewerCameraMessage", "wxyz": (1.0, 0.0, 0.0, 0.0), "position": (0.0, 0.0, 4.0), "fov": 0.8,
        "near": 0.1, "far": 100.0, "image_height": 100, "image_width": 100, "look_at": (0.0, 0.0, 0.0),
        "up_direction": (0.0, 0.0, 1.0),
    }  # fmt: skip
    uri = parse_uri(url.replace("http", "ws"))
    protocol = ClientProtocol(uri, subprotocols=[Subprotocol(f"viser-v{viser.__version__}")], max_size=None)
    protocol.send_request(protocol.connect())
    with socket.create_connection((uri.host, uri.port)) as connection:
        connection.sendall(b"".join(protocol.data_to_send()))
        header = b""
        while b"\r\n\r\n" not in header:
            header += connection.recv(1)
        protocol.receive_data(header)
        protocol.send_binary(msgspec.msgpack.encode(camera))
        connection.sendall(b"".join(protocol.data_to_send()))
        connection.settimeout(0.2)
        buffer = bytearray(_CHUNK)
        while not stop.is_set():
            with suppress(TimeoutError):
                opcode, length = _frame(connection, received)
                if opcode == _PING:
                    protocol.send_pong(_exactly(connection, length))
                    connection.sendall(b"".join(protocol.data_to_send()))
                connection.settimeout(None)
                while opcode != _PING and length:
                    taken = connection.recv_into(buffer, min(length, _CHUNK))
                    length -= taken
                    received.value += taken
                connection.settimeout(0.2)


def _frame(connection: socket.socket, received: Any) -> tuple[int, int]:
    """The kind of the frame that comes next, and its length."""
    first = _exactly(connection, 2)
    length = first[1] & 127
    if length > 125:
        connection.settimeout(None)
        length = int.from_bytes(_exactly(connection, 2 if length == 126 else 8), "big")
    received.value += 2
    return first[0] & 15, length


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = connection.recv(count, socket.MSG_WAITALL)
    if len(data) < count:
        raise EOFError("the server has gone")
    return data


def _take_rerun(port: int, received: Any, stop: Any) -> None:
    """Be a viewer of Rerun: its server, behind a door that counts."""
    import rerun as rr

    rr.init("benchmark")
    inner = free_port()
    rr.serve_grpc(grpc_port=inner, server_memory_limit="64MiB")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counts: bool) -> None:
        while data := await reader.read(_CHUNK):
            if counts:
                received.value += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", inner)
        with suppress(OSError):
            await asyncio.gather(forward(reader, server_writer, True), forward(server_reader, writer, False))

    async def serve() -> None:
        async with await asyncio.start_server(connected, "127.0.0.1", port):
            while not stop.is_set():
                await asyncio.sleep(0.1)

    asyncio.run(serve())
