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
    """Be a page of viser: say where the camera is, and take what comes."""
    import msgspec
    import viser
    from websockets.sync.client import connect

    address = url.replace("http", "ws")
    camera = {
        "type": "ViewerCameraMessage", "wxyz": (1.0, 0.0, 0.0, 0.0), "position": (0.0, 0.0, 4.0), "fov": 0.8,
        "near": 0.1, "far": 100.0, "image_height": 100, "image_width": 100, "look_at": (0.0, 0.0, 0.0),
        "up_direction": (0.0, 0.0, 1.0),
    }  # fmt: skip
    with connect(address, subprotocols=[f"viser-v{viser.__version__}"], max_size=None, compression=None) as socket:  # pyright: ignore[reportArgumentType]
        socket.send(msgspec.msgpack.encode(camera))
        while not stop.is_set():
            try:
                received.value += len(socket.recv(timeout=0.2))
            except TimeoutError:
                continue


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
