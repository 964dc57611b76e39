"""Newton's states: borrowed, followed through swaps, never stale, and described as one world and its clones."""

from collections.abc import Callable

import numpy as np
import pytest
import warp as wp

newton = pytest.importorskip("newton", reason="newton is not installed")

from scene_data import SceneDataFormat, SceneDataProvider  # noqa: E402
from scene_data.backends import NewtonPhysicsCfg, NewtonSceneDataBackend  # noqa: E402
from scene_data.scene import WORLD, ShapeType  # noqa: E402

IDENTITY = wp.quat_identity()
NUM_ENVS = 3


def build_world(label: str = "") -> newton.ModelBuilder:
    """A free box, an arm of two links on a hinge and a slide, a rope, a cloth and loose grains."""
    world = newton.ModelBuilder()
    box = world.add_body(xform=wp.transform((0, 0, 2), IDENTITY), label=f"{label}free box")
    world.add_shape_box(box, hx=0.1, hy=0.2, hz=0.3, label=f"{label}free box/hull")
    upper = world.add_link(label=f"{label}arm/upper", mass=1.0)
    lower = world.add_link(label=f"{label}arm/lower", mass=1.0)
    hidden = newton.ModelBuilder.ShapeConfig(is_visible=False)
    world.add_shape_capsule(upper, radius=0.03, half_height=0.2, cfg=hidden)
    world.add_shape_sphere(lower, radius=0.05)
    joints = [
        world.add_joint_revolute(-1, upper, axis=(0, 0, 1), parent_xform=wp.transform((1, 0, 1), IDENTITY)),
        world.add_joint_prismatic(upper, lower, axis=(1, 0, 0)),
    ]
    world.add_articulation(joints, label=f"{label}arm")
    points = [wp.vec3(0.1 * i, 0, 1) for i in range(5)]
    world.add_rod(rod=newton.Rod(points=points, radius=0.02), label=f"{label}rope")
    world.add_cloth_grid(
        pos=(0, 0, 1),
        rot=IDENTITY,
        vel=(0, 0, 0),
        dim_x=2,
        dim_y=1,
        cell_x=0.1,
        cell_y=0.1,
        mass=0.1,
        label=f"{label}cloth",
    )
    for i in range(2):
        world.add_particle((i, 5, 0), (0, 0, 0), 1.0)
    return world


@pytest.fixture(scope="module")
def model() -> newton.Model:
    builder = newton.ModelBuilder()
    builder.add_ground_plane()
    builder.replicate(build_world(), NUM_ENVS, label_prefixes=[f"robot_{i}" for i in range(NUM_ENVS)])
    return builder.finalize(device="cpu")


@pytest.fixture
def state(model: newton.Model) -> newton.State:
    return model.state()


def positions(provider: SceneDataProvider) -> np.ndarray:
    poses = SceneDataFormat.Transform()
    assert provider.get_transforms(poses)
    return poses.transforms.numpy()[:, :3].copy()


def count_launches(monkeypatch: pytest.MonkeyPatch) -> list:
    launches = []
    launch = wp.launch
    monkeypatch.setattr(wp, "launch", lambda *args, **kwargs: (launches.append(args), launch(*args, **kwargs)))
    return launches


# Borrowed


def test_transforms_and_points_are_the_arrays_of_the_state(model: newton.Model, state: newton.State):
    backend = NewtonSceneDataBackend(model, state)
    poses = SceneDataFormat.Transform()
    assert SceneDataProvider(backend).get_transforms(poses)
    assert poses.transforms is state.body_q
    (points, _), (cables, _) = backend.get_geometry_batches()
    assert points.points is state.particle_q
    assert cables.transforms is state.body_q
    assert cables.shape_transform is model.shape_transform


def test_bodies_are_named_by_environment_and_label(model: newton.Model, state: newton.State):
    backend = NewtonSceneDataBackend(model, state)
    names = ["free_box", "arm/upper", "arm/lower", *(f"rope_edge_body_{i}" for i in range(4))]
    assert backend.transform_paths == [f"/World/envs/env_{env}/{name}" for env in range(NUM_ENVS) for name in names]
    assert backend.num_envs == NUM_ENVS
    assert SceneDataProvider(backend).create_mapping(backend.transform_paths) is None


