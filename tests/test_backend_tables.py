"""The tables of docs/backends.md, cell by cell: what they say is rendered is, and what they say is not is refused."""

import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from gl_drivers import DRIVERS
from test_simulation import OPTIONS, XML

from scene_data import SceneDataBackend, SceneDataProvider, SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg, Pinhole, WorldPose
from scene_data.errors import UnmetRequirementError
from scene_data.extra_geometry import GeometryBatch
from scene_data.registry import renderers
from scene_data.renderers import Camera
from scene_data.renderers.camera_data import DATA_TYPES
from scene_data.renderers.render_core.core_plan import UnsupportedPlaneError

torch = pytest.importorskip("torch")

PAGE = (Path(__file__).parent.parent / "docs" / "backends.md").read_text()
WIDTH, HEIGHT, NUM_ENVS = 32, 24, 2
CHANNELS = {"rgb": 3, "rgba": 4, "normals": 3, "albedo": 3, "rgb_hdr": 3, "segmentation": 2}
EYE = CameraCfg(
    "eye",
    WIDTH,
    HEIGHT,
    mount=WorldPose((0.0, 0.0, 3.0)),
    intrinsics=Pinhole.from_fovy(60.0, WIDTH, HEIGHT),
    options=OPTIONS,
    semantic_tags={"*slab": "toy"},
)

Cells = dict[str, dict[str, str]]


