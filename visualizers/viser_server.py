"""The web server behind a viser page: on exactly the port that was asked for."""

import contextlib
import io
import logging
import socket

import viser

from scene_data.errors import SceneDataError

from .viser_cfg import ViserVisualizerCfg

__all__ = ["PortInUseError", "open_server", "reachable"]

# A browser that opens a connection and thinks better of it is nothing to tell people about.
logging.getLogger("websockets.server").addHandler(logging.NullHandler())


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


def open_server(cfg: ViserVisualizerCfg, label: str) -> viser.ViserServer:
    """A server on exactly the port that was asked for: viser itself would quietly take the next one."""
    with socket.socket(socket.AF_INET6 if ":" in cfg.bind_address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((cfg.bind_address, cfg.port))
        except OSError as error:
            raise PortInUseError("viser viewer", cfg.bind_address, cfg.port, error.strerror or str(error)) from error
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(cfg.bind_address, cfg.port, label=label or None, verbose=False)
        if cfg.port not in (0, server.get_port()):
            server.stop()
            raise PortInUseError("viser viewer", cfg.bind_address, cfg.port, "somebody else took it just now")
    return server


def reachable(address: str) -> str:
    """An address to type in for one that stands for all of this machine's."""
    if address in ("0.0.0.0", "::", ""):
        return "localhost"
    return f"[{address}]" if ":" in address else address
