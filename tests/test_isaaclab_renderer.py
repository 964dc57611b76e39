"""Isaac Lab's cameras render through a render core: its own `Camera`, where it is at hand, and a stand-in for it."""

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from isaaclab_rig import (
    BOX_HEIGHTS,
    CAMERA_HEIGHT,
    DOWN,
    HEIGHT,
    ISAACLAB,
    NUM_ENVS,
    SCENE,
    WIDTH,
    IsaacLabRig,
    Rig,
    StandInRig,
    World,
    adapter_on,
    expected_depth,
    hits_box,
    matrices,
)

from scene_data import SceneDataProvider, SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg, MujocoSceneDataBackend
from scene_data.errors import UnknownNameError
from scene_data.renderers.render_core.status import RenderTurnError

PINHOLE = (WIDTH, WIDTH, WIDTH / 2, HEIGHT / 2)
MakeRig = Callable[..., Rig]


@pytest.fixture(scope="module", params=["stand-in", "isaaclab"])
def adapter(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    if request.param == "isaaclab":
        if not ISAACLAB.is_dir():
            pytest.skip(f"Isaac Lab is not in {ISAACLAB}; `make test-peer` downloads it")
        pytest.importorskip("pxr", reason="Isaac Lab's camera stands on a USD stage")
    with adapter_on(request.param == "isaaclab") as module:
        yield module


@pytest.fixture
def has_isaaclab(adapter: ModuleType) -> bool:
    return adapter.RenderCoreRenderer.__mro__[1].__module__.startswith("isaaclab.")


@pytest.fixture
def make_rig(adapter: ModuleType, has_isaaclab: bool) -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make(**cfg: Any) -> Rig:
        rigs.append((IsaacLabRig if has_isaaclab else StandInRig)(adapter, World(), **cfg))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


def image(camera: Any, data_type: str) -> np.ndarray:
    """What a camera shows (N, H, W, C), copied."""
    return camera._data.output[data_type].torch.numpy().copy()


def depths(heights: Sequence[float] = BOX_HEIGHTS, pinholes: Sequence[Sequence[float]] = (PINHOLE,) * 3) -> np.ndarray:
    return np.stack([expected_depth(*pair) for pair in zip(pinholes, heights, strict=True)])[..., None]


def turns(rig: Rig) -> int:
    return rig.renderer._session._core.stats()["turns"]


def render_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "render-core"]


# The contract


def test_isaaclab_takes_it_for_one_of_its_renderers(adapter: ModuleType, has_isaaclab: bool):
    if not has_isaaclab:
        pytest.skip("this is about Isaac Lab's own classes")
    from isaaclab.renderers import BaseRenderer, RendererCfg  # pyright: ignore[reportMissingImports]

    assert issubclass(adapter.RenderCoreRenderer, BaseRenderer)
    assert issubclass(adapter.RenderCoreRendererCfg, RendererCfg)
    assert not inspect.isabstract(adapter.RenderCoreRenderer)
    for name, method in inspect.getmembers(BaseRenderer, inspect.isfunction):
        theirs = inspect.signature(method).parameters
        ours = inspect.signature(getattr(adapter.RenderCoreRenderer, name)).parameters
        assert list(ours) == list(theirs), name


def test_it_has_the_members_of_the_contract(adapter: ModuleType):
    contract = [
        "initialize",
        "prepare_cameras",
        "supported_output_types",
        "prepare_stage",
        "create_render_data",
        "set_outputs",
        "prepare_capture",
        "update_transforms",
        "update_geometries",
        "update_camera",
        "update_camera_intrinsics",
        "render",
        "render_batch",
        "read_output",
        "cleanup",
        "reset",
        "close",
    ]
    assert [name for name in contract if not callable(getattr(adapter.RenderCoreRenderer, name))] == []
    renderer = adapter.RenderCoreRenderer(adapter.RenderCoreRendererCfg())
    assert renderer.visual_material_writer is None


def test_equal_configurations_share_a_renderer(make_rig: MakeRig, has_isaaclab: bool):
    if not has_isaaclab:
        pytest.skip("this is about Isaac Lab's registry of renderers")
    rig = make_rig()
    first, second = rig.camera(["depth"]), rig.camera(["rgb"])
    assert first._renderer is second._renderer
    assert first.cfg.renderer_cfg is not rig.cfg
    assert first.cfg.renderer_cfg == rig.cfg
    assert rig.context.render_context.renderer_types == ("render_core",)  # pyright: ignore[reportAttributeAccessIssue]


