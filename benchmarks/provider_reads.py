"""What a read costs when nothing is new, and what importing the package costs.

Prints ratios of medians from interleaved runs, since absolute times say more about the machine than about the code.
Run: python benchmarks/provider_reads.py
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import warp as wp

from scene_data import SceneDataBackend, SceneDataFormat, SceneDataProvider

TRANSFORM_COUNT = 1_000
ROUNDS = 41
READS_PER_ROUND = 200
IMPORT_ROUNDS = 15


def seconds_per_call(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def import_seconds(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def interleaved(first: Callable[[], float], second: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Medians of two measurements that take turns."""
    pairs = [(first(), second()) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def measure_reads(target_format, mapped: bool) -> tuple[float, float]:
    backend = SceneDataBackend()
    backend.transforms = SceneDataFormat.Transform()
    poses = np.tile(np.array([1, 2, 3, 0, 0, 0, 1], dtype=np.float32), (TRANSFORM_COUNT, 1))
    backend.transforms.transforms = wp.array(poses, dtype=wp.transformf, device="cpu")
    backend.transforms_timestamp = 0
    provider = SceneDataProvider(backend)
    output = target_format()
    order = np.arange(TRANSFORM_COUNT, dtype=np.int32)[::-1]
    mapping = wp.array(order, dtype=wp.int32, device="cpu") if mapped else None

    def clean_read() -> None:
        provider.get_transforms(output, mapping)

    def converting_read() -> None:
        backend.transforms_timestamp += 1
        provider.get_transforms(output, mapping)

    converting_read()
    return interleaved(
        lambda: seconds_per_call(clean_read, READS_PER_ROUND),
        lambda: seconds_per_call(converting_read, READS_PER_ROUND),
        ROUNDS,
    )


def main() -> None:
    wp.config.quiet = True
    print(f"get_transforms, {TRANSFORM_COUNT} transforms published as Transform (limit 0.1)")
    for target_format in (SceneDataFormat.Vec3_Quat, SceneDataFormat.Matrix44, SceneDataFormat.TransposedMatrix44d):
        for mapped in (False, True):
            clean, converting = measure_reads(target_format, mapped)
            name = target_format.__name__ + (" mapped" if mapped else "")
            print(
                f"  {name:28} clean {clean * 1e6:5.1f} us  converting {converting * 1e6:5.1f} us"
                f"  ratio {clean / converting:.3f}"
            )
    ours, warp = interleaved(lambda: import_seconds("scene_data"), lambda: import_seconds("warp"), IMPORT_ROUNDS)
    print("import (limit 1.3)")
    print(f"  scene_data {ours * 1e3:.0f} ms  warp {warp * 1e3:.0f} ms  ratio {ours / warp:.2f}")


if __name__ == "__main__":
    main()
