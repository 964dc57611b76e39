"""`--publish`: transports that a command line names."""

from typing import Any

from rich.table import Table

from scene_data.registry import transports
from scene_data.simulation import SimulationContext

__all__ = ["Publications", "open_transport"]

_FLUSH_TIMEOUT_S = 10.0


def open_transport(text: str) -> Any:
    """The transport that `ros1:/robot`, `ros2:/robot` or `mcap:run.mcap` stands for.

    Raises:
        UnknownNameError: No such transport.
        ValueError: The address is missing, or cannot be used.
        MissingDependencyError: A library is missing.
        TransportError: Nobody answers there.
        OSError: The file cannot be written.
    """
    scheme, _, address = text.partition(":")
    transport = transports.get(scheme)
    if not address:
        raise ValueError(f"--publish {text!r} needs an address, such as {scheme}:/robot or mcap:run.mcap")
    return transport(address)


class Publications:
    """What a run publishes.

    Unlike a live simulation, a command that writes files may wait: after each capture it lets all of it go out.

    Args:
        sim: What is published.
        texts: Where to, as the user wrote it.
    """

    def __init__(self, sim: SimulationContext, texts: tuple[str, ...]):
        self._sim = sim
        self._transports = {text: sim.add_transport(open_transport(text)) for text in texts}

    def flush(self) -> None:
        """Wait until what was captured went out."""
        for transport in self._transports.values():
            transport.flush(_FLUSH_TIMEOUT_S)

    def finish(self, table: Table) -> None:
        """Close the transports, and add a row for each to the closing table."""
        for text, transport in self._transports.items():
            status = transport.status
            self._sim.remove_transport(transport)
            counts = transport.counts().values()
            published, dropped = sum(count.published for count in counts), sum(count.dropped for count in counts)
            trouble = "" if status.ok else f"; {status.code.name}: {status.message}"
            table.add_row(text, f"{published:,} captures published, {dropped:,} dropped{trouble}")