def test_outputs_are_named_and_laid_out_as_isaaclab_has_them(adapter: ModuleType, has_isaaclab: bool):
    cfg = adapter.RenderCoreRendererCfg()
    specs = cfg.supported_output_types()
    assert {str(name): (spec.channels, spec.dtype) for name, spec in specs.items()} == {
        "rgb": (3, wp.uint8),
        "rgba": (4, wp.uint8),
        "depth": (1, wp.float32),
        "distance_to_image_plane": (1, wp.float32),
        "distance_to_camera": (1, wp.float32),
        "segmentation": (2, wp.int32),
        "instance_segmentation": (1, wp.int32),
        "semantic_segmentation": (1, wp.int32),
    }
    colored = adapter.RenderCoreRendererCfg(colorize_segmentation=True).supported_output_types()
    assert (colored["instance_segmentation"].channels, colored["instance_segmentation"].dtype) == (4, wp.uint8)
    assert adapter.RenderCoreRenderer(cfg).supported_output_types() == specs
    if has_isaaclab:
        from isaaclab.renderers import RenderBufferKind, RenderBufferSpec  # pyright: ignore[reportMissingImports]

        assert {name for name in specs if isinstance(name, RenderBufferKind)} == set(specs) - {"segmentation"}
        assert all(isinstance(spec, RenderBufferSpec) for spec in specs.values())


# What cameras see


def test_pictures_are_those_of_analysis_in_the_order_of_environments(make_rig: MakeRig):
    rig = make_rig(semantic_tags=(("box", "cargo"),))
    distances = ["depth", "distance_to_image_plane", "distance_to_camera"]
    camera = rig.camera(["rgb", *distances, "instance_segmentation", "semantic_segmentation"])
    rig.capture(camera)
    hits = np.stack([hits_box(PINHOLE, height) for height in BOX_HEIGHTS])
    assert len({int(hit.sum()) for hit in hits}) == NUM_ENVS
    np.testing.assert_allclose(image(camera, "depth"), depths(), rtol=1e-5)
    np.testing.assert_array_equal(image(camera, "distance_to_image_plane"), image(camera, "depth"))
    u, v = np.meshgrid(np.arange(WIDTH) + 0.5 - WIDTH / 2, np.arange(HEIGHT) + 0.5 - HEIGHT / 2)
    slant = np.sqrt(1 + (u**2 + v**2) / WIDTH**2)[..., None]
    np.testing.assert_allclose(image(camera, "distance_to_camera"), depths() * slant, rtol=1e-5)
    rgb = image(camera, "rgb").astype(int)
    assert (rgb[hits][:, 0] > rgb[hits][:, 1] + 50).all()
    assert (rgb[~hits][:, 1] > rgb[~hits][:, 0] + 50).all()
    names = camera._data.info["instance_segmentation"]["idToLabels"]
    instances = np.vectorize(names.get)(image(camera, "instance_segmentation")[..., 0])
    for env in range(NUM_ENVS):
        expected = np.where(hits[env], f"/World/envs/env_{env}/box", f"/World/envs/env_{env}/world")
        np.testing.assert_array_equal(instances[env], expected)
    tags = camera._data.info["semantic_segmentation"]["idToLabels"]
    expected = np.where(hits, "cargo", "UNLABELLED")
    np.testing.assert_array_equal(np.vectorize(tags.get)(image(camera, "semantic_segmentation")[..., 0]), expected)


def test_raw_segmentation_is_written_for_who_has_a_buffer_for_it(make_rig: MakeRig):
    rig = make_rig()
    camera = rig.camera(["depth"])
    buffer = torch.zeros(NUM_ENVS, HEIGHT, WIDTH, 2, dtype=torch.int32)
    rig.renderer.set_outputs(camera._render_data, {"segmentation": buffer})
    rig.renderer.render(camera._render_data)
    hits = np.stack([hits_box(PINHOLE, height) for height in BOX_HEIGHTS])
    box = rig.world.model.geom("box").id
    np.testing.assert_array_equal(buffer[..., 0].numpy(), np.where(hits, box, rig.world.model.geom("floor").id))
    assert (buffer[..., 1] == int(mujoco.mjtObj.mjOBJ_GEOM)).all()


