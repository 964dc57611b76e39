"""Camera frames over ROS 2: through rclpy where there is one, else straight onto its DDS wire."""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from scene_data.optional import optional_libraries

from .topics import TopicTransport
from .wire import Wire

__all__ = ["Ros2Transport"]

_DEFAULT_DOMAIN = 0
_LAST_DOMAIN = 232


class Ros2Transport(TopicTransport):
    """Publishes the cameras of one environment to ROS 2 nodes.

    Images, camera info and transforms are reliable and volatile, the clock is best effort, as ROS 2's own nodes have
    it. A subscriber that does not read loses frames and holds nobody up. Without rclpy the transport is a participant
    of the DDS domain: subscribers match its topics, while `ros2 node list` does not know it.

    Args:
        namespace: Before the cameras' names.
        domain_id: ROS 2 domain; None is ROS_DOMAIN_ID, or 0.
        **settings: See `TopicTransport`.

    Raises:
        MissingDependencyError: Neither rclpy nor cyclonedds is installed.
        TransportError: The middleware cannot be opened.
        ValueError: A domain that is no number from 0 to 232; also see `TopicTransport`.
    """

    def __init__(self, namespace: str = "", *, domain_id: int | None = None, **settings: Any):
        domain = _checked_domain(domain_id)
        super().__init__(lambda: _open_wire(domain), namespace, **settings)


def _open_wire(domain: int) -> Wire:
    """The wire of whichever middleware is installed."""
    if find_spec("rclpy") is not None:
        return import_module(".ros2_rclpy", __package__).RclpyWire(domain)
    with optional_libraries("Publishing over ROS 2 without rclpy"):
        return import_module(".ros2_cyclonedds", __package__).CycloneDdsWire(domain)


def _checked_domain(domain_id: int | None) -> int:
    given = os.environ.get("ROS_DOMAIN_ID") or _DEFAULT_DOMAIN if domain_id is None else domain_id
    try:
        domain = int(given)
    except ValueError:
        domain = -1
    if not 0 <= domain <= _LAST_DOMAIN:
        raise ValueError(f"a ROS 2 domain is a number from 0 to {_LAST_DOMAIN}, not {given!r}")
    return domain
