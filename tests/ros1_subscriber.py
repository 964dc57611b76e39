"""A subscriber to ROS 1 images by the letter of TCPROS: rospy has one connection for all subscribers of a process."""

import itertools
import socket
import struct
import time
import xmlrpc.client
from typing import Any

_TIMEOUT_S = 40.0
_numbers = itertools.count()


class Ros1Subscriber:
    """One connection to the publisher of a topic, waited for."""

    def __init__(self, master_uri: str, topic: str):
        caller = f"/subscriber_{next(_numbers)}"
        host, port = _address_of(master_uri, caller, topic)
        self._socket = socket.create_connection((host, port), _TIMEOUT_S)
        fields = {"callerid": caller, "topic": topic, "type": "sensor_msgs/Image", "md5sum": "*", "tcp_nodelay": "1"}
        self._socket.sendall(_counted(b"".join(_counted(f"{key}={value}".encode()) for key, value in fields.items())))
        answer = self._receive_counted()
        if b"error=" in answer:
            self.close()
            raise ConnectionError(answer.decode(errors="replace"))

    def next(self) -> tuple[int, int]:
        """Height and width of the next image."""
        message = self._receive_counted()
        (length,) = struct.unpack_from("<I", message, 12)  # of the frame id, after the sequence number and the stamp
        return struct.unpack_from("<II", message, 16 + length)

    def close(self) -> None:
        self._socket.close()

    def _receive_counted(self) -> bytes:
        (length,) = struct.unpack("<I", self._receive(4))
        return self._receive(length)

    def _receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self._socket.recv(length - len(data))
            if not part:
                raise ConnectionError("the publisher has gone")
            data += part
        return data


def _counted(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _address_of(master_uri: str, caller: str, topic: str) -> tuple[str, int]:
    master: Any = xmlrpc.client.ServerProxy(master_uri)
    deadline = time.monotonic() + _TIMEOUT_S
    while topic not in (published := dict(master.getSystemState(caller)[2][0])):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody publishes {topic}")
        time.sleep(0.02)
    publisher: Any = xmlrpc.client.ServerProxy(master.lookupNode(caller, published[topic][0])[2])
    _, _, (_, host, port) = publisher.requestTopic(caller, topic, [["TCPROS"]])
    return host, port
