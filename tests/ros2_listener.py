"""A DDS reader as a ROS 2 node has it, which prints what it hears: python ros2_listener.py DOMAIN TOPIC TYPE.

It decodes with the library's own machinery, not with ours.
"""

import hashlib
import sys
import time

from cyclonedds.domain import DomainParticipant
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from scene_data.renderers.transports.ros2_cyclonedds import DDS_TYPES, dds_topic
from scene_data.renderers.transports.wire import MessageType

domain, topic, type_name = sys.argv[1:]
message_type = MessageType(type_name)


def say(*words: object) -> None:
    print(*words, flush=True)


def nanoseconds(stamp) -> int:
    return stamp.sec * 10**9 + stamp.nanosec


def tell(message) -> None:
    match message_type:
        case MessageType.IMAGE:
            digest = hashlib.sha256(bytes(message.data)).hexdigest()
            shape = message.height, message.width, message.step
            say(nanoseconds(message.header.stamp), message.header.frame_id, message.encoding, *shape, digest)
        case MessageType.CAMERA_INFO:
            say(nanoseconds(message.header.stamp), message.header.frame_id, *message.k)
        case MessageType.TRANSFORMS:
            for stamped in message.transforms:
                p, q = stamped.transform.translation, stamped.transform.rotation
                frames = stamped.header.frame_id, stamped.child_frame_id
                say(nanoseconds(stamped.header.stamp), *frames, p.x, p.y, p.z, q.x, q.y, q.z, q.w)
        case MessageType.CLOCK:
            say(nanoseconds(message.clock))


participant = DomainParticipant(int(domain))
reliable = Policy.Reliability.Reliable(duration(milliseconds=100))
reader = DataReader(
    participant,
    Topic(participant, dds_topic(topic), DDS_TYPES[message_type]),
    Qos(
        Policy.Reliability.BestEffort if message_type is MessageType.CLOCK else reliable,
        Policy.History.KeepLast(10),
        Policy.DataRepresentation(use_cdrv0_representation=True),
    ),
)
while True:
    for message in reader.take(10):
        if message.sample_info.valid_data:  # and not the end of a writer
            tell(message)
    time.sleep(0.002)
