"""Visual vertices of a volume deformable as weighted sums of its simulation nodes.

A point `p` in a tetrahedron with corners `x_0 ... x_3` is `p = sum_k w_k x_k` with `sum_k w_k = 1`. The weights, found
once at rest, let the point follow the corners wherever the simulation takes them.
"""

import logging
from dataclasses import dataclass

import numpy as np
import warp as wp
from numpy.typing import ArrayLike, NDArray

__all__ = ["VolumeVisRemap", "build_volume_vis_barycentric_remap"]

_log = logging.getLogger(__name__)

# A tetrahedron that is thinner than this, relative to its longest edge, has no weights worth computing.
_FLAT = 1e-6
# Rounding puts a vertex that lies on the hull this far outside of it, relative to the size of the simulation mesh.
_ROUNDING = 1e-5
_FACES = ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))


@dataclass
class VolumeVisRemap:
    """Where each visual vertex sits in the simulation mesh, as `SceneDataFormat.WeightedPoints` takes it.

    Attributes:
        tet_vertex_indices: Four simulation nodes per visual vertex, int32 of shape (vis_count, 4).
        bary_weights: Weights of these nodes, float32 of shape (vis_count, 4); each row sums to 1.
    """

    tet_vertex_indices: wp.array2d(dtype=wp.int32)
    bary_weights: wp.array2d(dtype=wp.float32)


def build_volume_vis_barycentric_remap(
    sim_vertices: ArrayLike, tets: ArrayLike, vis_vertices: ArrayLike, device: str = "cpu"
) -> VolumeVisRemap | None:
    """Find for each visual vertex the tetrahedron that carries it, and its barycentric weights there.

    A vertex outside of all tetrahedra goes to the nearest one (of several equally near, to the one that it extends
    least) and is extrapolated from it, so that the rest shape stays what it is; one warning says how many there are.
    Tetrahedra without volume carry nothing.

    Args:
        sim_vertices: Simulation nodes at rest [m], shape (sim_count, 3).
        tets: Four nodes per tetrahedron, shape (4 * tet_count,) or (tet_count, 4).
        vis_vertices: Visual vertices at rest, in the same frame [m], shape (vis_count, 3).
        device: Where to search, and where the result lies.

    Returns:
        The weights, or None where there is nothing to weigh: no visual vertex, or no tetrahedron with a volume.

    Raises:
        ValueError: A position is not finite, or a tetrahedron has not four nodes or names one that is not there.
    """
    nodes, points = _positions(sim_vertices, "sim_vertices"), _positions(vis_vertices, "vis_vertices")
    corners = _corners(tets, len(nodes))
    corners = corners[_has_volume(nodes, corners)]
    if not len(corners) or not len(points):
        return None
    # The boxes are in single precision, which is finest around the origin.
    low, high = nodes[corners].min(axis=(0, 1)), nodes[corners].max(axis=(0, 1))
    center, size = 0.5 * (low + high), float(np.linalg.norm(high - low))
    tetrahedra = _Tetrahedra(nodes - center, corners, size, device)
    centered = wp.array(points - center, dtype=wp.vec3d, device=device)
    carriers, distances = tetrahedra.carriers(centered)
    outside = distances > _ROUNDING * size
    if outside.any():
        _log.warning(
            "%d of %d visual vertices lie outside of the tetrahedra, by up to %.3g m; each was clamped to the nearest "
            "tetrahedron, from which it is extrapolated.",
            np.count_nonzero(outside),
            len(points),
            distances.max(),
        )
    return tetrahedra.weigh(centered, carriers)


def _positions(values: ArrayLike, name: str) -> NDArray[np.float64]:
    positions = np.asarray(values, dtype=np.float64).reshape(-1, 3)
    finite = np.isfinite(positions).all(axis=1)
    if not finite.all():
        raise ValueError(f"{name} holds positions that are not finite, the first at {np.argmin(finite)}.")
    return positions


def _corners(tets: ArrayLike, node_count: int) -> NDArray[np.int32]:
    corners = np.asarray(tets, dtype=np.int32)
    if corners.size % 4:
        raise ValueError(f"tets holds four nodes for each tetrahedron, and {corners.size} is no multiple of four.")
    if corners.size and not 0 <= corners.min() <= corners.max() < node_count:
        raise ValueError(f"tets names nodes {corners.min()} to {corners.max()}, of which there are {node_count}.")
    return corners.reshape(-1, 4)


