"""A subscriber to ROS 2 images with a participant of its own, as each node has one."""

import time

from cyclonedds.domain import DomainParticipant
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from scene_data.renderers.transports.ros2_cyclonedds import DDS_TYPES, dds_topic
from scene_data.renderers.transports.wire import MessageType

_TIMEOUT_S = 40.0


class Ros2Subscriber:
    """One reader of a topic."""

    def __init__(self, domain: int, topic: str):
        participant = DomainParticipant(domain)
        qos = Qos(
            Policy.Reliability.Reliable(duration(milliseconds=100)),
            Policy.History.KeepLast(10),
            Policy.DataRepresentation(use_cdrv0_representation=True),
        )
        self._reader = DataReader(participant, Topic(participant, dds_topic(topic), DDS_TYPES[MessageType.IMAGE]), qos)

    def next(self) -> tuple[int, int]:
        """Height and width of the next image.

        Raises:
            TimeoutError: None comes.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            for message in self._reader.take(1):
                if message.sample_info.valid_data:
                    return message.height, message.width
            time.sleep(0.002)
        raise TimeoutError("no image comes")

    def close(self) -> None:
        del self._reader