def table(heading: str) -> Cells:
    """The table below a heading: the cells of each row by column; a row that names several things is one for each."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert section, heading
    lines = [line for line in section[1].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    columns = [name.strip("`") for name in rows[0][1:]]
    return {
        name: dict(zip(columns, row[1:], strict=True)) for row in rows[2:] for name in re.findall(r"`(\w+)`", row[0])
    }


PLANES, ENGINES, ABILITIES = table("Data types"), table("Engines"), table("At run time")
BACKENDS = ("mujoco_warp", "mujoco_gl", "newton", "ovrtx")


def made_by(backend: str) -> tuple[str, ...]:
    """The data types that a backend makes, by the table."""
    return tuple(data_type for data_type, cells in PLANES.items() if cells[backend] != "no")


def mujoco_physics(engine: str) -> Any:
    return MujocoPhysicsCfg(mujoco.MjModel.from_xml_string(XML), engine, NUM_ENVS)


def newton_physics(engine: str) -> Any:
    """The same slab as in the MuJoCo model, made by Newton."""
    newton = pytest.importorskip("newton", reason="newton is not installed")
    from scene_data.backends import NewtonPhysicsCfg

    builder = newton.ModelBuilder(gravity=(0.0, 0.0, 0.0))
    body = builder.add_body(xform=((0.0, 0.0, 0.5), (0.0, 0.0, 0.0, 1.0)), label="slab")
    builder.add_shape_box(body, hx=0.3, hy=0.3, hz=0.1, color=(0.9, 0.1, 0.1), label="slab")
    return NewtonPhysicsCfg(builder, num_envs=NUM_ENVS, ground=True)


PHYSICS: dict[str, Callable[[str], Any]] = {
    "mujoco": mujoco_physics,
    "mujoco_batch": mujoco_physics,
    "mujoco_warp": mujoco_physics,
    "newton": newton_physics,
}


@pytest.fixture(params=BACKENDS)
def backend(request, monkeypatch) -> str:
    """The name of a render backend that can be imported here; of `ovrtx` there is a stand-in."""
    if request.param == "mujoco_gl" and not DRIVERS["egl"]:
        pytest.skip("no OpenGL driver")
    if request.param == "newton":
        pytest.importorskip("newton", reason="newton is not installed")
    if request.param == "ovrtx":
        pytest.importorskip("pxr", reason="usd-core is not installed")
        import_module("ovrtx_stand_in").installed(monkeypatch)
        adapter = import_module("scene_data.renderers.ovrtx").OvrtxRenderBackend
        monkeypatch.setitem(renderers._targets, "ovrtx", adapter)
    return request.param


def test_the_tables_speak_of_everything_there_is():
    assert set(PLANES) == set(DATA_TYPES)
    assert set(ENGINES) == {*PHYSICS, "ovphysx"}
    assert all(tuple(cells) == BACKENDS for rows in (PLANES, ENGINES, ABILITIES) for cells in rows.values())
    assert set(renderers.names()) >= {*BACKENDS, "disabled"}


@pytest.mark.parametrize("engine", PHYSICS)
def test_each_engine_with_each_backend(engine, backend):
    cameras = [replace(EYE, data_types=made_by(backend))]
    cfg = SimulationCfg(PHYSICS[engine](engine), cameras=cameras, render_backend=backend)
    if ENGINES[engine][backend].startswith("no"):
        with pytest.raises(UnmetRequirementError, match="mujoco_model"):
            SimulationContext(cfg)
        return
    with SimulationContext(cfg) as sim:
        data = sim.cameras["eye"].data
        assert set(data) == set(made_by(backend))
        for name, tensor in data.items():
            assert tensor.shape == (NUM_ENVS, HEIGHT, WIDTH, CHANNELS.get(name, 1)), name
        if backend != "ovrtx":  # whose pictures are not of the scene
            check_slab({name: tensor.numpy() for name, tensor in data.items()}, data.info.id_to_labels)


def check_slab(data: dict[str, np.ndarray], labels: dict[str, dict[int, str]]) -> None:
    """A red slab whose upper side lies 2.4 m below the camera, above a floor 3 m below it."""
    focal = 0.5 * HEIGHT / np.tan(np.radians(30.0))
    right, down = np.meshgrid(*((np.arange(size) + 0.5 - 0.5 * size) / focal for size in (WIDTH, HEIGHT)))
    slab = np.broadcast_to((np.abs(right) * 2.4 < 0.3) & (np.abs(down) * 2.4 < 0.3), (NUM_ENVS, HEIGHT, WIDTH))
    depth = np.where(slab, 2.4, 3.0)
    for name in ("depth", "distance_to_image_plane"):
        np.testing.assert_allclose(data[name][..., 0], depth, rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(data["distance_to_camera"][..., 0], depth * np.sqrt(right**2 + down**2 + 1), rtol=1e-4)
    geom = int(mujoco.mjtObj.mjOBJ_GEOM)
    assert (data["segmentation"][..., 1] == geom).all()
    assert len(np.unique(data["segmentation"][slab], axis=0)) == 1
    assert len(np.unique(data["segmentation"][~slab], axis=0)) == 1
    for env in range(NUM_ENVS):
        (instance,) = np.unique(data["instance_segmentation"][env][slab[env]])
        assert labels["instance_segmentation"][instance] == f"/World/envs/env_{env}/slab"
    (tag,) = np.unique(data["semantic_segmentation"][slab])
    assert labels["semantic_segmentation"][tag] == "toy"
    assert tag not in data["semantic_segmentation"][~slab]
    for name in {"rgb", "rgba", "albedo", "rgb_hdr"} & data.keys():
        red, green, blue = data[name][slab][:, :3].astype(float).mean(axis=0)  # OpenGL smooths its edges
        assert red > 1.5 * max(green, blue), name
    assert (data["rgba"][..., 3] == 255).all()
    if "normals" in data:
        np.testing.assert_allclose(data["normals"][slab], np.broadcast_to((0, 0, 1), (slab.sum(), 3)), atol=1e-5)


@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_what_a_backend_does_not_make_is_refused_with_those_that_do(data_type, backend):
    if PLANES[data_type][backend] != "no":
        assert data_type in made_by(backend)
        return
    cfg = SimulationCfg(
        mujoco_physics("mujoco"), cameras=[replace(EYE, data_types=("rgb", data_type))], render_backend=backend
    )
    with pytest.raises(UnsupportedPlaneError, match=f"'{data_type}', which render backend '{backend}'") as refusal:
        SimulationContext(cfg)
    here = [name for name, _ in renderers.installed()]
    assert set(refusal.value.able) == {name for name in BACKENDS if name in here and PLANES[data_type][name] != "no"}


class Undescribed(SceneDataBackend):
    """Describes nothing, as a PhysX engine."""

    device = "cpu"
    num_envs = 1


def test_an_engine_that_describes_no_scene_says_so():
    assert all(cell.startswith("no") for cell in ENGINES["ovphysx"].values())
    with pytest.raises(NotImplementedError, match="describes no scene"):
        Camera(EYE, SceneDataProvider(Undescribed()))


@pytest.mark.parametrize("ability", ABILITIES)
def test_what_changes_at_run_time_shows_or_is_refused(ability, backend):
    """Each ability is told by what it changes in the picture of a slab below the camera."""
    cfg = SimulationCfg(
        mujoco_physics("mujoco_batch"), cameras=[replace(EYE, data_types=("depth", "rgb"))], render_backend=backend
    )
    with SimulationContext(cfg) as sim:
        camera = sim.cameras["eye"]
        use = {
            "set_world_poses": lambda: camera.set_world_poses((0.0, 0.0, 4.0), env_ids=[1]),
            "set_intrinsic_matrices": lambda: camera.set_intrinsic_matrices(
                [[40.0, 0, 16], [0, 20, 12], [0, 0, 1]], env_ids=[1]
            ),
            "add_geometry_source": lambda: sim.add_geometry_source(
                lambda: GeometryBatch.spheres([(0.0, 0.0, 1.0)], 0.2, envs=[1])
            ),
        }[ability]
        before = {name: tensor.clone() for name, tensor in camera.data.items()}
        if ABILITIES[ability][backend] == "no":
            message = f"render backend '{backend}' has no .*; backends that do: "
            with pytest.raises(ValueError, match=message) as refusal:
                use()
            named = str(refusal.value).split("do: ")[1].split(", ")
            assert set(named) == {name for name, _ in renderers.installed() if ABILITIES[ability].get(name) == "yes"}
            return
        use()
        for name, after in camera.data.items():
            assert torch.equal(after[0], before[name][0]), name
            assert not torch.equal(after[1], before[name][1]), name
