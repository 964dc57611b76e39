"""Rerun recordings, read back with Rerun's own reader."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rerun.chunk import RrdReader
from rerun.error_utils import RerunWarning

__all__ = ["Recorded"]


class Recorded:
    """What a file holds.

    Attributes:
        static: Values of what has no time, by entity and component, the last ones that were sent.
        rows: Time on `sim_time` [s], count on `step`, and values of the rest, by entity and component, in the order of
            `step`.
    """

    def __init__(self, path: Path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RerunWarning)  # there is no index, on purpose
            reader = RrdReader(str(path))
        self._reader = reader
        self.recordings = reader.recordings()
        self.blueprints = reader.blueprints()
        self.static: dict[tuple[str, str], Any] = {}
        self.rows: dict[tuple[str, str], list[tuple[float, int, Any]]] = {}
        self.timelines: set[str] = set()
        sent_last: dict[tuple[str, str], bytes] = {}
        for chunk in reader.stream(store=self.recordings[0]):
            batch = chunk.to_record_batch()
            self.timelines |= set(chunk.timeline_names)
            for name in batch.schema.names:
                if ":" not in name:
                    continue
                column = batch.column(name)
                for row in range(chunk.num_rows):
                    if not column[row].is_valid:
                        continue
                    key = (chunk.entity_path, name)
                    if chunk.is_static:
                        # Chunks come in any order; ids of rows grow with the time of their sending.
                        row_id = batch.column("rerun.controls.RowId")[row].as_py()
                        if row_id > sent_last.get(key, b""):
                            sent_last[key] = row_id
                            self.static[key] = _values(column[row])
                    else:
                        seconds = batch.column("sim_time")[row].value * 1e-9
                        step = batch.column("step")[row].as_py()
                        self.rows.setdefault(key, []).append((seconds, step, _values(column[row])))
        for rows in self.rows.values():
            rows.sort(key=lambda row: row[1])

    @property
    def entities(self) -> set[str]:
        return {entity for entity, _ in (*self.static, *self.rows)}

    def of_blueprints(self, component: str) -> list[list[float]]:
        """Values of a component in all that says how the recording is shown."""
        values = []
        for store in self.blueprints:
            for chunk in self._reader.stream(store=store):
                batch = chunk.to_record_batch()
                if component in batch.schema.names:
                    values += [value for cell in batch.column(component).to_pylist() if cell for value in cell]
        return values

    def last(self, entity: str, component: str) -> np.ndarray:
        """The last value."""
        return np.array(self.rows[entity, component][-1][2])


def _values(cell: Any) -> Any:
    return cell.as_py()