@pytest.mark.parametrize(
    "prefix",
    [lambda i: f"/World/envs/env_{i}", lambda i: f"clone {i}/x", lambda i: None, lambda i: f"env_{i}" if i else None],
)
def test_what_a_label_says_of_its_world_is_no_part_of_the_name(prefix: Callable[[int], str | None]):
    world = newton.ModelBuilder()
    world.add_link(label="robot/base")
    world.add_link(label="robot/left foot")
    world.add_link()
    builder = newton.ModelBuilder()
    for i in range(2):
        builder.add_world(world, label_prefix=prefix(i))
    model = builder.finalize(device="cpu")
    paths = NewtonSceneDataBackend(model, model.state()).transform_paths
    names = [path.removeprefix("/World/envs/env_0/").removeprefix("x/") for path in paths[:3]]
    assert names[:2] == ["robot/base", "robot/left_foot"]
    assert paths[3:] == [path.replace("env_0", "env_1") for path in paths[:3]]
    assert len(set(paths)) == 6


def test_a_model_without_worlds_is_one_environment():
    builder = newton.ModelBuilder()
    for _ in range(2):
        builder.add_shape_sphere(builder.add_body(label="ball"), radius=0.1)
    model = builder.finalize(device="cpu")
    backend = NewtonSceneDataBackend(model, model.state())
    assert backend.num_envs == 1
    assert backend.transform_paths == ["/World/envs/env_0/ball", "/World/envs/env_0/ball_1"]
    assert backend.describe_scene().body_paths(0) == backend.transform_paths


def test_bodies_of_no_world_have_paths_outside_of_the_environments():
    builder = newton.ModelBuilder()
    builder.add_body(label="envs")
    world = newton.ModelBuilder()
    world.add_body(label="box")
    builder.replicate(world, 2)
    builder.add_particle((0, 0, 0), (0, 0, 0), 1.0)
    model = builder.finalize(device="cpu")
    backend = NewtonSceneDataBackend(model, model.state())
    assert backend.transform_paths == ["/World/envs_1", "/World/envs/env_0/box", "/World/envs/env_1/box"]
    ((_, ranges),) = backend.get_geometry_batches()
    assert ranges == {"/World/particles": (0, 1)}
    with pytest.raises(ValueError, match="1 bodies of this one are in none of its worlds"):
        backend.describe_scene()


# Swaps


@pytest.mark.parametrize("announces_writes", [False, True])
def test_swaps_of_the_double_buffered_state_are_followed(model: newton.Model, announces_writes: bool):
    states = [model.state(), model.state()]
    backend = NewtonSceneDataBackend(model, lambda: states[0], announces_writes)
    provider = SceneDataProvider(backend)
    quaternions = SceneDataFormat.Vec3_Quat()
    assert provider.get_transforms(quaternions)
    assert backend.get_geometry_batches()[1][0].transforms is states[0].body_q
    before = backend.transforms_timestamp, backend.geometry_timestamp
    states[1].body_q.fill_(wp.transform((7, 8, 9), IDENTITY))
    states.reverse()
    assert provider.get_transforms(quaternions)
    np.testing.assert_array_equal(quaternions.positions.numpy()[0], (7, 8, 9))
    assert backend.transforms_timestamp > before[0]
    assert backend.geometry_timestamp > before[1]
    assert backend.transforms.transforms is states[0].body_q
    (points, _), (cables, _) = backend.get_geometry_batches()
    assert points.points is states[0].particle_q
    assert cables.transforms is states[0].body_q


def test_the_present_state_can_be_assigned(model: newton.Model):
    first, second = model.state(), model.state()
    backend = NewtonSceneDataBackend(model, first, announces_writes=True)
    backend.get_transforms(SceneDataFormat.Transform)
    backend.state = second
    assert backend.get_transforms(SceneDataFormat.Transform).transforms is second.body_q
    backend.state = lambda: first
    assert backend.state is first
    assert backend.get_transforms(SceneDataFormat.Transform).transforms is first.body_q


