"""What a converting read costs for each pair of formats, and beside Isaac Lab's own provider.

Prints medians over rounds in which the readers take turns, in both orders: each pair as a ratio to one `warp.copy` of
the bytes that the read writes, and where Isaac Lab's wheel lies in build/peer (`make test-peer` fetches it), to the
same read by its provider.
Run: python benchmarks/format_pairs.py
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import warp as wp

from scene_data import SceneDataBackend, SceneDataFormat, SceneDataProvider

TRANSFORM_COUNT = 131_072
ROUNDS = 101
CLEAN_ROUNDS = 15
CLEAN_READS = 500
PEER = Path(__file__).resolve().parents[1] / "build" / "peer"
SOURCES = ("Vec3_Quat", "Vec3_Matrix33", "Transform", "Matrix44", "Vec3d_Matrix33d")
TARGETS = ("Vec3_Quat", "Vec3_Matrix33", "Transform", "Matrix44", "TransposedMatrix44d")


def seconds(call: Callable[[], object], calls: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def times_of(calls: list[Callable[[], object]], rounds: int, repeat: int = 1) -> np.ndarray:
    """Seconds of each call, shape (rounds, calls): all take turns, every other round from the last one to the first."""
    for call in calls:
        call()
    times = np.empty((rounds, len(calls)))
    order = list(range(len(calls)))
    for row in times:
        for index in order:
            row[index] = seconds(calls[index], repeat)
        order.reverse()
    return times


def ratio(times: np.ndarray, index: int, peer: int) -> float:
    """Median over the rounds of how often one call's time holds another's."""
    return float(np.median(times[:, index] / times[:, peer]))


def poses(name: str) -> Any:
    """Random poses in one of our formats."""
    random = np.random.default_rng(0)
    quaternions = random.normal(size=(TRANSFORM_COUNT, 4)).astype(np.float32)
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    backend = SceneDataBackend()
    backend.transforms = SceneDataFormat.Transform()
    packed = np.concatenate((random.normal(size=(TRANSFORM_COUNT, 3)).astype(np.float32), quaternions), axis=1)
    backend.transforms.transforms = wp.array(packed, dtype=wp.transformf, device="cpu")
    if name == "Vec3d_Matrix33d":
        single = poses("Vec3_Matrix33")
        struct = SceneDataFormat.Vec3d_Matrix33d()
        struct.positions = wp.array(single.positions.numpy().astype(np.float64), dtype=wp.vec3d, device="cpu")
        struct.orientations = wp.array(single.orientations.numpy().astype(np.float64), dtype=wp.mat33d, device="cpu")
        return struct
    output = getattr(SceneDataFormat, name)()
    SceneDataProvider(backend).get_transforms(output)
    return output


def arrays_of(struct: Any) -> list[wp.array]:
    return [getattr(struct, name) for name in struct._cls.vars]


def plain_copy(struct: Any) -> Callable[[], None]:
    """One `warp.copy` of as many bytes as the struct holds."""
    nbytes = sum(array.capacity for array in arrays_of(struct))
    source, target = (wp.zeros(nbytes // 4, dtype=wp.float32, device="cpu") for _ in range(2))
    return lambda: wp.copy(target, source)


class Reader:
    """One provider that reads one published struct in one format."""

    def __init__(self, formats: Any, provider_class: Any, backend: Any, published: Any, target: str):
        self.backend = backend
        self.published = getattr(formats, published._cls.__name__)()
        for name in published._cls.vars:
            setattr(self.published, name, getattr(published, name))
        backend.transforms = self.published
        self.touch()
        self.provider = provider_class(backend)
        self.output = getattr(formats, target)()
        self.works = self.clean()

    def touch(self) -> None:
        # Isaac Lab has renamed its timestamp between versions; a backend may carry both names.
        self.backend.transforms_timestamp = self.backend.transforms_version = time.monotonic_ns()

    def clean(self) -> bool:
        return self.provider.get_transforms(self.output)

    def converting(self) -> None:
        self.touch()
        self.provider.get_transforms(self.output)


def isaaclab() -> ModuleType | None:
    """Isaac Lab's scene_data modules from its wheel, or None."""
    wheels = sorted(PEER.glob("isaaclab-3*"))
    if not wheels:
        return None
    sys.path[:0] = [str(wheels[-1]), str(PEER / "dependencies")]
    import isaaclab.scene_data.scene_data_provider as peer  # pyright: ignore[reportMissingImports]

    return peer


def peer_reader(peer: ModuleType, published: Any, target: str) -> Reader | None:
    if not hasattr(peer.SceneDataFormat, published._cls.__name__):
        return None
    kind = type("Backend", (peer.SceneDataBackend,), {"transforms": None, "transform_count": TRANSFORM_COUNT})
    reader = Reader(peer.SceneDataFormat, peer.SceneDataProvider, kind(), published, target)
    return reader if reader.works else None


def main() -> None:
    wp.config.log_level = wp.LOG_ERROR
    peer = isaaclab()
    print(f"{TRANSFORM_COUNT:,} transforms" + ("" if peer else "; Isaac Lab's wheel is not in build/peer"))
    print(f"{'':40}{'converting':>12}{'/ copy':>8}{'/ peer':>8}{'clean':>10}{'/ peer':>8}")
    for source in SOURCES:
        published = poses(source)
        for target in TARGETS:
            if source == target:
                continue
            ours = Reader(SceneDataFormat, SceneDataProvider, SceneDataBackend(), published, target)
            theirs = peer_reader(peer, published, target) if peer else None
            readers = [ours] if theirs is None else [ours, theirs]
            copy = len(readers)
            converting = times_of([reader.converting for reader in readers] + [plain_copy(ours.output)], ROUNDS)
            clean = times_of([reader.clean for reader in readers], CLEAN_ROUNDS, CLEAN_READS)
            against = [f"{ratio(times, 0, 1):8.2f}" if theirs else f"{'-':>8}" for times in (converting, clean)]
            milliseconds, microseconds = np.median(converting[:, 0]) * 1e3, np.median(clean[:, 0]) * 1e6
            cost = f"{milliseconds:9.2f} ms{ratio(converting, 0, copy):8.2f}{against[0]}"
            print(f"{f'{source} to {target}':40}{cost}{microseconds:7.2f} us{against[1]}")


if __name__ == "__main__":
    main()
