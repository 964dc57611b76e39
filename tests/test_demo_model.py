import mujoco
import numpy as np
import pytest
from mujoco import batch as mujoco_batch

from scene_data.assets import demo_model_path

NUM_ENVS = 4
HOLD = 125  # steps for which random targets are held: half a second


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(demo_model_path()))


def height_over(model: mujoco.MjModel, data: mujoco.MjData, geom: str, x: float, y: float) -> float:
    """Height of a height field's or ellipsoid's upper surface, 0 where a ray from above misses it."""
    geom_id = model.geom(geom).id
    start, down = np.array([x, y, 3.0]), np.array([0.0, 0.0, -1.0])
    if model.geom_type[geom_id] == mujoco.mjtGeom.mjGEOM_HFIELD:
        distance = mujoco.mj_rayHfield(model, data, geom_id, start, down)
    else:
        distance = mujoco.mju_rayGeom(
            data.geom_xpos[geom_id], data.geom_xmat[geom_id], model.geom_size[geom_id], start, down,
            model.geom_type[geom_id],
        )  # fmt: skip
    return max(3.0 - distance, 0.0) if distance >= 0 else 0.0


def test_has_everything_it_promises(model):
    assert {model.camera(i).name for i in range(model.ncam)} == {"front", "overhead", "track", "wrist"}
    assert sorted(model.flex_dim) == [1, 2], "a cable and a cloth"
    assert model.nhfield == 1
    assert model.nmocap == 1
    assert model.nlight >= 2
    assert model.key("home").qpos.tolist() == model.qpos0.tolist()
    assert 10 <= model.nu <= 20
    assert (model.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE).all(), "position actuators"
    assert model.camera("track").mode[0] == mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM
    drawn = {mujoco.mjtGeom(t).name[7:] for t in model.geom_type[model.geom_group < 3]}
    assert drawn == {"PLANE", "HFIELD", "SPHERE", "CAPSULE", "ELLIPSOID", "CYLINDER", "BOX", "MESH"}
    assert (model.mesh_texcoordnum > 0).any(), "a mesh with texture coordinates"
    assert model.ntex >= 6
    assert mujoco.mjtTexture.mjTEXTURE_SKYBOX in model.tex_type
    assert (model.geom_group < 3).sum() < 120


def test_is_small():
    size = sum(file.stat().st_size for file in demo_model_path().parent.rglob("*") if file.is_file())
    assert size < 1_000_000


def test_nothing_penetrates_at_the_start(model):
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert all(contact.dist > -1e-3 for contact in data.contact)


def test_the_terrain_is_drawn_where_things_roll(model):
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    hills = ("hill_west", "hill_east", "hill_south")
    points = [(x, y) for x in np.linspace(-2.11, 0.61, 13) for y in np.linspace(0.803, 2.197, 9)]
    carried = np.array([max(height_over(model, data, hill, x, y) for hill in hills) for x, y in points])
    gaps = np.array([height_over(model, data, "terrain", x, y) for x, y in points]) - carried
    assert carried.max() > 0.4
    assert gaps.min() > 0
    assert gaps.max() < 0.03


@pytest.mark.parametrize("control", ["zero", "random"])
def test_thousand_steps_stay_in_the_yard(model, control):
    """Zero control holds the standing pose; random control moves the robot and does not topple it."""
    rng = np.random.default_rng(0)
    low, high = model.actuator_ctrlrange.T
    trunk, hand = model.body("trunk").id, model.body("hand").id
    batch = mujoco_batch.Batch(model, NUM_ENVS, persistent=True)
    targets, position, rotation = batch.bind("ctrl"), batch.bind("xpos"), batch.bind("xmat")
    for _ in range(1000 // HOLD):
        if control == "random":
            targets[:] = rng.uniform(low, high, targets.shape)
        batch.step(nstep=HOLD)
        assert np.isfinite(position).all()
        assert np.abs(position[..., :2]).max() < 2.5
        assert position[..., 2].min() > -0.05
        assert position[..., 2].max() < 2.0
        assert rotation[:, trunk, 8].min() > (0.999 if control == "zero" else 0.95), "upright"
    assert not batch.warning[..., 1].any()
    spread = np.ptp(position[:, hand], axis=0).max()
    assert (spread > 0.05) == (control == "random"), "environments with other controls look different"


def test_zero_control_is_worth_watching(model):
    """Within three seconds the balls have rolled away, and cloth and cable swing."""
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    balls = [model.body(name).id for name in ("ball_striped", "ball_plum", "ball_teal")]
    start, vertices = data.xpos[balls].copy(), []
    for _ in range(15):
        mujoco.mj_step(model, data, 50)
        vertices.append(data.flexvert_xpos.copy())
    assert not any(warning.number for warning in data.warning)
    assert (np.linalg.norm(data.xpos[balls] - start, axis=1) > 0.5).all()
    travel = np.ptp(vertices, axis=0).max(axis=1)
    for flex in range(model.nflex):
        first = model.flex_vertadr[flex]
        assert travel[first : first + model.flex_vertnum[flex]].max() > 0.2, model.flex(flex).name


def test_mujoco_warp_takes_it(model):
    """All but one refusal is absent: mujoco_warp has no contacts between height fields and flexes, and asks for none.

    The height field collides with nothing, so a primitive may stand in for it while physics is built.
    """
    import mujoco_warp as mjw

    terrain = model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD
    assert not model.geom_contype[terrain].any()
    assert not model.geom_conaffinity[terrain].any()
    physics = mujoco.MjModel.from_xml_path(str(demo_model_path()))
    physics.geom_type[terrain] = mujoco.mjtGeom.mjGEOM_BOX
    warp_model = mjw.put_model(physics)
    assert warp_model.nv == model.nv
    assert warp_model.nflex == model.nflex