def test_joints_of_a_swapped_state_are_nobodys_write(model: newton.Model):
    """A solver that integrates bodies leaves `joint_q` of both states as they were, and bodies may rest."""
    states = [model.state(), model.state()]
    provider = SceneDataProvider(NewtonSceneDataBackend(model, lambda: states[0]))
    write_joints(model, states[1], env=0, angle=0.5, slide=0.5)
    before = positions(provider)
    states.reverse()
    np.testing.assert_array_equal(positions(provider), before)


# Never stale


def test_every_read_publishes_anew_unless_writes_are_announced(model: newton.Model, state: newton.State):
    backend = NewtonSceneDataBackend(model, state)
    stamps = [(backend.get_transforms(None), backend.transforms_timestamp)[1] for _ in range(3)]
    assert stamps[0] < stamps[1] < stamps[2]


def test_an_owner_that_announces_its_writes_reads_what_is_cached(
    model: newton.Model, state: newton.State, monkeypatch: pytest.MonkeyPatch
):
    backend = NewtonSceneDataBackend(model, state, announces_writes=True)
    provider = SceneDataProvider(backend)
    matrices = SceneDataFormat.Matrix44()
    provider.get_transforms(matrices)
    launches = count_launches(monkeypatch)
    provider.get_transforms(matrices)
    assert launches == []
    state.body_q.fill_(wp.transform((1, 2, 3), IDENTITY))
    backend.mark_transforms_written()
    provider.get_transforms(matrices)
    np.testing.assert_array_equal(matrices.matrices.numpy()[-1, :3, 3], (1, 2, 3))


def test_a_write_that_was_captured_makes_every_later_read_publish_anew(
    model: newton.Model, state: newton.State, monkeypatch: pytest.MonkeyPatch
):
    backend = NewtonSceneDataBackend(model, state, announces_writes=True)
    provider = SceneDataProvider(backend)
    matrices = SceneDataFormat.Matrix44()
    provider.get_transforms(matrices)
    with monkeypatch.context() as capture:
        capture.setattr(type(backend.device), "is_capturing", True)
        backend.mark_transforms_written()
    for x in (1, 2):  # two replays, which run no Python
        state.body_q.fill_(wp.transform((x, 0, 0), IDENTITY))
        provider.get_transforms(matrices)
        assert matrices.matrices.numpy()[0, 0, 3] == x


def arm_coordinates(model: newton.Model, env: int) -> np.ndarray:
    """Where the hinge and the slide of an environment have their coordinates."""
    hinges_and_slides = (newton.JointType.REVOLUTE, newton.JointType.PRISMATIC)
    joints = np.flatnonzero(np.isin(model.joint_type.numpy(), hinges_and_slides))
    return model.joint_q_start.numpy()[joints].reshape(NUM_ENVS, 2)[env]


def write_joints(model: newton.Model, state: newton.State, env: int, angle: float, slide: float) -> None:
    coordinates = state.joint_q.numpy()
    coordinates[arm_coordinates(model, env)] = angle, slide
    state.joint_q.assign(coordinates)


def lower_arm(angle: float, slide: float) -> np.ndarray:
    """The hinge is at (1, 0, 1) and turns about Z; the slide moves along the turned X."""
    return np.array([1 + slide * np.cos(angle), slide * np.sin(angle), 1])


def test_written_joints_move_the_bodies_at_the_next_read_though_nobody_says_so(
    model: newton.Model, state: newton.State
):
    provider = SceneDataProvider(NewtonSceneDataBackend(model, state))
    before = positions(provider).reshape(NUM_ENVS, -1, 3)
    write_joints(model, state, env=1, angle=0.6, slide=0.4)
    after = positions(provider).reshape(NUM_ENVS, -1, 3)
    np.testing.assert_allclose(after[1, 2], lower_arm(0.6, 0.4), atol=1e-6)
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])


