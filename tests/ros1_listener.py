"""A program that listens to one ROS 1 topic and prints what it hears: python ros1_listener.py TOPIC TYPE."""

import hashlib
import sys
from importlib import import_module

import rospy

topic, type_name = sys.argv[1:]
package, name = type_name.split("/")


def say(*words: object) -> None:
    print(*words, flush=True)


def tell(message) -> None:
    match name:
        case "Image":
            digest = hashlib.sha256(message.data).hexdigest()
            shape = message.height, message.width, message.step
            say(message.header.stamp.to_nsec(), message.header.frame_id, message.encoding, *shape, digest)
        case "CameraInfo":
            say(message.header.stamp.to_nsec(), message.header.frame_id, *message.K)
        case "TFMessage":
            for stamped in message.transforms:
                p, q = stamped.transform.translation, stamped.transform.rotation
                frames = stamped.header.frame_id, stamped.child_frame_id
                say(stamped.header.stamp.to_nsec(), *frames, p.x, p.y, p.z, q.x, q.y, q.z, q.w)
        case _:
            say(message.clock.to_nsec())


rospy.init_node("listener", anonymous=True, disable_signals=True)
rospy.Subscriber(topic, getattr(import_module(f"{package}.msg"), name), tell, buff_size=2**24, tcp_nodelay=True)
rospy.spin()
