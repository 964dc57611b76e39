"""Plots of scalars over simulation time, beside the scene."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import viser
from viser import uplot

__all__ = ["ViserPlots"]

_POINTS = 300
_SECONDS = 0.1
_COLOURS = ("#d03b3b", "#3f9b46", "#2a78c2")


class ViserPlots:
    """Plots that grow while somebody looks. A full one forgets its oldest point.

    Args:
        gui: Where they are shown.
        folder: The folder to show them in.
    """

    def __init__(self, gui: viser.GuiApi, folder: Any):
        self._gui = gui
        self._folder = folder
        self._plots: dict[str, _Plot] = {}
        self._due = 0.0

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the plots that there are."""
        return tuple(self._plots)

    def values(self, title: str) -> tuple[list[float], list[list[float]]]:
        """The times [s] of a plot's points, and the values of each of its curves."""
        plot = self._plots[title]
        return plot.times, plot.values

    def is_due(self) -> bool:
        """Whether it is time for another point: a curve that grows faster than people see costs more than it tells."""
        return time.monotonic() >= self._due

    def add(self, seconds: float, title: str, curves: Mapping[str, float]) -> None:
        """Add the present value of each curve of a plot at this simulation time [s]; `finish` shows them."""
        if title not in self._plots:
            with self._folder:
                self._plots[title] = _Plot(self._gui, title, tuple(curves))
        self._plots[title].add(seconds, list(curves.values()))

    def add_scalars(self, seconds: float, scalars: Mapping[str, Callable[[], float]]) -> None:
        """Add the present value of each scalar at this simulation time [s], each in a plot of its own."""
        for name, read in scalars.items():
            self.add(seconds, name, {name: float(read())})

    def finish(self) -> None:
        """Note that the points of this time were added."""
        self._due = time.monotonic() + _SECONDS

    def remove(self, title: str) -> None:
        """Remove a plot, if there is one of this title."""
        if plot := self._plots.pop(title, None):
            plot.handle.remove()


class _Plot:
    def __init__(self, gui: viser.GuiApi, title: str, curves: Sequence[str]):
        self.times: list[float] = []
        self.values: list[list[float]] = [[] for _ in curves]
        colours = _COLOURS if len(curves) > 1 else _COLOURS[::-1]
        series = [uplot.Series(label="time [s]")]
        series += [
            uplot.Series(label=name, stroke=colours[index % len(colours)], width=2) for index, name in enumerate(curves)
        ]
        flat = tuple(np.zeros(1) for _ in series)
        scales = {"x": uplot.Scale(time=False, auto=True)}
        self.handle = gui.add_uplot(flat, tuple(series), scales=scales, title=title, aspect=2.0)

    def add(self, seconds: float, values: Sequence[float]) -> None:
        # A time that was shown already, while paused or after a reset, is shown anew.
        while self.times and seconds <= self.times[-1]:
            self.times.pop()
            for each in self.values:
                each.pop()
        self.times.append(seconds)
        del self.times[:-_POINTS]
        for each, value in zip(self.values, values, strict=True):
            each.append(value)
            del each[:-_POINTS]
        self.handle.data = (np.array(self.times), *(np.array(each) for each in self.values))
