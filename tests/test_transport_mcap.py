"""MCAP recordings: what another library reads back, and what is left after a crash or on a full disk."""

import itertools
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import mujoco
import numpy as np
import pytest
from test_simulation import OPTIONS, SIDE, TOP, XML, open_context

from scene_data.camera import CameraCfg
from scene_data.renderers import PlaneKind
from scene_data.renderers.transports import CameraPublicationTransport, TransportStatusCode

pytest.importorskip("mcap", reason="the extra 'mcap' is not installed")
pytest.importorskip("mcap_ros2", reason="the extra 'mcap' is not installed")

from mcap.exceptions import EndOfFile
from mcap.reader import make_reader
from mcap.stream_reader import StreamReader
from mcap_ros2.decoder import DecoderFactory

from scene_data.renderers.transports import McapTransport

WAIT_S = 20.0
STEP_NS = 10_000_000


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


def read(path: Path) -> dict[str, list]:
    """Messages by topic, decoded."""
    found: dict[str, list] = {}
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        assert reader.get_header().profile == "ros2"
        for _, channel, message, decoded in reader.iter_decoded_messages():
            found.setdefault(channel.topic, []).append((message.log_time, decoded))
    return found


def read_broken(path: Path) -> dict[str, list]:
    """Messages by topic, up to where the file ends."""
    found: dict[str, list] = {}
    factory, schemas, channels = DecoderFactory(), {}, {}
    with path.open("rb") as file:
        records = StreamReader(file, validate_crcs=True).records
        while True:
            try:
                record = next(records)
            except (EndOfFile, StopIteration, struct.error):  # the last for an index that is cut off
                return found
            match type(record).__name__:
                case "Schema":
                    schemas[record.id] = record
                case "Channel":
                    channels[record.id] = record
                case "Message":
                    channel = channels[record.channel_id]
                    decode = factory.decoder_for(channel.message_encoding, schemas[channel.schema_id])
                    found.setdefault(channel.topic, []).append((record.log_time, decode(record.data)))


def ends_with_a_whole_record(path: Path) -> bool:
    """By the lengths of the records, each behind its kind; a file starts with eight bytes of magic."""
    data, position = path.read_bytes(), 8
    while position < len(data):
        position += 9 + int.from_bytes(data[position + 1 : position + 9], "little")
    return position == len(data)


def pixels(message, dtype, channels: int) -> np.ndarray:
    return np.frombuffer(bytes(message.data), dtype).reshape(message.height, message.width, channels)


def test_another_library_reads_back_what_was_rendered(model, tmp_path):
    path = tmp_path / "run.mcap"
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        recorder = sim.add_transport(McapTransport(path, "/robot", environment=1))
        seen = []
        for step in range(1, 4):
            sim.physics.set_control(np.array([[0.0], [1.0]]))
            sim.step()
            assert recorder.flush(WAIT_S)
            data = sim.cameras["top"].data
            seen.append({name: data.lease(name).numpy()[1].copy() for name in data})
            assert data.info.simulation_time_ns == step * STEP_NS
        assert sim.render_core.stats()["captures"] == 6
        assert recorder.status.ok
        assert recorder.counts()["top"].published == 3
    assert recorder.status.code is TransportStatusCode.STOPPED
    found = read(path)
    assert sorted(found) == [
        "/clock",
        "/robot/side/depth/camera_info",
        "/robot/side/depth/image",
        "/robot/side/depth/image_raw",
        "/robot/top/camera_info",
        "/robot/top/depth/camera_info",
        "/robot/top/depth/image",
        "/robot/top/depth/image_raw",
        "/robot/top/image_raw",
        "/robot/top/segmentation/camera_info",
        "/robot/top/segmentation/image",
        "/tf",
    ]
    times = [step * STEP_NS for step in range(1, 4)]
    for topic in set(found) - {"/tf"}:
        assert [time for time, _ in found[topic]] == times
    for topic, data_type, dtype in (
        ("image_raw", "rgb", np.uint8),
        ("depth/image", "depth", np.float32),
        ("segmentation/image", "segmentation", np.int32),
    ):
        for expected, (time, message) in zip(seen, found[f"/robot/top/{topic}"], strict=True):
            plane = expected[data_type]
            np.testing.assert_array_equal(pixels(message, dtype, plane.shape[2]), plane)
            assert message.header.stamp.sec * 10**9 + message.header.stamp.nanosec == time
            assert message.header.frame_id == "robot/top_optical_frame"
    _, info = found["/robot/top/camera_info"][0]
    assert info.k[0] == pytest.approx(12.0 / np.tan(np.radians(30.0)))
    assert [message.clock.nanosec for _, message in found["/clock"]] == times
    transforms = [message.transforms[0] for _, message in found["/tf"]]
    top = [transform for transform in transforms if transform.child_frame_id == "robot/top_optical_frame"]
    assert len(top) == 3
    assert (top[0].header.frame_id, top[0].transform.translation.z) == ("world", 3.0)
    # Looking straight down with the image's top towards +Y is half a turn about x from the world.
    assert abs(top[0].transform.rotation.x) == pytest.approx(1.0)


