"""Contacts in viser: a disc where bodies touch, and an arrow along the force."""

import numpy as np
import viser
from numpy.typing import NDArray

from scene_data.contacts import Contacts
from scene_data.extra_geometry import PRIMITIVES, GeometryBatch
from scene_data.geometry_sources import PackedGeometry
from scene_data.provider import SceneDataProvider
from scene_data.scene import SceneDescription

from .viser_markers import ViserMarkers

__all__ = ["ViserContacts", "contact_geometry"]

_POINT_RGBA = (0.95, 0.55, 0.1, 1.0)
_FORCE_RGBA = (0.85, 0.2, 0.2, 1.0)
_POINT_RADIUS = 0.015
_POINT_THICKNESS = 0.004
_LONGEST_ARROW = 0.3
_FORGETTING = 0.99


class ViserContacts:
    """What touches what, in the environments that are shown. Nothing is read while it is hidden.

    Args:
        server: Where to show it.
        root: Path of the node to put it below.
        provider: Knows of the contacts.
        scene: What there is.
        env_ids: The environments to show, `(E,)`.
        offsets: Where each is moved to [m], `(E, 3)`.

    Attributes:
        is_shown: Whether it is shown.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        root: str,
        provider: SceneDataProvider,
        scene: SceneDescription,
        env_ids: NDArray[np.int64],
        offsets: NDArray[np.float64],
    ):
        self.is_shown = False
        self._provider = provider
        self._extent = scene.extent
        self._env_ids = env_ids
        self._num_envs = max(scene.num_envs, 1)
        self._markers = ViserMarkers(server, root, env_ids, offsets)
        self._contacts: Contacts | None = None
        self._strongest = 0.0

    @staticmethod
    def are_told_by(provider: SceneDataProvider) -> bool:
        """Whether the engine tells its contacts."""
        return provider.get_contacts(np.zeros(0, np.int64)) is not None

    def read(self) -> None:
        """Fetch the present contacts, if they are shown."""
        self._contacts = self._provider.get_contacts(self._env_ids) if self.is_shown else None

    def send(self) -> None:
        """Show them in place of those before."""
        contacts = self._contacts
        if contacts is None or not len(contacts):
            self._markers.show(None)
            return
        # The strongest force of the last moments has the longest arrow.
        strongest = float(np.linalg.norm(contacts.forces, axis=1).max())
        self._strongest = max(strongest, _FORGETTING * self._strongest)
        scale = _LONGEST_ARROW * self._extent / self._strongest if self._strongest > 0.0 else 0.0
        batch = contact_geometry(contacts, scale, self._extent)
        room = (len(batch),) * len(PRIMITIVES)
        self._markers.show(PackedGeometry.of(batch, self._num_envs, room))


def contact_geometry(contacts: Contacts, metres_per_newton: float, extent: float) -> GeometryBatch:
    """Discs at the contacts, and arrows along their forces, for a scene of this size [m]."""
    half = 0.5 * _POINT_THICKNESS * extent * contacts.normals
    points = GeometryBatch.cylinders(
        contacts.positions - half,
        contacts.positions + half,
        _POINT_RADIUS * extent,
        rgba=_POINT_RGBA,
        envs=contacts.envs,
    )
    pushing = np.linalg.norm(contacts.forces, axis=1) * metres_per_newton > _POINT_THICKNESS * extent
    starts = contacts.positions[pushing]
    arrows = GeometryBatch.arrows(
        starts,
        starts + metres_per_newton * contacts.forces[pushing],
        width=0.4 * _POINT_RADIUS * extent,
        rgba=_FORCE_RGBA,
        envs=contacts.envs[pushing],
    )
    return GeometryBatch.concatenate((points, arrows))
