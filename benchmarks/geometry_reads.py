"""What it costs to read points: a skin on its bones, and a cloth.

Prints ratios of medians from interleaved runs, since absolute times say more about the machine than about the code.
Run: python benchmarks/geometry_reads.py
"""

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import mujoco
import numpy as np
import warp as wp

from scene_data import SceneDataBackend, SceneDataFormat, SceneDataProvider
from scene_data.backends import MujocoSceneDataBackend

DOG = "suite/dog.xml"
CLOTH = """
<mujoco>
  <worldbody>
    <flexcomp name="cloth" type="grid" count="100 100 1" spacing=".01 .01 .01" dim="2" mass="1" radius=".002"/>
  </worldbody>
</mujoco>
"""
ROUNDS = 41
CALLS_PER_ROUND = 20


def seconds_per_call(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS_PER_ROUND):
        call()
    return (time.perf_counter() - start) / CALLS_PER_ROUND


def interleaved(*calls: Callable[[], object]) -> list[float]:
    """Medians of measurements that take turns."""
    for call in calls:
        call()
    rounds = [[seconds_per_call(call) for call in calls] for _ in range(ROUNDS)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


class Republished(SceneDataBackend):
    """Publications of a backend as they are, but new at every read: what the provider does, without the engine."""

    def __init__(self, backend: SceneDataBackend):
        self._batches = backend.get_geometry_batches()

    def get_geometry_batches(self, output_format=SceneDataFormat.Points):
        self.mark_geometry_written()
        return self._batches


def copy_of(point_count: int) -> Callable[[], None]:
    """A plain copy of as many points."""
    source, target = (wp.zeros(point_count, dtype=wp.vec3f, device="cpu") for _ in range(2))
    return lambda: wp.copy(target, source)


def report(name: str, ours: float, **peers: float) -> None:
    ratios = "  ".join(f"{ours / seconds:6.2f} x {peer.replace('_', ' ')}" for peer, seconds in peers.items())
    print(f"  {name:42} {ours * 1e6:7.1f} us  {ratios}")


def measure_dog() -> None:
    spec = find_spec("dm_control")
    if spec is None or not spec.submodule_search_locations:
        print("dm_control is not installed, so there is no dog.")
        return
    model = mujoco.MjModel.from_xml_path(str(Path(spec.submodule_search_locations[0]) / DOG))
    data = mujoco.MjData(model)
    backend = MujocoSceneDataBackend(model, data)
    provider = SceneDataProvider(Republished(backend))
    drawn = mujoco.MjvScene(model, 1)
    whole = SceneDataProvider(backend)
    mujoco.set_mju_user_warning(lambda message: None)  # the Python binding has the deprecated name alone

    def read_present_state() -> None:
        data.qpos[-1] += 1e-3
        whole.get_geometry_points()

    def forward() -> None:
        data.qpos[-1] += 1e-3
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        mujoco.mj_tendon(model, data)
        mujoco.mjv_updateSkin(model, data, drawn)

    vertices = len(drawn.skinvert) // 3
    print(f"dog, {vertices} skin vertices, {len(model.skin_bonevertid)} influences, one core")
    ours, peer, copy, clean = interleaved(
        provider.get_geometry_points,
        lambda: mujoco.mjv_updateSkin(model, data, drawn),
        copy_of(vertices),
        whole.get_geometry_points,
    )
    report("skin alone", ours, mjv_updateSkin=peer, copy=copy)
    report("clean read", clean, mjv_updateSkin=peer)
    ours, peer = interleaved(read_present_state, forward)
    report("read after a write to qpos", ours, kinematics_and_mjv_updateSkin=peer)


def measure_cloth() -> None:
    model = mujoco.MjModel.from_xml_string(CLOTH)
    data = mujoco.MjData(model)
    backend = MujocoSceneDataBackend(model, data)
    whole = SceneDataProvider(backend)
    provider = SceneDataProvider(Republished(backend))
    output = wp.zeros(model.nflexvert + 10, dtype=wp.vec3f, device="cpu")
    offsets = {"/World/envs/env_0/cloth": 10}
    narrowed = np.zeros((model.nflexvert, 3), np.float32)

    def read_present_state() -> None:
        data.qpos[0] += 1e-3
        whole.get_geometry_points()

    def forward() -> None:
        data.qpos[0] += 1e-3
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_camlight(model, data)
        mujoco.mj_flex(model, data)
        np.copyto(narrowed, data.flexvert_xpos, casting="same_kind")

    print(f"cloth, {model.nflexvert} vertices, one core")
    views, written, copy = interleaved(
        provider.get_geometry_points,
        lambda: provider.get_geometry_points(output=output, offsets=offsets),
        copy_of(model.nflexvert),
    )
    report("views of new points", views, copy=copy)
    report("points into an array of one's own", written, copy=copy)
    ours, peer = interleaved(read_present_state, forward)
    report("read after a write to qpos", ours, kinematics_and_narrowing=peer)


def main() -> None:
    wp.config.quiet = True
    measure_dog()
    measure_cloth()


if __name__ == "__main__":
    main()
