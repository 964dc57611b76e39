"""What it costs to carry visual vertices by tetrahedra, beside trying every tetrahedron for every vertex.

Both run on one CPU core, on the same jittered grid: vertices inside of it and, one in ten, outside. Times are medians.
Run: python benchmarks/vis_remap.py
"""

import itertools
import logging
import statistics
import time
from collections.abc import Callable

import numpy as np
import warp as wp

from scene_data.deformable_vis_remap import build_volume_vis_barycentric_remap

BRUTE_FORCE_CELLS = (6, 9, 12)
CELLS = (6, 9, 12, 16, 20, 26)
ROUNDS = 3


def tetrahedra(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """A cube of jittered cells, each cut into six tetrahedra along its diagonal."""
    axis = np.arange(cells + 1)
    nodes = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3) / cells
    nodes += np.random.default_rng(0).normal(0, 0.05 / cells, nodes.shape)
    strides = ((cells + 1) ** 2, cells + 1, 1)
    first = np.stack(np.meshgrid(axis[:-1], axis[:-1], axis[:-1], indexing="ij"), axis=-1).reshape(-1, 3) @ strides
    walks = [np.cumsum([0, *order]) for order in itertools.permutations(strides)]
    return nodes.astype(np.float32), np.concatenate([first[:, None] + walk for walk in walks]).astype(np.int32)


@wp.kernel(enable_backward=False)
def try_all(
    nodes: wp.array(dtype=wp.vec3f),
    tets: wp.array(dtype=wp.vec4i),
    points: wp.array(dtype=wp.vec3f),
    carriers: wp.array(dtype=wp.int32),
):
    i = wp.tid()
    best = wp.float32(-1.0e30)
    carrier = wp.int32(-1)
    for candidate in range(tets.shape[0]):
        tet = tets[candidate]
        x = nodes[tet[0]]
        edges = wp.matrix_from_cols(nodes[tet[1]] - x, nodes[tet[2]] - x, nodes[tet[3]] - x)
        weights = wp.inverse(edges) @ (points[i] - x)
        lowest = wp.min(wp.min(weights), 1.0 - weights[0] - weights[1] - weights[2])
        if lowest > best:
            best = lowest
            carrier = candidate
    carriers[i] = carrier


def brute_force(nodes: np.ndarray, tets: np.ndarray, points: np.ndarray) -> np.ndarray:
    carriers = wp.empty(len(points), dtype=wp.int32, device="cpu")
    inputs = [wp.array(nodes, dtype=wp.vec3f, device="cpu"), wp.array(tets, dtype=wp.vec4i, device="cpu")]
    inputs.append(wp.array(points, dtype=wp.vec3f, device="cpu"))
    wp.launch(try_all, len(points), inputs, [carriers], device="cpu")
    return carriers.numpy()


def median_seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    wp.config.log_level = wp.LOG_WARNING
    logging.disable(logging.WARNING)
    print("carrying as many visual vertices as there are tetrahedra")
    print(f"  {'tetrahedra':>10}  {'ours':>9}  {'per vertex':>10}  {'all tried':>9}  ratio")
    for cells in CELLS:
        nodes, tets = tetrahedra(cells)
        points = np.random.default_rng(1).uniform(-0.018, 1.018, (len(tets), 3)).astype(np.float32)
        if cells == CELLS[0]:
            build_volume_vis_barycentric_remap(nodes, tets, points)
            brute_force(nodes, tets, points)
        ours = median_seconds(lambda: build_volume_vis_barycentric_remap(nodes, tets, points))  # noqa: B023
        line = f"  {len(tets):10,}  {ours * 1e3:6.0f} ms  {ours / len(points) * 1e6:7.1f} us"
        if cells in BRUTE_FORCE_CELLS:
            peer = median_seconds(lambda: brute_force(nodes, tets, points))  # noqa: B023
            line += f"  {peer * 1e3:6.0f} ms  {peer / ours:5.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
