"""The web server behind a viser page: on exactly the port that was asked for."""

import contextlib
import io
import logging

import viser

from .ports import PortInUseError, listening_port
from .viser_cfg import ViserVisualizerCfg

__all__ = ["open_server"]

_CONSUMER = "viser viewer"

# A browser that opens a connection and thinks better of it is nothing to tell people about.
logging.getLogger("websockets.server").addHandler(logging.NullHandler())


def open_server(cfg: ViserVisualizerCfg, label: str) -> viser.ViserServer:
    """A server on exactly the port that was asked for: viser itself would quietly take the next one.

    Raises:
        PortInUseError: Somebody else listens on it.
    """
    listening_port(_CONSUMER, cfg.bind_address, cfg.port)
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(cfg.bind_address, cfg.port, label=label or None, verbose=False)
        if cfg.port not in (0, server.get_port()):
            server.stop()
            raise PortInUseError(_CONSUMER, cfg.bind_address, cfg.port, "somebody else took it just now")
    return server
