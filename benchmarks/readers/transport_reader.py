"""The other side of `transports.py`, in a process of its own: python transport_reader.py WIRE ADDRESS.

Prints the stamp of each frame [ns] and when it was there [ns of the monotonic clock]. Ends when its input does.
"""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.request import urlopen

NS_PER_S = 10**9
LOOK_S = 0.1

Tell = Callable[[int], None]


def tell(stamp_ns: int) -> None:
    arrival_ns = time.monotonic_ns()
    print(stamp_ns, arrival_ns, flush=True)


def read_ros1(topic: str, tell: Tell, ended: threading.Event) -> None:
    import rospy
    from sensor_msgs.msg import Image

    rospy.init_node("reader", anonymous=True, disable_signals=True)
    # As who wants the latest: what piles up in the socket is taken at once, and all but the last of it passed over.
    settings: dict[str, Any] = {"queue_size": 1, "buff_size": 2**24, "tcp_nodelay": True}
    rospy.Subscriber(topic, Image, lambda image: tell(image.header.stamp.to_nsec()), **settings)
    ended.wait()


def read_shared_memory(name: str, tell: Tell, ended: threading.Event) -> None:
    from scene_data.renderers import PlaneKind
    from scene_data.renderers.transports import SharedMemoryReader

    with SharedMemoryReader(name, timeout=10.0) as reader:
        last = 0
        while not ended.is_set():
            lease = reader.wait("cam", PlaneKind.RGB, last, LOOK_S)
            if lease is not None:
                with lease:
                    tell(lease.stamp.simulation_time_ns)
                    last = lease.sequence


def read_stream(url: str, tell: Tell, ended: threading.Event) -> None:
    with urlopen(f"{url}streams/cam/rgb") as stream:
        headers: dict[str, str] = {}
        while not ended.is_set():
            name, _, value = stream.readline().decode().strip().partition(": ")
            headers[name] = value
            if not name and "Content-Length" in headers:
                stream.read(int(headers["Content-Length"]))
                tell(int(headers["X-Simulation-Time-Ns"]))
                headers = {}


def read_mcap(path: str, tell: Tell, ended: threading.Event) -> None:
    from mcap.exceptions import EndOfFile
    from mcap.records import Channel, Message
    from mcap.stream_reader import StreamReader

    images: set[int] = set()
    with Path(path).open("rb") as file, suppress(EndOfFile):
        for record in StreamReader(_Following(file, ended)).records:  # pyright: ignore[reportArgumentType]
            if isinstance(record, Channel) and record.topic.endswith("/image_raw"):
                images.add(record.id)
            elif isinstance(record, Message) and record.channel_id in images:
                tell(record.log_time)


class _Following:
    """A file that grows: a read waits for what is not there yet."""

    def __init__(self, file: BinaryIO, ended: threading.Event):
        self._file = file
        self._ended = ended

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and not self._ended.is_set():
            more = self._file.read(size - len(data))
            data += more
            if not more:
                time.sleep(0.0005)
        return data


def read_ros2(address: str, tell: Tell, ended: threading.Event) -> None:
    from cyclonedds.core import ReadCondition, SampleState, WaitSet
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.qos import Policy, Qos
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration

    from scene_data.renderers.transports.ros2_cyclonedds import DDS_TYPES, dds_topic
    from scene_data.renderers.transports.wire import MessageType

    domain, topic = address.split(":")
    image = DDS_TYPES[MessageType.IMAGE]
    # The stamp alone: the library takes a sequence of bytes apart one by one.
    image.deserialize = classmethod(lambda cls, data, *_, **__: _Stamped.of(data))
    image.deserialize_key = classmethod(lambda cls, data, *_, **__: None)
    participant = DomainParticipant(int(domain))
    qos = Qos(
        Policy.Reliability.Reliable(duration(milliseconds=100)),
        Policy.History.KeepLast(10),
        Policy.DataRepresentation(use_cdrv0_representation=True),
    )
    reader = DataReader(participant, Topic(participant, dds_topic(topic), image), qos)
    waiting = WaitSet(participant)
    waiting.attach(ReadCondition(reader, SampleState.NotRead))
    while not ended.is_set():
        waiting.wait(duration(seconds=LOOK_S))
        for sample in reader.take(10):
            if isinstance(sample, _Stamped):
                tell(sample.stamp_ns)


@dataclass
class _Stamped:
    stamp_ns: int
    sample_info: Any = None

    @classmethod
    def of(cls, cdr: bytes) -> "_Stamped":
        seconds, nanoseconds = (int.from_bytes(cdr[start : start + 4], "little") for start in (4, 8))
        return cls(seconds * NS_PER_S + nanoseconds)


READERS: dict[str, Callable[[str, Tell, threading.Event], None]] = {
    "ros1": read_ros1,
    "ros2": read_ros2,
    "shm": read_shared_memory,
    "stream": read_stream,
    "mcap": read_mcap,
}


def main() -> None:
    wire, address = sys.argv[1:]
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    READERS[wire](address, tell, ended)


if __name__ == "__main__":
    main()
