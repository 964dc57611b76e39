"""PhysX: one buffer of poses, ordered by environment, read once per timestamp."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import falling_box
import numpy as np
import pytest
import warp as wp
from physx_scene import attach

ovphysx = pytest.importorskip("ovphysx", reason="ovphysx is not installed; `make test-physx` installs and tests it")

from ovphysx.types import SimObjectType  # noqa: E402

from scene_data import SceneDataFormat, SceneDataProvider  # noqa: E402
from scene_data.backends import OvPhysxSceneDataBackend  # noqa: E402
from scene_data.backends.ovphysx_deformables import padded_nodes  # noqa: E402

DATA = Path(ovphysx.__file__).parent / "samples" / "data"


@pytest.fixture
def boxes() -> Iterator[ovphysx.PhysX]:
    physx, close = attach(falling_box.USDA)
    yield physx
    close()


@pytest.fixture
def cart_pole() -> Iterator[ovphysx.PhysX]:
    physx, close = attach(DATA / "CartPole.usda")
    yield physx
    close()


def count_reads(physx: ovphysx.PhysX, monkeypatch: pytest.MonkeyPatch) -> list[SimObjectType]:
    reads = []
    read_sync = physx.read_sync
    monkeypatch.setattr(physx, "read_sync", lambda kind, *a, **k: (reads.append(kind), read_sync(kind, *a, **k))[1])
    return reads


def native(provider: SceneDataProvider) -> wp.array:
    poses = SceneDataFormat.Transform()
    assert provider.get_transforms(poses)
    return poses.transforms


def test_bodies_are_ordered_by_environment(boxes: ovphysx.PhysX):
    backend = OvPhysxSceneDataBackend(boxes)
    assert backend.transform_paths == ["/World/envs/env_0/box", "/World/envs/env_1/box"]
    assert (backend.num_envs, backend.transform_count) == (2, 2)
    np.testing.assert_allclose(
        native(SceneDataProvider(backend)).numpy(), [[0, 0, 1, 0, 0, 0, 1], [5, 0, 1, 0, 0, 0, 1]]
    )


def test_the_buffer_stays_and_is_refreshed_at_every_read(boxes: ovphysx.PhysX):
    backend = OvPhysxSceneDataBackend(boxes)
    provider = SceneDataProvider(backend)
    buffer = native(provider)
    stamp = backend.transforms_timestamp
    boxes.step_sync(0.1)
    assert native(provider) is buffer
    assert buffer.numpy()[0, 2] < 0.95
    assert backend.transforms_timestamp > stamp


def test_physx_is_read_once_per_announced_write(boxes: ovphysx.PhysX, monkeypatch: pytest.MonkeyPatch):
    backend = OvPhysxSceneDataBackend(boxes, announces_writes=True)
    provider = SceneDataProvider(backend)
    matrices = SceneDataFormat.Matrix44()
    provider.get_transforms(matrices)
    reads = count_reads(boxes, monkeypatch)
    for _ in range(3):
        native(provider)
        provider.get_transforms(matrices)
        backend.get_geometry_batches()
    assert reads == []
    boxes.step_sync(0.1)
    backend.mark_transforms_written()
    for _ in range(3):
        native(provider)
        provider.get_transforms(matrices)
    assert reads == [SimObjectType.RIGID_BODY, SimObjectType.ARTICULATION_LINK]
    assert matrices.matrices.numpy()[0, 2, 3] < 0.95


def test_reads_that_belong_together_see_one_state(boxes: ovphysx.PhysX):
    provider = SceneDataProvider(OvPhysxSceneDataBackend(boxes))
    with provider.consistent_read():
        before = native(provider).numpy().copy()
        boxes.step_sync(0.1)
        np.testing.assert_array_equal(native(provider).numpy(), before)
    assert native(provider).numpy()[0, 2] < before[0, 2]


def test_links_follow_written_joints(cart_pole: ovphysx.PhysX):
    backend = OvPhysxSceneDataBackend(cart_pole)
    provider = SceneDataProvider(backend)
    cart = backend.transform_paths.index("/cartpole/cart")
    assert native(provider).numpy()[cart, 1] == pytest.approx(0, abs=1e-5)
    with cart_pole.write_sync(SimObjectType.ARTICULATION_JOINT, ["jointPosition"]) as write:
        (group,) = write.groups
        for tensor, value in zip(group.tensors, (0.7, 0.0), strict=True):
            tensor.fill_(value)
        write.commit_sync(group)
        del group, tensor
    assert native(provider).numpy()[cart, 1] == pytest.approx(0.7, abs=1e-4)


def test_the_trajectory_is_the_same_with_and_without_readers():
    heights = []
    for with_reader in (False, True):
        physx, close = attach(DATA / "CartPole.usda")
        provider = SceneDataProvider(OvPhysxSceneDataBackend(physx))
        for _ in range(50):
            physx.step_sync(0.01)
            if with_reader:
                native(provider)
        heights.append(native(provider).numpy().copy())
        close()
    np.testing.assert_array_equal(*heights)


def test_deformables_are_ranges_of_the_padded_array():
    """PhysX simulates deformables on a GPU alone, so this is a stand-in of the shape of its interface."""
    paths, counts = ["/World/envs/env_0/sponge", "/World/envs/env_1/sponge"], (4, 3)
    nodes = np.arange(30, dtype=np.float32).reshape(2, 5, 3)

    class Result(SimpleNamespace):
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return None

    def read_sync(kind, attributes):
        tensors = [wp.zeros((count, 3), dtype=wp.float32, device="cpu") for count in counts]
        groups = [SimpleNamespace(prim_list=1, tensors=tensors)] if kind is SimObjectType.DEFORMABLE_VOLUME else []
        return Result(groups=groups, dictionary=SimpleNamespace(get_path_strings=lambda _: paths))

    def create_tensor_binding(prim_paths, tensor_type):
        assert prim_paths == paths
        return SimpleNamespace(shape=nodes.shape, prim_paths=paths[::-1], read=lambda array: array.assign(nodes))

    (volumes,) = padded_nodes(SimpleNamespace(read_sync=read_sync, create_tensor_binding=create_tensor_binding))
    points, ranges = volumes.batch
    volumes.read()
    assert ranges == {paths[1]: (0, 3), paths[0]: (5, 4)}
    np.testing.assert_array_equal(points.points.numpy(), nodes.reshape(-1, 3))


def test_what_is_no_physx_is_refused():
    with pytest.raises(TypeError, match=r"ovphysx\.PhysX, got str"):
        OvPhysxSceneDataBackend("stage")