def test_announced_joints_move_only_the_bodies_of_their_environments(model: newton.Model, state: newton.State):
    backend = NewtonSceneDataBackend(model, state)
    provider = SceneDataProvider(backend)
    positions(provider)
    # A step has moved all bodies, and its solver leaves the joints behind.
    moved = state.body_q.numpy() + np.float32([5, 5, 5, 0, 0, 0, 0])
    state.body_q.assign(moved)
    write_joints(model, state, env=2, angle=0.3, slide=0.2)
    backend.mark_joints_written([2])
    after = positions(provider).reshape(NUM_ENVS, -1, 3)
    np.testing.assert_allclose(after[2, 2], lower_arm(0.3, 0.2), atol=1e-6)
    np.testing.assert_array_equal(after[:2], moved[:, :3].reshape(NUM_ENVS, -1, 3)[:2])
    # Once: another step is not undone by the announcement that was served.
    state.body_q.assign(moved)
    np.testing.assert_array_equal(positions(provider), moved[:, :3])


def test_announcing_an_environment_that_is_not_there_is_refused(model: newton.Model, state: newton.State):
    backend = NewtonSceneDataBackend(model, state)
    with pytest.raises(ValueError, match=r"\[0, 3\)"):
        backend.mark_joints_written([3])


def test_bodies_that_were_written_are_never_computed_from_joints(model: newton.Model, state: newton.State):
    backend = NewtonSceneDataBackend(model, state)
    provider = SceneDataProvider(backend)
    positions(provider)
    state.body_q.fill_(wp.transform((3, 1, 2), IDENTITY))
    backend.mark_transforms_written()
    for _ in range(2):
        np.testing.assert_array_equal(positions(provider), np.tile(np.float32([3, 1, 2]), (model.body_count, 1)))


def test_a_solver_that_writes_joints_and_bodies_is_not_corrected(model: newton.Model, state: newton.State):
    provider = SceneDataProvider(NewtonSceneDataBackend(model, state))
    positions(provider)
    stepped = state.body_q.numpy() + np.float32([0.01, 0, 0, 0, 0, 0, 0])
    state.body_q.assign(stepped)
    write_joints(model, state, env=1, angle=0.6, slide=0.4)
    np.testing.assert_array_equal(positions(provider), stepped[:, :3])


def test_where_joints_rule_every_read_follows_them(model: newton.Model, state: newton.State):
    provider = SceneDataProvider(NewtonSceneDataBackend(model, state, joints_rule=True))
    positions(provider)
    state.body_q.fill_(wp.transform((3, 1, 2), IDENTITY))
    write_joints(model, state, env=0, angle=-0.5, slide=0.1)
    after = positions(provider).reshape(NUM_ENVS, -1, 3)
    np.testing.assert_allclose(after[0, 2], lower_arm(-0.5, 0.1), atol=1e-6)
    np.testing.assert_allclose(after[1, 2], lower_arm(0, 0), atol=1e-6)


def test_reads_that_belong_together_reconcile_once(model: newton.Model, state: newton.State):
    backend = NewtonSceneDataBackend(model, state)
    provider = SceneDataProvider(backend)
    with provider.consistent_read():
        stamp = backend.transforms_timestamp
        first = positions(provider)
        write_joints(model, state, env=0, angle=1.0, slide=0.3)
        np.testing.assert_array_equal(positions(provider), first)
        backend.get_geometry_batches()
        assert backend.transforms_timestamp == stamp
    np.testing.assert_allclose(positions(provider)[2], lower_arm(1.0, 0.3), atol=1e-6)


def simulate(model: newton.Model, solver_name: str, read: bool) -> tuple[np.ndarray, ...]:
    states = [model.state(), model.state()]
    joints_rule = solver_name != "SolverXPBD"
    provider = SceneDataProvider(NewtonSceneDataBackend(model, lambda: states[0], joints_rule=joints_rule))
    solver = getattr(newton.solvers, solver_name)(model)
    for _ in range(20):
        states[0].clear_forces()
        solver.step(states[0], states[1], None, None, 0.005)
        states.reverse()
        if read:
            provider.get_transforms(SceneDataFormat.Vec3_Matrix33())
    return tuple(getattr(states[0], name).numpy() for name in ("body_q", "body_qd", "joint_q", "joint_qd"))