def _has_volume(nodes: NDArray[np.float64], corners: NDArray[np.int32]) -> NDArray[np.bool_]:
    points = nodes[corners]
    edges = points[:, [1, 2, 3, 2, 3, 3]] - points[:, [0, 0, 0, 1, 1, 2]]
    longest = np.linalg.norm(edges, axis=2).max(axis=1, initial=0.0)
    volume = np.abs(np.einsum("ij,ij->i", edges[:, 0], np.cross(edges[:, 1], edges[:, 2])))
    return volume > _FLAT * longest**3


class _Tetrahedra:
    """Tetrahedra around the origin, in a bounding volume hierarchy.

    `size` is the diagonal of their bounds, which also says what rounding is.
    """

    def __init__(self, nodes: NDArray[np.float64], corners: NDArray[np.int32], size: float, device: str):
        self._corners = corners
        self._size = size
        self._rounding = _ROUNDING * size
        self._device = device
        self._nodes = wp.array(nodes, dtype=wp.vec3d, device=device)
        self._tets = wp.array(corners, dtype=wp.vec4i, device=device)
        points = nodes[corners]
        lower = wp.array(points.min(axis=1) - self._rounding, dtype=wp.vec3f, device=device)
        upper = wp.array(points.max(axis=1) + self._rounding, dtype=wp.vec3f, device=device)
        self._boxes = wp.Bvh(lower, upper)

    def carriers(self, points: wp.array) -> tuple[wp.array, NDArray[np.float32]]:
        """Tetrahedron that carries each point, int32, and how far the point lies outside of it [m]."""
        carriers = wp.zeros(len(points), dtype=wp.int32, device=self._device)
        distances = wp.zeros(len(points), dtype=wp.float32, device=self._device)
        search = [self._boxes.id, self._nodes, self._tets, self._rounding]
        wp.launch(_find_around, len(points), [*search, points], [carriers], device=self._device)
        if len(rows := np.flatnonzero(carriers.numpy() < 0)):
            faces, face_tets = self._faces()
            outside = wp.array(rows, dtype=wp.int32, device=self._device)
            inputs = [*search, faces.id, face_tets, self._size, points, outside]
            wp.launch(_find_nearest, len(rows), inputs, [carriers, distances], device=self._device)
        return carriers, distances.numpy()

    def weigh(self, points: wp.array, carriers: wp.array) -> VolumeVisRemap:
        indices = wp.empty((len(points), 4), dtype=wp.int32, device=self._device)
        weights = wp.empty((len(points), 4), dtype=wp.float32, device=self._device)
        inputs = [self._nodes, self._tets, points, carriers]
        wp.launch(_weigh, len(points), inputs, [indices, weights], device=self._device)
        return VolumeVisRemap(indices, weights)

    def _faces(self) -> tuple[wp.Mesh, wp.array]:
        """All faces, and the tetrahedron that each belongs to."""
        corners = self._corners[:, _FACES].reshape(-1)
        owners = np.repeat(np.arange(len(self._corners), dtype=np.int32), len(_FACES))
        nodes = wp.array(self._nodes.numpy(), dtype=wp.vec3f, device=self._device)
        mesh = wp.Mesh(nodes, wp.array(corners, dtype=wp.int32, device=self._device))
        return mesh, wp.array(owners, dtype=wp.int32, device=self._device)


@wp.func
def barycentric(nodes: wp.array(dtype=wp.vec3d), tet: wp.vec4i, point: wp.vec3d) -> wp.vec4d:
    """Weights of a point, each a ratio of volumes."""
    origin = nodes[tet[0]]
    a = nodes[tet[1]] - origin
    b = nodes[tet[2]] - origin
    c = nodes[tet[3]] - origin
    p = point - origin
    volume = wp.dot(a, wp.cross(b, c))
    wa = wp.dot(p, wp.cross(b, c)) / volume
    wb = wp.dot(p, wp.cross(c, a)) / volume
    wc = wp.dot(p, wp.cross(a, b)) / volume
    return wp.vec4d(wp.float64(1.0) - wa - wb - wc, wa, wb, wc)