def test_intrinsics_of_each_environment_are_honoured_exactly(make_rig: MakeRig):
    rig = make_rig()
    camera = rig.camera(["depth"])
    rig.capture(camera)
    core = rig.renderer._session._core
    pinholes = [(12.0, 24.0, 3.0, 9.5), (30.0, 10.0, 12.0, 2.0), (16.0, 16.0, 8.0, 6.0)]
    rig.renderer.update_camera_intrinsics(camera._render_data, matrices(pinholes), None)
    rig.capture(camera)
    np.testing.assert_allclose(image(camera, "depth"), depths(pinholes=pinholes), rtol=1e-5)
    with pytest.raises(ValueError, match="focal lengths"):
        rig.renderer.update_camera_intrinsics(camera._render_data, matrices([(0, 9, 8, 6)] * 3), None)
    rig.capture(camera)
    np.testing.assert_allclose(image(camera, "depth"), depths(pinholes=pinholes), rtol=1e-5)
    assert rig.renderer._session._core is core


def test_looks_of_each_environment_reach_the_next_picture(make_rig: MakeRig):
    rig = make_rig()
    camera = rig.camera(["rgb", "depth"])
    rig.capture(camera)
    before = image(camera, "rgb").copy()
    rig.renderer.appearance.set_shape_colors((0.0, 0.0, 1.0), "box", env_ids=torch.tensor([1]))
    rig.capture(camera)
    differs = (image(camera, "rgb") != before).any(axis=-1)
    np.testing.assert_array_equal(differs[1], hits_box(PINHOLE, BOX_HEIGHTS[1]))
    assert not differs[[0, 2]].any()
    np.testing.assert_allclose(image(camera, "depth"), depths(), rtol=1e-5)


def test_isaaclabs_setters_reach_the_next_picture(make_rig: MakeRig, has_isaaclab: bool):
    if not has_isaaclab:
        pytest.skip("this is about Isaac Lab's own camera")
    rig = make_rig()
    camera = rig.camera(["depth"])
    assert camera.data is camera._data
    camera.set_world_poses(positions=torch.tensor([[0.0, 0.0, 4.0]]), env_ids=[1])
    camera.set_intrinsic_matrices(matrices([(24, 24, WIDTH / 2, HEIGHT / 2)]).numpy(), env_ids=[2])
    rig.capture(camera)
    expected = [expected_depth(PINHOLE, BOX_HEIGHTS[0]), expected_depth(PINHOLE, BOX_HEIGHTS[1], 4.0)]
    expected.append(expected_depth((24, 24, WIDTH / 2, HEIGHT / 2), BOX_HEIGHTS[2]))
    np.testing.assert_allclose(image(camera, "depth")[..., 0], np.stack(expected), rtol=1e-5)


def test_origins_of_environments_are_taken_off_the_cameras_positions(make_rig: MakeRig):
    origins = ((0.0, 0.0, 0.0), (5.0, 0.0, 0.0), (0.0, 5.0, 1.0))
    rig = make_rig(env_origins=origins)
    camera = rig.camera(["depth"])
    positions = wp.array(np.add(origins, (0, 0, CAMERA_HEIGHT)), dtype=wp.vec3, device="cpu")
    _move(rig, camera, positions)
    rig.capture(camera)
    np.testing.assert_allclose(image(camera, "depth"), depths(), rtol=1e-5)


def test_a_camera_that_is_nowhere_blanks_its_environment_alone(make_rig: MakeRig):
    rig = make_rig()
    camera = rig.camera(["depth"])
    rig.capture(camera)
    positions = np.tile((0, 0, CAMERA_HEIGHT), (NUM_ENVS, 1))
    positions[1] = np.nan
    _move(rig, camera, wp.array(positions, dtype=wp.vec3, device="cpu"))
    rig.capture(camera)
    expected = depths()
    expected[1] = np.inf
    np.testing.assert_allclose(image(camera, "depth"), expected, rtol=1e-5)


@pytest.mark.parametrize(("behavior", "beyond"), [("none", CAMERA_HEIGHT), ("max", 2.5), ("zero", 0.0)])
def test_distances_are_clipped_at_the_spawners_range(adapter: ModuleType, behavior: str, beyond: float):
    rig = StandInRig(adapter, World(), depth_clipping_behavior=behavior)
    camera = rig.camera(["depth"], spawn=SimpleNamespace(clipping_range=(0.1, 2.5), distortion=None))
    rig.capture(camera)
    expected = depths()
    np.testing.assert_allclose(image(camera, "depth"), np.where(expected > 2.5, beyond, expected), rtol=1e-5)
    rig.close()