@pytest.mark.parametrize("solver", ["SolverXPBD", "SolverFeatherstone"])
def test_the_trajectory_is_the_same_to_the_bit_with_and_without_readers(solver: str):
    world = newton.ModelBuilder()
    upper, lower = (world.add_link(mass=1.0, inertia=wp.mat33(np.eye(3) * 0.1)) for _ in range(2))
    joints = [
        world.add_joint_revolute(-1, upper, axis=(0, 1, 0)),
        world.add_joint_revolute(upper, lower, axis=(0, 1, 0), parent_xform=wp.transform((0.5, 0, 0), IDENTITY)),
    ]
    world.add_articulation(joints)
    world.joint_q[:] = [0.4, -0.7]
    model = world.finalize(device="cpu")
    for with_readers, without in zip(simulate(model, solver, True), simulate(model, solver, False), strict=True):
        np.testing.assert_array_equal(with_readers, without)


# Geometry


def test_particles_are_views_by_object_and_world(model: newton.Model, state: newton.State):
    points = NewtonSceneDataBackend(model, state).get_geometry_batches()[0]
    assert points[1] == {
        path: range_
        for env in range(NUM_ENVS)
        for path, range_ in {
            f"/World/envs/env_{env}/cloth": (8 * env, 6),
            f"/World/envs/env_{env}/particles": (8 * env + 6, 2),
        }.items()
    }


def endpoints_of(cables, body_q: np.ndarray) -> np.ndarray:
    """What the vertices of a cable are, computed here."""

    def end(shape: int, sign: int) -> np.ndarray:
        body = wp.transform(*body_q[cables.shape_body.numpy()[shape]])
        local = wp.transform(*cables.shape_transform.numpy()[shape])
        half_length = float(cables.shape_scale.numpy()[shape][1])
        return np.array(wp.transform_point(body * local, wp.vec3(0, 0, sign * half_length)))

    return np.array([(end(a, b) + end(c, d)) / 2 for a, b, c, d in cables.endpoints.numpy().tolist()])


def test_a_rope_is_a_polyline_through_its_capsules(model: newton.Model, state: newton.State):
    cables, ranges = NewtonSceneDataBackend(model, state).get_geometry_batches()[1]
    assert ranges == {f"/World/envs/env_{env}/rope": (5 * env, 5) for env in range(NUM_ENVS)}
    vertices = endpoints_of(cables, state.body_q.numpy())
    np.testing.assert_allclose(vertices[10:], [(0.1 * i, 0, 1) for i in range(5)], atol=1e-6)


def test_a_closed_rope_ends_where_it_begins():
    angles = np.linspace(0, 2 * np.pi, 7)
    points = np.column_stack((np.cos(angles), np.sin(angles), np.zeros(7)))
    points[-1] = points[0]
    builder = newton.ModelBuilder()
    builder.add_rod(rod=newton.Rod(points=points, radius=0.02, closed=True), label="ring")
    model = builder.finalize(device="cpu")
    backend = NewtonSceneDataBackend(model, model.state())
    ((cables, ranges),) = backend.get_geometry_batches()
    assert ranges == {"/World/envs/env_0/ring": (0, 7)}
    np.testing.assert_allclose(endpoints_of(cables, backend.state.body_q.numpy()), points, atol=1e-5)
    # Also while the solver lets the joint that closes it gape.
    poses = backend.state.body_q.numpy()
    poses[0, 2] += 0.1
    vertices = endpoints_of(cables, poses)
    np.testing.assert_allclose(vertices[[0, -1]], [points[0] + (0, 0, 0.05)] * 2, atol=1e-5)


def test_a_rod_that_branches_is_no_polyline():
    builder = newton.ModelBuilder()
    points = [(0, 0, 0), (1, 0, 0), (2, 1, 0), (2, -1, 0)]
    builder.add_rod(rod=newton.Rod(points=points, edges=[(0, 1), (1, 2), (1, 3)], radius=0.02))
    model = builder.finalize(device="cpu")
    assert NewtonSceneDataBackend(model, model.state()).get_geometry_batches() == []


# Described