def test_the_file_is_as_its_specification_and_foxglove_have_ros2(model, tmp_path):
    """https://mcap.dev/spec/registry: the profile `ros2`, its message encoding and its schemas."""
    path = tmp_path / "run.mcap"
    with open_context(model, cameras=(TOP,)) as sim:
        recorder = sim.add_transport(McapTransport(path))
        for _ in range(3):
            sim.step()
            recorder.flush(WAIT_S)
    with path.open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        assert reader.get_header().profile == "ros2"
        summary = reader.get_summary()
        messages = [message for _, _, message in reader.iter_messages()]
    assert summary is not None
    assert {chunk.compression for chunk in summary.chunk_indexes} == {"zstd"}
    assert {channel.message_encoding for channel in summary.channels.values()} == {"cdr"}
    assert {schema.encoding for schema in summary.schemas.values()} == {"ros2msg"}
    assert {schema.name for schema in summary.schemas.values()} == {
        "sensor_msgs/msg/Image",
        "sensor_msgs/msg/CameraInfo",
        "tf2_msgs/msg/TFMessage",
        "rosgraph_msgs/msg/Clock",
    }
    for schema in summary.schemas.values():
        own, *parts = schema.data.decode().split("=" * 80 + "\nMSG: ")
        defined = {part.partition("\n")[0] for part in parts}
        lines = [line for part in (own, *parts) for line in part.splitlines()[part is not own :]]
        used = {line.split()[0].partition("[")[0] for line in lines if "/" in line}
        assert used == defined, "each type that is used is there, by package/Type, and no other"
    assert all(message.data[:4] == b"\x00\x01\x00\x00" for message in messages), "little-endian CDR"
    assert all(message.log_time == message.publish_time for message in messages)


def test_cadence_is_kept_and_topics_follow_the_cameras_of_a_reload(model, tmp_path):
    path = tmp_path / "run.mcap"
    with open_context(model, cameras=(TOP, SIDE)) as sim:
        recorder = sim.add_transport(McapTransport(path, interval_ns=2 * STEP_NS, clock=False))
        for _ in range(4):
            sim.step()
            recorder.flush(WAIT_S)
        sim.reload(model, cameras=(TOP, CameraCfg("free", 8, 8, options=OPTIONS)))
        assert [topic for topic in recorder.topics if "side" in topic] == []
        for _ in range(2):
            sim.step()
            recorder.flush(WAIT_S)
    found = read(path)
    assert [time for time, _ in found["/top/image_raw"]] == [2 * STEP_NS, 2 * STEP_NS, 4 * STEP_NS]
    assert [time for time, _ in found["/side/depth/image"]] == [2 * STEP_NS, 4 * STEP_NS]
    assert [time for time, _ in found["/free/image_raw"]] == [2 * STEP_NS]
    assert "/clock" not in found


def test_camera_info_follows_what_is_set_for_the_environment(model, tmp_path):
    path = tmp_path / "run.mcap"
    focal = 0.5 * TOP.height / np.tan(np.radians(30.0))
    with open_context(model, cameras=(TOP,)) as sim:
        recorder = sim.add_transport(McapTransport(path, environment=1))
        for envs, scale in (([0, 1], 1.0), ([0], 2.0), ([1], 3.0)):
            lens = [[scale * focal, 0, 16], [0, scale * focal, 12], [0, 0, 1]]
            sim.cameras["top"].set_intrinsic_matrices(lens, env_ids=envs)
            sim.step()
            recorder.flush(WAIT_S)
    infos = [message for _, message in read(path)["/top/camera_info"]]
    assert [info.k[0] for info in infos] == pytest.approx([focal, focal, 3 * focal])
    assert [info.p[5] for info in infos] == pytest.approx([focal, focal, 3 * focal])


RECORD = """
import os, sys
sys.path.insert(0, {tests!r})
import mujoco
from test_simulation import TOP, XML, open_context
from scene_data.renderers.transports import McapTransport

with open_context(mujoco.MjModel.from_xml_string(XML), cameras=(TOP,)) as sim:
    recorder = sim.add_transport(McapTransport({path!r}, chunk_size=20_000))
    while True:
        sim.step()
        recorder.flush(10.0)
        print(os.path.getsize({path!r}), flush=True)
"""