@wp.func
def heights(nodes: wp.array(dtype=wp.vec3d), tet: wp.vec4i) -> wp.vec4d:
    """Distance of each corner from the plane of the other three [m]."""
    origin = nodes[tet[0]]
    a = nodes[tet[1]] - origin
    b = nodes[tet[2]] - origin
    c = nodes[tet[3]] - origin
    volume = wp.abs(wp.dot(a, wp.cross(b, c)))
    return wp.vec4d(
        volume / wp.length(wp.cross(b - a, c - a)),
        volume / wp.length(wp.cross(b, c)),
        volume / wp.length(wp.cross(c, a)),
        volume / wp.length(wp.cross(a, b)),
    )


@wp.func
def find_carrier(
    boxes: wp.uint64,
    nodes: wp.array(dtype=wp.vec3d),
    tets: wp.array(dtype=wp.vec4i),
    rounding: float,
    contact: wp.vec3d,
    point: wp.vec3d,
) -> int:
    """Of the tetrahedra that hold `contact`, up to rounding, the one that is extended least to reach `point`.

    A contact on a face, an edge or a corner is in several. -1 if it is in none.
    """
    carrier = wp.int32(-1)
    best = wp.float64(0.0)
    candidate = wp.int32(0)
    query = wp.bvh_query_aabb(boxes, wp.vec3f(contact), wp.vec3f(contact))
    while wp.bvh_query_next(query, candidate):
        tet = tets[candidate]
        if wp.min(wp.cw_mul(barycentric(nodes, tet, contact), heights(nodes, tet))) >= wp.float64(-rounding):
            lowest = wp.min(barycentric(nodes, tet, point))
            # Equals go by their number, so that the order of the search decides nothing.
            if carrier < 0 or lowest > best or (lowest == best and candidate < carrier):
                best = lowest
                carrier = candidate
    return carrier


@wp.kernel(module="unique", enable_backward=False)
def _find_around(
    boxes: wp.uint64,
    nodes: wp.array(dtype=wp.vec3d),
    tets: wp.array(dtype=wp.vec4i),
    rounding: float,
    points: wp.array(dtype=wp.vec3d),
    carriers: wp.array(dtype=wp.int32),
):
    """Tetrahedron around each point, or -1."""
    i = wp.tid()
    carriers[i] = find_carrier(boxes, nodes, tets, rounding, points[i], points[i])


@wp.kernel(module="unique", enable_backward=False)
def _find_nearest(
    boxes: wp.uint64,
    nodes: wp.array(dtype=wp.vec3d),
    tets: wp.array(dtype=wp.vec4i),
    rounding: float,
    faces: wp.uint64,
    face_tets: wp.array(dtype=wp.int32),
    reach: float,
    points: wp.array(dtype=wp.vec3d),
    outside: wp.array(dtype=wp.int32),
    carriers: wp.array(dtype=wp.int32),
    distances: wp.array(dtype=wp.float32),
):
    """Tetrahedron nearest to each point that is outside of all, and how far away that is."""
    i = outside[wp.tid()]
    point = wp.vec3f(points[i])
    nearest = wp.mesh_query_point_no_sign(faces, point, reach + wp.length(point))
    contact = wp.mesh_eval_position(faces, nearest.face, nearest.u, nearest.v)
    carrier = find_carrier(boxes, nodes, tets, rounding, wp.vec3d(contact), points[i])
    if carrier < 0:
        carrier = face_tets[nearest.face]
    carriers[i] = carrier
    distances[i] = wp.length(point - contact)


@wp.kernel(module="unique", enable_backward=False)
def _weigh(
    nodes: wp.array(dtype=wp.vec3d),
    tets: wp.array(dtype=wp.vec4i),
    points: wp.array(dtype=wp.vec3d),
    carriers: wp.array(dtype=wp.int32),
    indices: wp.array2d(dtype=wp.int32),
    weights: wp.array2d(dtype=wp.float32),
):
    i = wp.tid()
    tet = tets[carriers[i]]
    row = barycentric(nodes, tet, points[i])
    for corner in range(4):
        indices[i, corner] = tet[corner]
        weights[i, corner] = wp.float32(row[corner])