def test_the_scene_is_one_world_and_its_clones(model: newton.Model, state: newton.State):
    backend = NewtonSceneDataBackend(model, state)
    scene = backend.describe_scene()
    assert scene is backend.describe_scene()
    assert scene.native("newton_model") is model
    assert [path for env in range(NUM_ENVS) for path in scene.body_paths(env)] == backend.transform_paths
    assert scene.point_ranges() == backend.get_geometry_batches()[0][1]
    by_name = {shape.path_name: shape for shape in scene.shapes}
    ground = by_name["ground_plane"]
    assert (ground.type, ground.body, ground.group) == (ShapeType.PLANE, -1, 0)
    hull = by_name["free_box/hull"]
    assert hull.type is ShapeType.BOX
    np.testing.assert_allclose(hull.size, (0.1, 0.2, 0.3), rtol=1e-6)
    capsule = next(shape for shape in scene.shapes if shape.body == 1)
    assert (capsule.type, capsule.group) == (ShapeType.CAPSULE, 3)
    upper, lower = scene.bodies[1], scene.bodies[2]
    assert (upper.parent, lower.parent) == (-1, 1)
    np.testing.assert_allclose(upper.position, (1, 0, 1), atol=1e-6)
    cloth = scene.flexes[0]
    assert (cloth.dim, cloth.vertex_count, len(cloth.elements), len(cloth.shell)) == (2, 6, 4, 6)


def test_meshes_are_described_once_in_the_size_in_which_they_are_shown():
    tetrahedron = newton.Mesh([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], [0, 2, 1, 0, 1, 3, 1, 2, 3, 0, 3, 2])
    builder = newton.ModelBuilder()
    body = builder.add_body()
    for scale in [(1, 1, 1), (2, 2, 2), (1, 1, 1)]:
        builder.add_shape_mesh(body, mesh=tetrahedron, scale=scale)
    builder.add_shape_cone(body, radius=0.5, half_height=1.0)
    heights = np.array([[0, 1, 2], [3, 4, 5]])
    builder.add_shape_heightfield(heightfield=newton.Heightfield(heights, 2, 3, hx=2.0, hy=1.0))
    model = builder.finalize(device="cpu")
    scene = NewtonSceneDataBackend(model, model.state()).describe_scene()
    assert [shape.mesh for shape in scene.shapes] == [0, 1, 0, 2, None]
    np.testing.assert_allclose(scene.meshes[1].vertices.max(axis=0), (2, 2, 2))
    np.testing.assert_allclose(scene.shapes[3].size, (0.5, 0.5, 1.0), atol=1e-2)
    np.testing.assert_allclose(scene.height_fields[0].heights, heights, atol=1e-6)
    corners = scene.meshes[0].vertices[scene.meshes[0].faces]
    outward = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert (np.einsum("ij,ij->i", outward, corners.mean(axis=1) - 0.25) > 0).all()


def test_worlds_that_are_no_copies_are_read_but_not_described():
    builder = newton.ModelBuilder()
    for radius in (0.1, 0.2):
        world = newton.ModelBuilder()
        world.add_shape_sphere(world.add_body(label=f"ball {radius}"), radius=radius)
        builder.add_world(world)
    model = builder.finalize(device="cpu")
    backend = NewtonSceneDataBackend(model, model.state())
    assert backend.transform_paths == ["/World/envs/env_0/ball_0_1", "/World/envs/env_1/ball_0_2"]
    with pytest.raises(ValueError, match="world 1 differs from world 0 in its scales of shapes"):
        backend.describe_scene()


# Bad input


def test_what_is_no_state_of_the_model_is_refused(model: newton.Model, state: newton.State):
    with pytest.raises(TypeError, match=r"model must be a newton.Model, got State"):
        NewtonSceneDataBackend(state, state)
    with pytest.raises(TypeError, match="got Model"):
        NewtonSceneDataBackend(model, model)
    other = newton.ModelBuilder()
    other.add_body()
    with pytest.raises(ValueError, match="it has 1 bodies, the model 21"):
        NewtonSceneDataBackend(model, other.finalize(device="cpu").state())


# As an engine of a simulation