def test_a_killed_recorder_leaves_a_file_that_reads_up_to_its_last_chunk(tmp_path):
    path = tmp_path / "run.mcap"
    script = RECORD.format(tests=str(Path(__file__).parent), path=str(path))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        sizes = (line for line in recorder.stdout if line.strip().isdigit())  # Warp says what it loads, too
        assert len(list(itertools.islice(sizes, 12))) == 12
        recorder.send_signal(signal.SIGKILL)
        recorder.wait(WAIT_S)
    found = read_broken(path)
    recorded = [time // STEP_NS for time, _ in found["/top/image_raw"]]
    assert recorded == list(range(1, len(recorded) + 1))
    # A chunk holds a capture of 7 kB of pixels and a bit, so all but the last three are there.
    assert len(recorded) >= 9
    # And torn in the middle of a chunk, which only a machine that stops can do.
    torn = tmp_path / "torn.mcap"
    for missing in (50, 500, 2000):
        torn.write_bytes(path.read_bytes()[:-missing])
        assert len(recorded) - 3 <= len(read_broken(torn)["/top/image_raw"]) <= len(recorded)


@pytest.fixture
def small_disk(tmp_path):
    """256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root, and not in every container")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def check_ends_with(code: TransportStatusCode, model, path: Path) -> None:
    """Record noise until the recording ends; all else goes on, and what is there is readable."""
    before = set(threading.enumerate())
    cameras = (CameraCfg("top", 160, 120, ("depth",), options=OPTIONS),)
    with open_context(model, cameras=cameras) as sim:
        recorder = sim.add_transport(McapTransport(path, chunk_size=10_000))
        reader = sim.add_transport(CameraPublicationTransport()).register("top", planes=(PlaneKind.DEPTH,))
        rng = np.random.default_rng(0)
        steps = 0
        while recorder.status.ok and steps < 2000:
            sim.physics.batch.qpos[:, 0] = rng.uniform(-1, 1, 2)
            sim.step()
            recorder.flush(WAIT_S)
            steps += 1
        assert recorder.status.code is code
        assert str(path) in recorder.status.message
        reader.close()
        captures = sim.render_core.stats()["captures"]
        for _ in range(3):
            sim.step()
        assert sim.simulation_time_ns == (steps + 3) * STEP_NS
        assert sim.render_core.stats()["captures"] == captures, "a recording that has ended still has demand"
        assert sim.cameras["top"].data.info.simulation_time_ns == sim.simulation_time_ns
        if code is TransportStatusCode.DISK_FULL:
            assert ends_with_a_whole_record(path)
            recorded = [time // STEP_NS for time, _ in read_broken(path)["/top/depth/image"]]
            assert recorded == list(range(1, len(recorded) + 1))
            assert len(recorded) >= 1
    assert set(threading.enumerate()) == before


def test_a_full_disk_ends_the_recording_and_nothing_else(model, small_disk):
    check_ends_with(TransportStatusCode.DISK_FULL, model, small_disk / "run.mcap")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_file_that_cannot_be_opened_leaves_nothing_behind(tmp_path):
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="No space left"):
        McapTransport("/dev/full")
    with pytest.raises(OSError, match="No such file"):
        McapTransport(tmp_path / "nowhere" / "run.mcap")
    assert set(threading.enumerate()) == before


class TestBadInput:
    @pytest.fixture(autouse=True)
    def _leaves_nothing_behind(self, tmp_path):
        before = set(threading.enumerate())
        yield
        assert set(threading.enumerate()) == before

    def test_namespace_that_ros_does_not_take(self, tmp_path):
        with pytest.raises(ValueError, match="'my-robot' has to be letters.*such as 'my_robot'"):
            McapTransport(tmp_path / "run.mcap", "/my-robot")
        assert not (tmp_path / "run.mcap").exists()

    @pytest.mark.parametrize("setting", [{"environment": -1}, {"interval_ns": 0}])
    def test_values_out_of_range(self, tmp_path, setting):
        with pytest.raises(ValueError, match=next(iter(setting))):
            McapTransport(tmp_path / "run.mcap", **setting)
        assert not (tmp_path / "run.mcap").exists()

    def test_environment_that_is_not_there(self, model, tmp_path):
        with open_context(model) as sim, pytest.raises(ValueError, match="environment 2 .*there are 2"):
            sim.add_transport(McapTransport(tmp_path / "run.mcap", environment=2))
