"""The ports that viewers listen on: exactly those that were asked for, and one clear error where one is taken."""

import socket

from scene_data.errors import SceneDataError

__all__ = ["PortInUseError", "listening_port", "reachable"]


class PortInUseError(SceneDataError, OSError):
    """A port that somebody else listens on.

    Attributes:
        address: The address.
        port: The port.
    """

    def __init__(self, consumer: str, address: str, port: int, reason: str):
        self.address = address
        self.port = port
        super().__init__(
            f"The {consumer} cannot listen on {address}:{port}: {reason}. Choose another port; 0 is a free one."
        )


def listening_port(consumer: str, address: str, port: int) -> int:
    """A port that one can listen on at present: this one, or for 0 a free one.

    Raises:
        PortInUseError: Somebody else listens on it, or the address is not this machine's.
    """
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise PortInUseError(consumer, address, port, error.strerror or str(error)) from error
        return probe.getsockname()[1]


def reachable(address: str) -> str:
    """An address to type in for one that stands for all of this machine's."""
    if address in ("0.0.0.0", "::", ""):
        return "localhost"
    return f"[{address}]" if ":" in address else address