def falling_ball() -> newton.ModelBuilder:
    ball = newton.ModelBuilder()
    ball.add_shape_sphere(ball.add_body(xform=wp.transform((0, 0, 1), IDENTITY), label="ball"), radius=0.1)
    return ball


@pytest.mark.parametrize(
    "solver", ["xpbd", "featherstone", "semi_implicit", pytest.param("mujoco", marks=pytest.mark.slow)]
)
def test_the_engine_steps_publishes_and_resets_some_environments(solver: str):
    engine = NewtonPhysicsCfg(falling_ball(), solver, num_envs=3, timestep=0.01).create("cpu")
    provider = SceneDataProvider(engine.backend)
    for _ in range(10):
        engine.step()
    np.testing.assert_allclose(positions(provider)[:, 2], 1 - 9.81 * 0.1**2 / 2, atol=9.81 * 0.1 * 0.01)
    assert provider.simulation_time_ns == 100_000_000
    fallen = positions(provider)[0, 2]
    engine.reset([1])
    np.testing.assert_array_equal(positions(provider)[:, 2], np.float32([fallen, 1, fallen]))
    np.testing.assert_array_equal(provider.env_time_ns, [100_000_000, 0, 100_000_000])
    engine.step()
    heights = positions(provider)[:, 2]
    assert heights[0] == heights[2] < fallen
    assert heights[1] == pytest.approx(1, abs=2e-3)
    engine.reset()
    np.testing.assert_allclose(positions(provider)[:, 2], 1)


def test_forces_move_the_environments_they_are_given_to():
    engine = NewtonPhysicsCfg(falling_ball(), "featherstone", num_envs=2, timestep=0.01).create("cpu")
    control = np.zeros((2, 6))
    control[1, 0] = 50.0
    engine.set_control(control)
    for _ in range(5):
        engine.step()
    x = positions(SceneDataProvider(engine.backend))[:, 0]
    assert x[0] == pytest.approx(0, abs=1e-6)
    assert x[1] > 1e-3


def test_a_configuration_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="Unknown solver 'euler'. Known: xpbd"):
        NewtonPhysicsCfg(falling_ball(), "euler")
    with pytest.raises(ValueError, match="num_envs must be at least 1"):
        NewtonPhysicsCfg(falling_ball(), num_envs=0)
    with pytest.raises(ValueError, match="timestep must be positive"):
        NewtonPhysicsCfg(falling_ball(), timestep=0)
    with pytest.raises(TypeError, match=r"a newton\.ModelBuilder or a newton\.Model, got str"):
        NewtonPhysicsCfg("model.xml").create("cpu")
    engine = NewtonPhysicsCfg(falling_ball()).create("cpu")
    with pytest.raises(ValueError, match=r"shape \(1, 6\), got \(1, 5\)"):
        engine.set_control(np.zeros((1, 5)))
    with pytest.raises(ValueError, match=r"\[0, 1\), got \[1\]"):
        engine.reset([1])
    with pytest.raises(ValueError, match="Unknown keyframe 'home'. Known: none"):
        engine.reset(keyframe="home")


def test_what_belongs_to_no_body_is_on_a_usd_stage_too():
    pxr = pytest.importorskip("pxr", reason="usd-core is not installed")
    from scene_data.stage import SceneStage

    builder = newton.ModelBuilder()
    builder.add_ground_plane()
    body = builder.add_body(xform=wp.transform((0, 0, 1), IDENTITY), label="box")
    builder.add_shape_box(body, hx=0.1, hy=0.1, hz=0.1)
    model = builder.finalize(device="cpu")
    scene = NewtonSceneDataBackend(model, model.state()).describe_scene()
    (ground,) = [shape for shape in scene.shapes if shape.body == WORLD]
    stage = SceneStage(scene).stage
    prim = stage.GetPrimAtPath(f"{scene.env_path(0)}/{ground.path_name}")
    box = pxr.UsdGeom.BBoxCache(0.0, ["default"]).ComputeWorldBound(prim).ComputeAlignedRange()
    assert box.GetSize()[0] > 1.0
    assert abs(box.GetMax()[2]) < 1e-6
