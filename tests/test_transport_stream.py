"""Pictures for people: what the page and its streams show, who makes frames be rendered, and what is left behind."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
from browser import CHROMIUM, Browser
from listening import wait_until
from PIL import Image
from test_simulation import SIDE, TOP, XML, expected_position, open_context, write_qpos

from scene_data.cli import main
from scene_data.cli.colour import colour_depth
from scene_data.cli.tiling import tile
from scene_data.renderers import PlaneKind
from scene_data.renderers.transports import StreamTransport, TransportError, TransportStatusCode
from scene_data.renderers.transports import stream as stream_module

STEP_NS = 10_000_000
WAIT_S = 20.0
WIDE = replace(TOP, width=256, height=192)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture
def sim(model):
    threads, sockets = set(threading.enumerate()), open_sockets()
    with open_context(model, cameras=(WIDE, SIDE)) as sim:
        yield sim
    assert set(threading.enumerate()) == threads
    assert open_sockets() == sockets


@pytest.fixture
def stream(sim) -> StreamTransport:
    return sim.add_transport(StreamTransport(0, rate_hz=None))


class Client:
    """A reader of one stream: its pictures, and the simulation times of these."""

    def __init__(self, stream: StreamTransport, path: str = "top/rgb"):
        self._answer = urllib.request.urlopen(f"{stream.url}streams/{path}", timeout=WAIT_S)
        assert self._answer.headers.get_content_type() == "multipart/x-mixed-replace"
        self._boundary = f"--{self._answer.headers.get_param('boundary')}".encode()
        assert self._answer.readline().strip() == self._boundary

    def read(self) -> tuple[np.ndarray, int]:
        headers = {}
        while line := self._answer.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        assert headers["Content-Type"] == "image/jpeg"
        picture = Image.open(io.BytesIO(self._answer.read(int(headers["Content-Length"]))))
        assert picture.format == "JPEG"
        assert self._answer.readline() == b"\r\n"
        assert self._answer.readline().strip() == self._boundary
        return np.asarray(picture), int(headers["X-Simulation-Time-Ns"])

    def is_over(self) -> bool:
        return self._answer.read(1) == b""

    def close(self) -> None:
        self._answer.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_sockets() -> int:
    """How many this process holds."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            count += os.readlink(each).startswith("socket:")
    return count


def captures(sim) -> int:
    return sim.render_core.stats()["captures"]


def wait_for_clients(stream: StreamTransport, count: int) -> None:
    wait_until(lambda: stream.client_count == count, f"{count} clients look")


def wait_until_ready(stream: StreamTransport) -> None:
    feeds = stream._server.feeds.values()
    wait_until(lambda: any(feed.has_waiting_client() for feed in feeds), "a client waits for a picture")


def page_of(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=WAIT_S) as answer:
        return answer.read().decode()


def assert_same_picture(picture: np.ndarray, expected: np.ndarray) -> None:
    """Alike but for what JPEG does to edges."""
    assert picture.shape == expected.shape
    difference = np.abs(picture.astype(int) - expected.astype(int))
    assert difference.mean() < 2.0
    assert np.percentile(difference, 95) < 12


def is_red(picture: np.ndarray) -> np.ndarray:
    return picture[..., 0] > picture[..., 1:].max(axis=-1).astype(int) + 80