def test_misses_show_the_cameras_background_colour(make_rig: MakeRig):
    rig = make_rig()
    camera = rig.camera(["rgb", "depth"], background_color=(0.2, 0.4, 0.6))
    _move(rig, camera, wp.array([(0, 0, -1)] * NUM_ENVS, dtype=wp.vec3, device="cpu"))  # below the floor
    rig.capture(camera)
    assert np.isinf(image(camera, "depth")).all()
    np.testing.assert_allclose(image(camera, "rgb"), np.broadcast_to((51, 102, 153), (3, HEIGHT, WIDTH, 3)), atol=1)


def test_colours_of_instances_have_labels(make_rig: MakeRig):
    rig = make_rig(colorize_segmentation=True)
    camera = rig.camera(["instance_segmentation"])
    rig.capture(camera)
    labels = camera._data.info["instance_segmentation"]["idToLabels"]
    colors = image(camera, "instance_segmentation")
    centre = str(tuple(int(channel) for channel in colors[1, HEIGHT // 2, WIDTH // 2]))
    assert labels[centre] == "/World/envs/env_1/box"


# When they see it


def test_writes_and_resets_reach_the_next_picture(make_rig: MakeRig):
    rig = make_rig()
    camera = rig.camera(["depth"])
    for heights in (BOX_HEIGHTS, (1.1, 0.9, 0.5), (1.1, 1.6, 0.5)):
        for env, height in enumerate(heights):
            rig.world.lift(env, height)
        rig.capture(camera)
        np.testing.assert_allclose(image(camera, "depth"), depths(heights), rtol=1e-5)
    rig.renderer.update_transforms()
    rig.world.lift(1, 0.4)
    camera.reset(env_ids=[1])
    rig.renderer.render(camera._render_data)
    np.testing.assert_allclose(image(camera, "depth"), depths((1.1, 0.4, 0.5)), rtol=1e-5)


def test_a_picture_shows_the_state_of_the_last_update(make_rig: MakeRig):
    rig = make_rig()
    camera = rig.camera(["depth"])
    rig.renderer.update_transforms()
    rig.world.lift(0, 1.2)
    rig.renderer.render(camera._render_data)
    np.testing.assert_allclose(image(camera, "depth"), depths(), rtol=1e-5)
    rig.renderer.render(camera._render_data)  # and without an update the present one
    np.testing.assert_allclose(image(camera, "depth"), depths((1.2, *BOX_HEIGHTS[1:])), rtol=1e-5)


def test_points_that_were_written_are_seen_after_either_update(adapter: ModuleType):
    cloth = """<mujoco><worldbody><body><freejoint/><geom size=".01" pos="0 0 -9"/></body>
      <flexcomp name="cloth" type="grid" count="5 5 1" spacing=".5 .5 .5" dim="2" radius=".01" pos="0 0 1" mass="1"/>
    </worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(cloth)
    data = mujoco.MjData(model)
    rig = StandInRig(adapter, SimpleNamespace(provider=SceneDataProvider(MujocoSceneDataBackend(model, data))))  # type: ignore
    camera = rig.camera(["depth"])
    centre = np.s_[0, HEIGHT // 2, WIDTH // 2, 0]
    for lift in (0.0, 0.5):
        rig.renderer.update_transforms()
        data.qpos[9::3] += lift
        rig.renderer.update_geometries()
        rig.renderer.render(camera._render_data)
        np.testing.assert_allclose(image(camera, "depth")[centre], 2.0 - lift, atol=0.03)
    rig.close()


# How


def test_outputs_stay_the_cameras_own_memory(make_rig: MakeRig, has_isaaclab: bool):
    rig = make_rig()
    camera = rig.camera(["rgb", "depth"])
    held = {name: output.torch for name, output in camera._data.output.items()}
    addresses = {name: tensor.data_ptr() for name, tensor in held.items()}
    for height in (0.5, 1.3):
        rig.world.lift(0, height)
        rig.capture(camera)
        np.testing.assert_allclose(held["depth"].numpy(), depths((height, *BOX_HEIGHTS[1:])), rtol=1e-5)
    assert {name: output.torch.data_ptr() for name, output in camera._data.output.items()} == addresses
    planes = {plane.value for plane in rig.renderer._session._descriptors[camera._render_data.cfg.name].planes}
    # Isaac Lab's rgb is a view of its rgba: one plane serves both.
    assert planes == ({"rgba", "depth"} if has_isaaclab else {"rgb", "depth"})
    if has_isaaclab:
        torch.testing.assert_close(held["rgb"], held["rgba"][..., :3])
        assert (held["rgba"][..., 3] == 255).all()


def test_cameras_of_a_batch_share_a_turn_and_a_state(make_rig: MakeRig):
    rig = make_rig()
    cameras = [rig.camera(["depth"]), rig.camera(["depth", "rgb"])]
    rig.capture(*cameras)
    assert turns(rig) == 1
    for camera in cameras:
        np.testing.assert_allclose(image(camera, "depth"), depths(), rtol=1e-5)
    rig.world.lift(2, 0.5)
    rig.capture(cameras[1])
    assert turns(rig) == 2
    np.testing.assert_allclose(image(cameras[0], "depth"), depths(), rtol=1e-5)
    np.testing.assert_allclose(image(cameras[1], "depth"), depths((*BOX_HEIGHTS[:2], 0.5)), rtol=1e-5)
    rig.renderer.render_batch([])
    assert turns(rig) == 2


def test_nothing_is_allocated_from_picture_to_picture(make_rig: MakeRig):
    rig = make_rig()
    camera = rig.camera(["rgb", "depth"])
    rig.capture(camera)
    frames = rig.renderer._session._core.frames
    before = frames.storage_allocations, frames.buffer_growths
    for _ in range(5):
        rig.capture(camera)
    assert (frames.storage_allocations, frames.buffer_growths) == before


def test_frames_are_leased_without_a_copy(make_rig: MakeRig):
    rig = make_rig(held_frames=1)
    camera = rig.camera(["depth"])
    with pytest.raises(RuntimeError, match="no frame of 'depth'"):
        camera._render_data.lease("depth")
    rig.capture(camera)
    lease = camera._render_data.lease("depth")
    rig.world.lift(0, 1.3)
    rig.capture(camera)
    np.testing.assert_allclose(lease.numpy(), depths(), rtol=1e-5)
    np.testing.assert_allclose(camera._render_data.lease("depth").numpy(), image(camera, "depth"))
    with pytest.raises(UnknownNameError, match="rgb"):
        camera._render_data.lease("rgb")
    rig.close()
    np.testing.assert_allclose(lease.numpy(), depths(), rtol=1e-5)


def test_a_camera_that_comes_later_is_rendered_too(make_rig: MakeRig):
    rig = make_rig()
    first = rig.camera(["depth"])
    rig.capture(first)
    second = rig.camera(["depth"])
    rig.capture(first, second)
    np.testing.assert_allclose(image(second, "depth"), depths(), rtol=1e-5)
    assert len(render_threads()) == 1


def test_without_a_provider_it_shows_the_open_simulation(adapter: ModuleType):
    model = mujoco.MjModel.from_xml_string(SCENE)
    with SimulationContext(SimulationCfg(MujocoPhysicsCfg(model, engine="mujoco_batch", num_envs=2))) as sim:
        rig = StandInRig(adapter, SimpleNamespace(provider=sim.provider))  # type: ignore
        rig.cfg = adapter.RenderCoreRendererCfg()
        camera = rig.camera(["depth"])
        rig.capture(camera)
        np.testing.assert_allclose(image(camera, "depth"), depths((1.0, 1.0), (PINHOLE,) * 2), rtol=1e-5)
        rig.close()
    with pytest.raises(RuntimeError, match="no provider"):
        adapter.RenderCoreRenderer(adapter.RenderCoreRendererCfg()).initialize()


# Ends and errors


def test_no_thread_is_left(make_rig: MakeRig):
    rig = make_rig()
    cameras = [rig.camera(["depth"]), rig.camera(["rgb"])]
    rig.capture(*cameras)
    assert len(render_threads()) == 1
    data = [camera._render_data for camera in cameras]
    renderer = rig.renderer
    renderer.cleanup(data[0])
    renderer.cleanup(data[1])
    renderer.cleanup(data[1])
    renderer.cleanup(None)
    assert render_threads() == []
    with pytest.raises(ValueError, match="cleaned up"):
        renderer.render(data[0])
    camera = rig.camera(["depth"])  # a renderer outlives its cameras
    rig.capture(camera)
    np.testing.assert_allclose(image(camera, "depth"), depths(), rtol=1e-5)
    renderer.close()
    renderer.close()
    assert render_threads() == []
    with pytest.raises(RuntimeError, match="closed"):
        renderer.render(camera._render_data)
    with pytest.raises(RuntimeError, match="closed"):
        renderer.create_render_data(SimpleNamespace())


def test_what_cannot_be_rendered_says_so_and_leaves_the_buffers(adapter: ModuleType, monkeypatch: pytest.MonkeyPatch):
    from scene_data.renderers.mujoco_warp import MujocoWarpRenderBackend

    rig = StandInRig(adapter, World())
    camera = rig.camera(["depth"])
    rig.capture(camera)

    def fail(*_: object) -> None:
        raise OSError("out of ink")

    with monkeypatch.context() as patch:
        patch.setattr(MujocoWarpRenderBackend, "render", fail)
        with pytest.raises(RenderTurnError, match="out of ink"):
            rig.capture(camera)
    np.testing.assert_allclose(image(camera, "depth"), depths(), rtol=1e-5)
    rig.world.lift(1, 1.2)
    rig.capture(camera)
    np.testing.assert_allclose(image(camera, "depth"), depths((BOX_HEIGHTS[0], 1.2, BOX_HEIGHTS[2])), rtol=1e-5)
    rig.close()


def test_a_render_backend_that_cannot_be_set_up_leaves_no_thread(adapter: ModuleType):
    rig = StandInRig(adapter, World(), render_backend="disabled")
    camera = rig.camera(["depth"])
    with pytest.raises(RenderTurnError, match="BACKEND_UNAVAILABLE"):
        rig.capture(camera)
    assert render_threads() == []
    rig.close()


def test_a_camera_without_poses_is_not_rendered(adapter: ModuleType):
    rig = StandInRig(adapter, World())
    spec = rig.camera(["depth"]).spec
    data = rig.renderer.create_render_data(spec)
    with pytest.raises(RuntimeError, match=r"/World/envs/env_0/Camera \[2\].* update_camera"):
        rig.renderer.render(data)
    with pytest.raises(RuntimeError, match="update_camera"):
        rig.renderer.update_camera_intrinsics(data, matrices([PINHOLE] * NUM_ENVS))
    rig.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_instances": 2}, "for 2 environments, but the scene data has 3"),
        ({"view_count": 4}, "for 4 environments"),
        ({"camera_prim_paths": tuple(f"/World/envs/env_{env}/Camera" for env in (0, 2, 1))}, r"order \[0, 2, 1\]"),
        (
            {"data_types": ["normals"]},
            "Camera .* asks for 'normals', which .* 'mujoco_warp' does not make. .* do: newton",
        ),
        ({"data_types": ["motion_vectors"]}, "'motion_vectors'"),
        ({"isp_cfg": object()}, "no image signal processor"),
        ({"spawn": SimpleNamespace(distortion=object(), clipping_range=(0.1, 9))}, "draws pinholes"),
        ({"width": 0}, "below 1x1"),
    ],
)
def test_specs_that_do_not_fit_are_refused(adapter: ModuleType, changes: dict[str, Any], message: str):
    rig = StandInRig(adapter, World())
    spec = rig.camera(["depth"]).spec
    for name, value in changes.items():
        setattr(spec if hasattr(spec, name) else spec.cfg, name, value)
    with pytest.raises(ValueError, match=message):
        rig.renderer.create_render_data(spec)
    with pytest.raises(ValueError, match="5 environments"):
        rig.renderer.prepare_stage(None, 5)
    rig.capture(*rig.cameras)  # and the others are as they were
    rig.close()


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"depth": torch.zeros(3, HEIGHT, WIDTH, 2)}, "output 'depth' .* must be"),
        ({"depth": torch.zeros(3, HEIGHT, WIDTH, 1, dtype=torch.float64)}, "float64"),
        ({"normals": torch.zeros(3, HEIGHT, WIDTH, 3)}, "'normals'"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(adapter: ModuleType, outputs: dict[str, Any], message: str):
    rig = StandInRig(adapter, World())
    camera = rig.camera(["depth"])
    with pytest.raises(ValueError, match=message):
        rig.renderer.set_outputs(camera._render_data, outputs)
    rig.capture(camera)
    np.testing.assert_allclose(image(camera, "depth"), depths(), rtol=1e-5)
    rig.close()


def test_unknown_render_backends_are_refused_at_construction(adapter: ModuleType):
    with pytest.raises(UnknownNameError, match="'raster'"):
        adapter.RenderCoreRenderer(adapter.RenderCoreRendererCfg(render_backend="raster"))


def _move(rig: Rig, camera: Any, positions: wp.array) -> None:
    orientations = wp.array([DOWN] * NUM_ENVS, dtype=wp.quat, device="cpu")
    rig.renderer.update_camera(camera._render_data, positions, orientations, matrices([PINHOLE] * NUM_ENVS))
