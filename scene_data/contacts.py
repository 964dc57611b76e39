"""Contacts as an engine tells them, for whoever draws them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Contacts"]


@dataclass(frozen=True, eq=False)
class Contacts:
    """Points where bodies touch, in the frames of their environments.

    Attributes:
        envs: Environment of each, int64 `(M,)`.
        positions: `(M, 3)` [m].
        normals: Unit vectors from the first body to the second, `(M, 3)`.
        forces: Of the first body on the second, `(M, 3)` [N].
    """

    envs: NDArray[np.int64]
    positions: NDArray[np.float64]
    normals: NDArray[np.float64]
    forces: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.envs)

    @classmethod
    def concatenate(cls, parts: Iterable["Contacts"]) -> "Contacts":
        """All of them, in order."""
        parts = [_NONE, *parts]
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("envs", "positions", "normals", "forces")
            )
        )


_NONE = Contacts(np.zeros(0, np.int64), np.zeros((0, 3)), np.zeros((0, 3)), np.zeros((0, 3)))
