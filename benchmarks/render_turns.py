"""What a render turn costs, beside MuJoCo Warp's renderer called directly.

A turn is all that a user waits for: the snapshot of the engine's state, the render thread, both planes of all
environments as committed frames. Prints ratios of interleaved runs, since absolute times say more about the machine
than about the code. Run: python benchmarks/render_turns.py
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from scene_data import SceneDataProvider
from scene_data.backends import MujocoWarpSceneDataBackend
from scene_data.renderers import CameraDescriptor, PlaneKind, RenderCore, SnapshotPool
from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend
from scene_data.renderers.render_core.capacity import compute_frame_byte_capacity, compute_frame_slot_capacity

MODEL = Path(mjw.__file__).parent / "test_data" / "humanoid" / "humanoid.xml"
NUM_ENVS = 32
SIZE = 64
PLANES = (PlaneKind.RGB, PlaneKind.DEPTH)
ROUNDS = 25


class Turns:
    """Our way, with a number of shards (None is one per core)."""

    def __init__(self, backend: MujocoWarpSceneDataBackend, camera: CameraDescriptor, shards: int | None):
        self.provider = SceneDataProvider(backend)
        self.pool = SnapshotPool()
        self.pool.activate(self.provider, 1)
        cameras = (camera,)
        slots, nbytes = compute_frame_slot_capacity(cameras), compute_frame_byte_capacity(cameras)
        renderer = MujocoWarpRenderBackend(shards)
        self.core = RenderCore(renderer, max_slots=slots, max_bytes=nbytes, device=str(backend.device))
        status = self.core.reconfigure(1, 1, cameras, scene=backend.describe_scene())
        assert status.ok, status
        self.core.register_continuous_consumer("benchmark", camera.id)
        self.camera_id = camera.id
        self.shards = renderer.shard_count

    def __call__(self) -> None:
        plan = self.core.evaluate_demand(0, self.camera_id)
        snapshot = self.pool.acquire(self.provider, 1).snapshot
        assert snapshot is not None
        assert self.core.submit_snapshot(snapshot, plan).ok
        status = self.core.finish_or_cancel_render_turn()
        assert status.ok, status


def humanoids() -> tuple[mujoco.MjModel, mjw.Model, mjw.Data]:
    """A crowd in different poses."""
    mj_model = mujoco.MjModel.from_xml_path(str(MODEL))
    model, data = mjw.put_model(mj_model), mjw.make_data(mj_model, nworld=NUM_ENVS)
    qpos = np.tile(mj_model.qpos0, (NUM_ENVS, 1))
    qpos[:, 7:] += np.random.default_rng(0).normal(0, 0.3, (NUM_ENVS, mj_model.nq - 7))
    data.qpos.assign(qpos)
    return mj_model, model, data


def direct_render(mj_model: mujoco.MjModel, model: mjw.Model, data: mjw.Data) -> Callable[[], None]:
    """MuJoCo Warp's own way, with the same camera, planes and options."""
    context = mjw.create_render_context(
        mj_model,
        NUM_ENVS,
        cam_res=(SIZE, SIZE),
        render_rgb=True,
        render_depth=True,
        render_seg=False,
        use_shadows=True,
        render_skybox=True,
        cam_active=[0],
    )

    def render() -> None:
        mjw.refit_bvh(model, data, context)
        mjw.render(model, data, context)
        wp.synchronize_device(data.qpos.device)

    return render


def main() -> None:
    wp.config.quiet = True
    mj_model, model, data = humanoids()
    backend = MujocoWarpSceneDataBackend(mj_model, model, data, announces_writes=True)
    camera = CameraDescriptor(1, mj_model.camera(0).name, SIZE, SIZE, PLANES, num_envs=NUM_ENVS)
    single, sharded = Turns(backend, camera, 1), Turns(backend, camera, None)
    direct = direct_render(mj_model, model, data)
    ways = {"direct": direct, "one shard": single, f"{sharded.shards} shards": sharded}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round in range(-2, ROUNDS):
        for name, render in ways.items():
            start = time.perf_counter()
            render()
            if round >= 0:  # the first rounds warm up
                seconds[name].append(time.perf_counter() - start)
    print(f"RGB and depth of {NUM_ENVS} humanoids at {SIZE}x{SIZE} (limits: one shard 0.95, shards on 2 cores 1.5)")
    for name, times in seconds.items():
        ratio = statistics.median(np.divide(seconds["direct"], times))
        median = statistics.median(times)
        print(f"  {name:10} {median * 1e3:6.1f} ms  {NUM_ENVS / median:7.0f} frames/s  {ratio:.2f} times direct")
    single.core.shutdown()
    sharded.core.shutdown()


if __name__ == "__main__":
    main()
