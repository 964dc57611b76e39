"""`scene-data render --publish`: what goes where, and what a mistake says."""

import threading

import pytest

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
