"""`scene-data render --publish`: what goes where, and what a mistake says."""

import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from listening import Listener, digest, wait_until
from real_models import ROBOTS
from ros_rigs import open_ros1, open_ros2

from scene_data.cli import main

ARGUMENTS = ["render", "demo", "--steps", "4", "--every", "2", "--camera", "front:32x24:rgb,depth"]


def failure(capsys, *arguments: str) -> str:
    before = set(threading.enumerate())
    with pytest.raises(SystemExit) as error:
        main([*ARGUMENTS, *arguments])
    assert error.value.code == 2
    assert set(threading.enumerate()) == before
    return capsys.readouterr().err


def test_every_capture_is_recorded(tmp_path, capsys):
    pytest.importorskip("mcap", reason="the extra 'mcap' is not installed")
    from mcap.reader import make_reader

    path = tmp_path / "run.mcap"
    main([*ARGUMENTS, "--out", str(tmp_path / "out"), "--publish", f"mcap:{path}"])
    assert "3 captures published, 0 dropped" in capsys.readouterr().out
    with path.open("rb") as file:
        topics = [channel.topic for _, channel, _ in make_reader(file).iter_messages()]
    for topic in ("image_raw", "camera_info", "depth/image", "depth/camera_info"):
        assert topics.count(f"/front/{topic}") == 3
    assert topics.count("/tf") == 3


def test_two_wires_at_once(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mcap", reason="the extra 'mcap' is not installed")
    pytest.importorskip("cyclonedds", reason="the extra 'ros2' is not installed")
    monkeypatch.setenv("ROS_DOMAIN_ID", "231")
    monkeypatch.setenv("CYCLONEDDS_URI", "<General><Interfaces><NetworkInterface name='lo'/></Interfaces></General>")
    where = ["--publish", "ros2:/robot", "--publish", f"mcap:{tmp_path / 'run.mcap'}"]
    main([*ARGUMENTS, "--out", str(tmp_path / "out"), *where])
    printed = capsys.readouterr().out
    assert "0 captures published, 0 dropped" in printed, "nobody listened to ROS 2"
    assert "3 captures published, 0 dropped" in printed


def test_a_real_robot_on_every_wire_at_once(tmp_path, capsys):
    pytest.importorskip("mcap_ros2", reason="the extra 'mcap' is not installed")
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    (hand,) = (path for path in ROBOTS if path.match("hand/manipulate_block.xml"))
    path = tmp_path / "run.mcap"
    with ExitStack() as stack:
        listeners: dict[str, list[Listener]] = {"image_raw": [], "camera_info": [], "tf": []}
        for rig in (stack.enter_context(open_ros1()), stack.enter_context(open_ros2())):
            listeners["image_raw"].append(rig.listen("/robot/free/image_raw"))
            listeners["camera_info"].append(rig.listen("/robot/free/camera_info", "sensor_msgs/CameraInfo"))
            listeners["tf"].append(rig.listen("/tf", "tf2_msgs/TFMessage"))
        for listener in (listener for each in listeners.values() for listener in each):
            stack.callback(listener.kill)
        command = ["render", str(hand), "--camera", "free:320x240:rgb", "--steps", "600", "--every", "5"]
        where = ["--publish", "ros1:/robot", "--publish", "ros2:/robot", "--publish", f"mcap:{path}"]
        heard = [listener.heard for each in listeners.values() for listener in each]
        # A run waits for nobody; the next one is the same for those who were not there yet.
        wait_until(lambda: all(heard), "all is heard", lambda: main([*command, "--out", str(tmp_path / "out"), *where]))
    assert "121 captures published, 0 dropped" in capsys.readouterr().out
    recorded: dict[str, dict[str, Any]] = {}
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for _, channel, message, decoded in reader.iter_decoded_messages():
            recorded.setdefault(channel.topic, {})[str(message.log_time)] = decoded
    images = {
        stamp: digest(np.frombuffer(image.data, np.uint8)) for stamp, image in recorded["/free/image_raw"].items()
    }
    assert len(images) == 121
    assert len(set(images.values())) > 60, "the block falls out of the hand"
    for listener in listeners["image_raw"]:
        for stamp, frame, *_, heard in listener.heard:
            assert (frame, heard) == ("robot/free_optical_frame", images[stamp])
    for listener in listeners["camera_info"]:
        for stamp, _, *k in listener.heard:
            assert [float(value) for value in k] == recorded["/free/camera_info"][stamp].k
    for listener in listeners["tf"]:
        for stamp, parent, child, x, y, z, *_ in listener.heard:
            position = recorded["/tf"][stamp].transforms[0].transform.translation
            assert (parent, child) == ("world", "robot/free_optical_frame")
            assert (float(x), float(y), float(z)) == (position.x, position.y, position.z)


def test_mistakes(tmp_path, capsys, monkeypatch):
    out = ["--out", str(tmp_path)]
    assert "Unknown transport 'smoke'. Known: mcap, ros1, ros2" in failure(capsys, *out, "--publish", "smoke:signals")
    assert "needs an address, such as ros2:/robot" in failure(capsys, *out, "--publish", "ros2")
    missing = str(tmp_path / "nowhere" / "run.mcap")
    assert missing in failure(capsys, *out, "--publish", f"mcap:{missing}")
    assert "'my-robot' has to be letters" in failure(capsys, *out, "--publish", "ros2:/my-robot")


def test_no_master(tmp_path, capsys, monkeypatch):
    pytest.importorskip("rospy", reason="ROS 1's Python packages are not installed; see `make setup-ros`")
    monkeypatch.setenv("ROS_MASTER_URI", "http://127.0.0.1:1")
    message = failure(capsys, "--out", str(tmp_path), "--publish", "ros1:/robot")
    assert "MASTER_UNREACHABLE" in message
    assert "127.0.0.1:1" in message