class TestPictures:
    def test_are_the_rendered_pixels_of_all_environments(self, sim, stream):
        write_qpos(sim, "mujoco_batch", [0.6, -0.6])
        with Client(stream) as client:
            wait_until_ready(stream)
            sim.step()
            picture, time_ns = client.read()
        assert time_ns == STEP_NS == sim.cameras["top"].data.info.simulation_time_ns
        rendered = sim.cameras["top"].data.lease("rgb").numpy()
        assert_same_picture(picture, tile(rendered))
        # By analysis too, in an image of eight times the pixels.
        for environment, x in enumerate((0.6, -0.6)):
            _, columns = np.nonzero(is_red(picture[:, environment * 256 : (environment + 1) * 256]))
            assert columns.mean() + 0.5 == pytest.approx(8 * expected_position(x), abs=4)

    def test_depth_is_coloured(self, sim, stream):
        with Client(stream, "top/depth") as client:
            wait_until_ready(stream)
            sim.step()
            picture, _ = client.read()
        depth = sim.cameras["top"].data.lease("depth").numpy()
        assert_same_picture(picture, tile(colour_depth(depth)))
        near, far = picture[96, 128].astype(int), picture[2, 2].astype(int)
        assert near.sum() > far.sum() + 200, "near is light and far is dark"

    def test_follow_the_motion(self, sim, stream):
        with Client(stream, "side/depth") as client:
            times = []
            for _ in range(4):
                wait_until_ready(stream)
                sim.step()
                times.append(client.read()[1] // STEP_NS)
        assert times == [1, 2, 3, 4]

    def test_the_rate_has_a_limit(self, sim):
        stream = sim.add_transport(StreamTransport(0, rate_hz=5.0))
        with Client(stream, "side/depth"):
            wait_until_ready(stream)
            before, started = captures(sim), time.monotonic()
            while time.monotonic() < started + 0.9:
                sim.step()
        assert 4 <= captures(sim) - before <= 6


class TestDemand:
    def test_no_client_no_render_and_no_encoding(self, sim, stream, monkeypatch):
        encoded = []
        monkeypatch.setattr(stream_module, "_jpeg", lambda *_: encoded.append(1) or b"")
        page_of(stream.url)
        for _ in range(5):
            sim.step()
        assert captures(sim) == 0
        assert not encoded

    def test_one_plane_of_one_camera_is_rendered_for_who_looks_at_it(self, sim, stream):
        with Client(stream, "top/depth") as client:
            wait_until_ready(stream)
            sim.step()
            client.read()
            assert sim.render_core.acquire_latest(1, PlaneKind.RGB) is None
            assert captures(sim) == 1

    def test_many_clients_cost_one_render_and_one_encoding(self, sim, stream):
        with ExitStack() as stack:
            clients = [stack.enter_context(Client(stream)) for _ in range(5)]
            wait_for_clients(stream, 5)
            feed = stream._server.feeds["/streams/top/rgb"]
            wait_until(lambda: all(client.is_waiting for client in feed._clients), "all wait")
            sim.step()
            parts = [client.read() for client in clients]
        assert captures(sim) == 1
        assert stream.counts()["top"].published == 1
        assert {time_ns for _, time_ns in parts} == {STEP_NS}

    def test_ends_with_the_last_client(self, sim, stream):
        client = Client(stream)
        wait_until_ready(stream)
        sim.step()
        client.read()
        client.close()
        wait_for_clients(stream, 0)
        before = captures(sim)
        for _ in range(3):
            sim.step()
        assert captures(sim) == before

    def test_who_comes_later_sees_nothing_old(self, sim, stream):
        with Client(stream) as client:
            wait_until_ready(stream)
            sim.step()
            client.read()
        wait_for_clients(stream, 0)
        for _ in range(3):
            sim.step()
        with Client(stream) as client:
            wait_until_ready(stream)
            sim.step()
            assert client.read()[1] == 5 * STEP_NS


def test_twenty_clients_that_come_and_go_leave_nothing(sim, stream, model):
    sim.cameras["top"].data  # noqa: B018 - rendering has a thread of its own, from the first image on
    threads, sockets = threading.active_count(), open_sockets()
    seen: list[int] = []
    stop = threading.Event()

    def look(number: int) -> None:
        path = ("top/rgb", "top/depth", "side/depth")[number % 3]
        while not stop.is_set():
            with Client(stream, path) as client:
                if number % 4:  # the others go without a look
                    seen.append(client.read()[1])

    lookers = [threading.Thread(target=look, args=(number,)) for number in range(20)]
    for looker in lookers:
        looker.start()
    for reload in range(1, 4):
        wait_until(lambda reload=reload: len(seen) >= 20 * reload, "twenty more looks", meanwhile=sim.step)
        sim.reload(model)
    wait_until(lambda: len(seen) >= 80, "clients see the last model", meanwhile=sim.step)
    stop.set()
    while any(looker.is_alive() for looker in lookers):
        sim.step()
    assert stream.status.ok
    wait_for_clients(stream, 0)
    wait_until(lambda: threading.active_count() <= threads, "the clients' threads end")
    wait_until(lambda: open_sockets() <= sockets, "the clients' sockets close")
    before = captures(sim)
    sim.step()
    assert captures(sim) == before


def test_a_slow_client_slows_nobody_and_misses_frames(model):
    cameras = (replace(TOP, width=640, height=480, data_types=("rgb",)),)
    with open_context(model, cameras=cameras) as sim:
        stream = sim.add_transport(StreamTransport(0, rate_hz=None, quality=95))
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", stream.port))
        slow.sendall(b"GET /streams/top/rgb HTTP/1.0\r\n\r\n")  # and never reads
        feed = stream._server.feeds["/streams/top/rgb"]
        wait_until(lambda: feed.has_waiting_client(), "the slow client is there")

        def step() -> None:
            sim.step()
            stream.flush(WAIT_S)
            time.sleep(0.002)

        (stuck,) = feed._clients
        last = [captures(sim)]

        def is_stuck() -> bool:
            for _ in range(5):
                step()
            before, last[0] = last[0], captures(sim)
            return before == last[0] and not stuck.is_waiting

        wait_until(is_stuck, "the slow client's buffers are full, and nothing is rendered for it any more")
        with Client(stream) as quick:
            times = []
            for _ in range(10):
                wait_until(lambda: any(c.is_waiting for c in feed._clients if c is not stuck), "the quick one waits")
                started = time.monotonic()
                sim.step()
                assert time.monotonic() - started < WAIT_S / 4
                times.append(quick.read()[1])
            assert np.diff(times).tolist() == [STEP_NS] * 9
        started = time.monotonic()
        sim.remove_transport(stream)
        assert time.monotonic() - started < 3.0, "closing waited for the slow client"
        slow.close()


class TestReload:
    def test_clients_stay_and_see_the_new_model(self, sim, stream, model):
        with Client(stream) as client:
            wait_until_ready(stream)
            sim.step()
            client.read()
            sim.reload(model)
            write_qpos(sim, "mujoco_batch", [-0.6, 0.6])
            wait_until_ready(stream)
            sim.step()
            picture, time_ns = client.read()
        assert time_ns == STEP_NS
        assert_same_picture(picture, tile(sim.cameras["top"].data.lease("rgb").numpy()))

    def test_what_was_encoded_meanwhile_is_not_shown(self, sim, stream, model, monkeypatch):
        started, may_end = threading.Event(), threading.Event()
        encode = stream_module._jpeg

        def encode_late(*arguments) -> bytes:
            started.set()
            assert may_end.wait(WAIT_S)
            return encode(*arguments)

        sim.step()
        monkeypatch.setattr(stream_module, "_jpeg", encode_late)
        with Client(stream) as client:
            wait_until_ready(stream)
            sim.step()
            assert started.wait(WAIT_S)
            sim.reload(model)
            may_end.set()
            assert stream.flush(WAIT_S)
            sim.step()
            assert client.read()[1] == STEP_NS

    def test_clients_of_a_camera_that_is_gone_are_sent_away(self, sim, stream, model):
        with Client(stream) as client:
            wait_for_clients(stream, 1)
            sim.reload(model, cameras=(SIDE,))
            assert client.is_over()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            page_of(f"{stream.url}streams/top/rgb")


def test_closing_sends_clients_away_and_frees_the_port(sim, stream):
    with Client(stream) as client:
        wait_for_clients(stream, 1)
        sim.remove_transport(stream)
        assert client.is_over()
    assert stream.status.code is TransportStatusCode.STOPPED
    sim.remove_transport(sim.add_transport(StreamTransport(stream.port)))
    stream.close()


def test_mistakes(sim, stream):
    with pytest.raises(TransportError, match=rf"127\.0\.0\.1:{stream.port}: PORT_IN_USE.*another port") as error:
        StreamTransport(stream.port)
    assert error.value.status.code is TransportStatusCode.PORT_IN_USE
    for port in ("/robot", 70000, -1):
        with pytest.raises(ValueError, match="port from 0 to 65535"):
            StreamTransport(port)
    with pytest.raises(ValueError, match="rate_hz"):
        StreamTransport(0, rate_hz=0.0)
    with pytest.raises(ValueError, match="quality"):
        StreamTransport(0, quality=0)


def test_only_this_machine_and_its_own_names(stream):
    assert stream._server._http.server_address[0] == "127.0.0.1"
    assert "top rgb" in page_of(stream.url, Host=f"localhost:{stream.port}")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        page_of(stream.url, Host="cameras.example:80")


class TestCommandLine:
    def test_serves_until_ctrl_c(self, tmp_path):
        path = tmp_path / "slab.xml"
        path.write_text(XML)
        arguments = ["view", str(path), "--stream", "--camera", "top:64x48:rgb,depth", "--port", "0", "--num-envs", "2"]
        script = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"from scene_data.cli import main\nmain({arguments!r})"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            printed = ""
            while "Ctrl-C ends it" not in printed:
                line = process.stdout.readline()
                assert line, "it ended by itself"
                printed += line
            (url,) = re.findall(r"in stream: (http://127\.0\.0\.1:\d+/)", printed)
            assert "top rgb" in page_of(url)
            with urllib.request.urlopen(f"{url}streams/top/depth", timeout=WAIT_S) as answer:
                assert b"image/jpeg" in answer.read(200)
                process.send_signal(signal.SIGINT)
                rest = process.stdout.read()
                assert process.wait(20) == 0
        assert "steps/s" in rest

    def test_keeps_to_real_time(self, tmp_path, capsys):
        path = tmp_path / "slab.xml"
        path.write_text(XML)
        started = time.monotonic()
        main(["view", str(path), "--stream", "--port", "0", "--steps", "40", "--speed", "0.5"])
        assert time.monotonic() - started > 0.8
        assert "in stream: http://127.0.0.1:" in capsys.readouterr().out

    def test_beside_a_viewer(self, tmp_path, capsys):
        pytest.importorskip("viser", reason="the extra 'viser' is not installed")
        path = tmp_path / "slab.xml"
        path.write_text(XML)
        viewer = ["--viewer", "viser", "--record", str(tmp_path / "run.viser")]
        main(["view", str(path), "--stream", "--port", "0", "--steps", "4", "--headless", *viewer])
        assert capsys.readouterr().out.count("http://127.0.0.1:") == 2

    def test_published_by_render(self, tmp_path, capsys):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        arguments = ["render", "demo", "--steps", "2", "--camera", "front:32x24", "--out", str(tmp_path)]
        main([*arguments, "--publish", f"stream:{port}"])
        assert "0 captures published, 0 dropped" in capsys.readouterr().out, "nobody looked"

    def test_mistakes(self, capsys, stream):
        def failure(*arguments: str) -> str:
            with pytest.raises(SystemExit) as stop:
                main(["view", "demo", "--stream", *arguments])
            assert stop.value.code == 2
            return capsys.readouterr().err

        assert f"127.0.0.1:{stream.port}: PORT_IN_USE" in failure("--port", str(stream.port))
        assert "--record needs a viewer" in failure("--record", "run.viser")
        assert "--speed must be above 0" in failure("--speed", "0")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    browser = Browser(1100, 700)
    yield browser
    browser.close()


def test_a_browser_shows_the_colours_and_follows_the_motion(sim, stream, browser, tmp_path):
    def slabs(picture: np.ndarray) -> list[float]:
        """Middles of the red squares of both environments in the first image [pixels from its left]."""
        columns = np.nonzero(is_red(picture[:, : 8 + 512]).sum(axis=0) > 30)[0] - 8.0
        groups = [columns[columns < 256], columns[columns >= 256] - 256.0]
        return [float(group.mean()) + 0.5 if len(group) else np.nan for group in groups]

    def shows(positions: list[float]):
        def is_right(picture: np.ndarray) -> bool:
            sim.step()
            return np.allclose(slabs(picture), [8 * expected_position(x) for x in positions], atol=4)

        return is_right

    write_qpos(sim, "mujoco_batch", [0.6, -0.6])
    page = browser.page(stream.url)
    try:
        page.wait_until("document.images.length == 4")
        picture = page.wait_for(shows([0.6, -0.6]))
        assert slabs(picture) == pytest.approx([8 * expected_position(0.6), 8 * expected_position(-0.6)], abs=4)
        Image.fromarray(picture).save(tmp_path / "page.png")
        for name in ("top rgb", "top depth", "top segmentation", "side depth"):
            assert name in page.evaluate("document.body.innerText")
        write_qpos(sim, "mujoco_batch", [-0.3, 0.3])
        picture = page.wait_for(shows([-0.3, 0.3]))
        assert slabs(picture) == pytest.approx([8 * expected_position(-0.3), 8 * expected_position(0.3)], abs=4)
        page.evaluate("document.querySelectorAll('input').forEach(box => box.click())")
        wait_until(lambda: stream.client_count == 0, "hidden images are asked for no longer", sim.step)
    finally:
        page.close()
