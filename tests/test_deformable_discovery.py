"""Deformables that a stage declares, where a plan clones them, and how they bind to an engine's nodes."""

import logging
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import warp as wp

from scene_data import SceneDataFormat, SceneDataProvider
from scene_data.clone_routes import CloneRoute, clone_routes, match_template
from scene_data.deformable_discovery import (
    DeformableStageEntry,
    deformable_entry,
    deformable_geometry_batches,
    deformable_prototypes,
    expand_deformable_entries,
)
from scene_data.scene import ClonePlan

pytest.importorskip("pxr", reason="reads USD stages")

from pxr import Gf, Sdf, Usd, UsdGeom

BODY = "OmniPhysicsDeformableBodyAPI"
TRIANGLE = [(0, 0, 0), (1, 0, 0), (0, 1, 0)]
TET = [*TRIANGLE, (0, 0, 1)]


@pytest.fixture
def stage():
    return Usd.Stage.CreateInMemory()


def apply(prim, *schemas):
    """Name schemas on a prim that this USD does not know."""
    operation = Sdf.TokenListOp()
    operation.explicitItems = list(schemas)
    prim.SetMetadata("apiSchemas", operation)


def define_root(stage, path, schema=BODY):
    root = UsdGeom.Xform.Define(stage, path)
    apply(root.GetPrim(), schema)
    return root


def define_mesh(stage, path, *schemas, points=TRIANGLE, faces=(0, 1, 2)):
    mesh = UsdGeom.Mesh.Define(stage, path)
    mesh.CreatePointsAttr([Gf.Vec3f(*point) for point in points])
    mesh.CreateFaceVertexCountsAttr([3] * (len(faces) // 3))
    mesh.CreateFaceVertexIndicesAttr(list(faces))
    apply(mesh.GetPrim(), *schemas)
    return mesh


def define_tets(stage, path, points=TET, tets=((0, 1, 2, 3),)):
    mesh = UsdGeom.TetMesh.Define(stage, path)
    mesh.CreatePointsAttr([Gf.Vec3f(*point) for point in points])
    mesh.CreateTetVertexIndicesAttr([Gf.Vec4i(*tet) for tet in tets])
    return mesh


def read(prim) -> DeformableStageEntry:
    entry = deformable_entry(prim.GetPrim())
    assert entry is not None
    return entry


# One body


def test_a_tetrahedral_mesh_is_a_volume_seen_as_its_visual_mesh(stage):
    root = define_root(stage, "/Soft")
    define_mesh(stage, "/Soft/skin", points=[*TRIANGLE, (1, 1, 0)], faces=[0, 1, 2, 1, 3, 2])
    define_tets(stage, "/Soft/sim")
    entry = read(root)
    assert (entry.root_path, entry.sim_mesh_path, entry.vis_mesh_path) == ("/Soft", "/Soft/sim", "/Soft/skin")
    assert (entry.deformable_type, entry.vertex_count, entry.vis_vertex_count) == ("volume", 4, 4)
    assert entry.indices.tolist() == [0, 1, 2, 3]
    assert entry.vis_indices.tolist() == [0, 1, 2, 1, 3, 2]
    assert {entry.vertices.dtype, entry.vis_vertices.dtype} == {np.dtype(np.float32)}
    assert {entry.indices.dtype, entry.vis_indices.dtype} == {np.dtype(np.int32)}
    assert (entry.init_pos, entry.init_rot) == ((0, 0, 0), (0, 0, 0, 1))


def test_a_volume_without_a_visual_mesh_is_seen_as_its_nodes(stage):
    root = define_root(stage, "/Soft")
    define_tets(stage, "/Soft/sim")
    entry = read(root)
    assert entry.vis_mesh_path == entry.sim_mesh_path == "/Soft/sim"
    assert entry.vis_vertices is entry.vertices
    assert entry.vis_indices.tolist() == []


def test_a_surface_with_a_simulation_schema_is_seen_as_the_other_mesh(stage):
    root = define_root(stage, "/Cloth")
    define_mesh(stage, "/Cloth/a_skin", points=[*TRIANGLE, (0, 0, 1)])
    define_mesh(stage, "/Cloth/sim", "OmniPhysicsSurfaceDeformableSimAPI")
    entry = read(root)
    assert (entry.deformable_type, entry.sim_mesh_path, entry.vis_mesh_path) == (
        "surface",
        "/Cloth/sim",
        "/Cloth/a_skin",
    )
    assert (entry.vertex_count, entry.vis_vertex_count) == (3, 4)
    assert entry.indices.tolist() == [0, 1, 2]


def test_a_surface_without_a_simulation_schema_is_its_nearest_mesh(stage):
    root = define_root(stage, "/Cloth")
    define_mesh(stage, "/Cloth/deep/first")
    define_mesh(stage, "/Cloth/near")
    define_mesh(stage, "/Cloth/visual")
    entry = read(root)
    assert entry.sim_mesh_path == entry.vis_mesh_path == "/Cloth/near"
    itself = define_mesh(stage, "/Sheet", BODY)
    define_mesh(stage, "/Sheet/below")
    assert read(itself).sim_mesh_path == "/Sheet"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x/visual", "plain"], "plain"),  # beside the simulated one
        (["plain", "my_Render"], "my_Render"),
        (["a_proxy_4", "b_proxy"], "a_proxy_4"),  # as many points
        (["x/y/display", "x/display"], "x/display"),  # nearer
    ],
)
def test_of_several_visual_meshes_the_most_likely_is_taken(stage, names, expected):
    root = define_root(stage, "/Soft")
    define_tets(stage, "/Soft/sim")
    for name in names:
        define_mesh(stage, f"/Soft/{name}", points=TET if name.endswith("_4") else TRIANGLE)
    assert read(root).vis_mesh_path == f"/Soft/{expected}"


def test_of_several_tetrahedral_meshes_the_nearest_is_used_with_a_warning(stage, caplog):
    root = define_root(stage, "/Soft")
    define_tets(stage, "/Soft/a/deep")
    define_tets(stage, "/Soft/b")
    assert read(root).sim_mesh_path == "/Soft/b"
    assert "/Soft holds several tetrahedral meshes; only /Soft/b is used" in caplog.text


def test_a_simulation_schema_tells_tetrahedral_meshes_apart(stage):
    root = define_root(stage, "/Soft")
    define_tets(stage, "/Soft/collision")
    apply(define_tets(stage, "/Soft/sim").GetPrim(), "OmniPhysicsVolumeDeformableSimAPI")
    assert read(root).sim_mesh_path == "/Soft/sim"


@pytest.mark.parametrize("with_empty_mesh", [False, True])
def test_a_body_that_cannot_be_simulated_is_skipped_with_a_warning(stage, caplog, with_empty_mesh):
    root = define_root(stage, "/World/Empty")
    if with_empty_mesh:
        define_tets(stage, "/World/Empty/sim", points=[])
    with caplog.at_level(logging.WARNING):
        assert deformable_entry(root.GetPrim()) is None
    assert "Skipping deformable prim '/World/Empty'" in caplog.text


@pytest.mark.parametrize("scale", [(1, 1, 1), (2, 3, 4), (-2, 3, 4)])
def test_points_are_in_the_rigid_frame_of_the_parent(stage, scale):
    parent = UsdGeom.Xform.Define(stage, "/Cell")
    parent.AddTranslateOp().Set((10, -2, 3))
    parent.AddRotateXYZOp().Set((20, 30, 40))
    parent.AddScaleOp().Set(scale)
    root = define_root(stage, "/Cell/Soft")
    root.AddRotateYOp().Set(15)
    tets = define_tets(stage, "/Cell/Soft/sim")
    tets.AddTranslateOp().Set((0.5, 0.25, 0))
    visual = define_mesh(stage, "/Cell/Soft/visual")
    visual.AddScaleOp().Set((0.5, 0.5, 0.5))
    entry = read(root)
    pose = wp.transform(entry.init_pos, entry.init_rot)
    np.testing.assert_allclose(entry.init_pos, (10, -2, 3))
    for mesh, points, local in ((tets, entry.vertices, TET), (visual, entry.vis_vertices, TRIANGLE)):
        to_world = mesh.ComputeLocalToWorldTransform(Usd.TimeCode.Default())
        expected = [to_world.Transform(Gf.Vec3d(point)) for point in local]
        np.testing.assert_allclose(
            [wp.transform_point(pose, wp.vec3(*map(float, point))) for point in points], expected, atol=1e-5
        )


def test_lengths_are_metres(stage):
    UsdGeom.SetStageMetersPerUnit(stage, 0.01)
    UsdGeom.Xform.Define(stage, "/Cell").AddTranslateOp().Set((100, 0, 0))
    root = define_root(stage, "/Cell/Soft")
    define_tets(stage, "/Cell/Soft/sim")
    entry = read(root)
    np.testing.assert_allclose(entry.vertices, np.array(TET) * 0.01)
    np.testing.assert_allclose(entry.init_pos, (1, 0, 0))


# Prototypes of a plan


def isaac_plan(assets, worlds, layout, shared=(), template="/World/envs/env_{}"):
    """A plan of the shape that Isaac Lab's cloner makes: assets are (prim_path, spawn_path or None)."""
    members = [*shared, *(asset for world in worlds for asset in world)]
    counts = [len(shared), *(len(world) for world in worlds)]
    topology = SimpleNamespace(
        world_prototypes=np.array(members, dtype=np.int32),
        world_prototype_starts=np.cumsum([0, *counts]),
        world_prototype_layout=np.array(layout, dtype=np.int32),
    )
    cfgs = tuple(
        SimpleNamespace(prim_path=path, spawn=SimpleNamespace(spawn_path=spawn))
        if spawn
        else SimpleNamespace(prim_path=path)
        for path, spawn in assets
    )
    return SimpleNamespace(topology=topology, asset_cfgs=cfgs, env_template=template)


def prototype_paths(stage, plan, exclude_paths=()):
    return [entry.root_path for entry in deformable_prototypes(stage, plan, exclude_paths)]


def test_our_plan_has_its_prototype_in_environment_0(stage):
    for env in range(3):
        define_mesh(stage, f"/World/envs/env_{env}/Cloth", BODY)
    define_mesh(stage, "/World/envs/env_0/Table")
    define_mesh(stage, "/World/Undeclared", BODY)
    assert prototype_paths(stage, ClonePlan(3)) == ["/World/envs/env_0/Cloth"]


def test_bodies_inside_instances_are_found(stage):
    define_root(stage, "/Library/Cloth", "PhysicsDeformableBodyAPI")
    define_mesh(stage, "/Library/Cloth/mesh")
    instance = stage.DefinePrim("/World/envs/env_0/Thing")
    instance.GetReferences().AddInternalReference("/Library")
    instance.SetInstanceable(True)
    (entry,) = deformable_prototypes(stage, ClonePlan(1))
    assert entry.root_path == "/World/envs/env_0/Thing/Cloth"
    assert entry.sim_mesh_path == "/World/envs/env_0/Thing/Cloth/mesh"


def test_meshes_inside_instances_are_found(stage):
    define_mesh(stage, "/Library/mesh")
    root = define_root(stage, "/Cloth")
    instance = stage.DefinePrim("/Cloth/geometry")
    instance.GetReferences().AddInternalReference("/Library")
    instance.SetInstanceable(True)
    assert read(root).sim_mesh_path == "/Cloth/geometry/mesh"


def test_particles_and_curves_are_no_bodies(stage, caplog):
    for kind in (UsdGeom.Points, UsdGeom.BasisCurves):
        prim = kind.Define(stage, f"/World/envs/env_0/{kind.__name__}").GetPrim()
        apply(prim, BODY)
    assert prototype_paths(stage, ClonePlan(1)) == []
    assert not caplog.records


def test_excluded_sources_are_left_out_and_what_is_ours_below_them_stays(stage):
    for name in ("A", "A/Inner", "A/Inner/Deep", "B"):
        define_root(stage, f"/Lab/{name}")
        define_mesh(stage, f"/Lab/{name}/cloth", BODY)
    assets = [
        ("/World/envs/env_.*/a", "/Lab/A"),
        ("/World/envs/env_.*/i", "/Lab/A/Inner"),
        ("/World/envs/env_.*/b", "/Lab/B"),
    ]
    plan = isaac_plan(assets, [(0, 1, 2)], [0])

    def cloths(*excluded):
        return [path for path in prototype_paths(stage, plan, excluded) if path.endswith("cloth")]

    every = ["/Lab/A/Inner/Deep/cloth", "/Lab/A/Inner/cloth", "/Lab/A/cloth", "/Lab/B/cloth"]
    assert sorted(cloths()) == every
    assert sorted(cloths("/Lab/A")) == [every[0], every[1], every[3]]
    assert sorted(cloths("/Lab/A/Inner/Deep")) == every[1:]
    assert sorted(cloths("/Lab/A/Inner", "/Lab/Nowhere")) == every[2:]


def test_what_is_ours_below_an_excluded_or_cloned_path_is_found_from_a_shared_one(stage):
    for path in ("Out", "Out/Ours", "Cell1", "Cell1/Ours"):
        define_mesh(stage, f"/Lab/{path}", BODY)
    assets = [
        ("/Lab", None),
        ("/Lab/Cell.*", "/Lab/Out"),
        ("/Lab/Cell.*/x", "/Lab/Out/Ours"),
        ("/Lab/Cell.*/y", "/Lab/Cell1/Ours"),
    ]
    plan = isaac_plan(assets, [(1, 2, 3)], [0, 0], shared=(0,), template="/Lab/Cell{}")
    assert sorted(prototype_paths(stage, plan, ["/Lab/Out"])) == ["/Lab/Cell1/Ours", "/Lab/Out/Ours"]


def test_clones_below_a_shared_path_are_not_read(stage):
    for env in range(3):
        define_mesh(stage, f"/World/envs/env_{env}/Cloth", BODY)
    define_mesh(stage, "/World/Curtain", BODY)
    plan = isaac_plan([("/World", None), ("/World/envs/env_[^/]+/Cloth", None)], [(1,)], [0, 0, 0], shared=(0,))
    assert sorted(prototype_paths(stage, plan)) == ["/World/Curtain", "/World/envs/env_0/Cloth"]


def test_a_prototype_that_is_not_on_the_stage_is_no_body(stage):
    assert prototype_paths(stage, ClonePlan(2)) == []


# Routes


def test_routes_name_what_goes_where():
    assets = [
        ("/World/envs/env_.*/Robot", None),
        ("/World/envs/env_[^/]+/Cloth", "/Library/Cloth"),
        ("/Ground", None),
        ("/Elsewhere/Ball", None),
    ]
    plan = isaac_plan(assets, [(0, 1), (0, 1, 1), (3,), (2,)], [1, 0, 1, 2], shared=(2,))
    root = "/World/envs/env_{}"
    assert clone_routes(plan) == (
        CloneRoute("/Ground", "/Ground", None),
        CloneRoute("/World/envs/env_1/Robot", f"{root}/Robot", (1,)),
        CloneRoute("/Library/Cloth", f"{root}/Cloth", (1,)),
        CloneRoute("/World/envs/env_1/Robot", f"{root}/Robot", (0, 2)),
        CloneRoute("/Library/Cloth", f"{root}/Cloth", (0, 2)),
        CloneRoute("/Library/Cloth", f"{root}/Cloth_1", (0, 2)),
        CloneRoute("/World/envs/env_3/Ball", f"{root}/Ball", (3,)),
    )
    assert clone_routes(ClonePlan(2)) == (CloneRoute("/World/envs/env_0", root, (0, 1)),)


@pytest.mark.parametrize(
    ("path", "template", "expected"),
    [
        ("/W/env_3/Robot/base", "/W/env_{}", ("3", "/Robot/base")),
        ("/W/env_3", "/W/env_{}", ("3", "")),
        ("/W/env_.*/Robot", "/W/env_{}", (".*", "/Robot")),
        ("/W/env_[^/]*/Robot", "/W/env_{}", ("*", "/Robot")),
        ("/W/env_3/Robots", "/W/env_{}/Robot", None),
        ("/W/env_", "/W/env_{}", None),
        ("/Ws/env_3", "/W/env_{}", None),
    ],
)
def test_templates_match_on_whole_names(path, template, expected):
    assert match_template(path, template) == expected


# Clones


def body(path, **changes):
    vertices = np.array(TRIANGLE, dtype=np.float32)
    return replace(
        DeformableStageEntry(path, f"{path}/sim", f"{path}/vis", "surface", 3, 3, vertices, vis_vertices=vertices),
        **changes,
    )


def by_path(entries):
    return {entry.root_path: entry for entry in entries}


def test_clones_share_arrays_and_move_with_their_environment():
    prototype = body("/World/envs/env_0/Cloth", init_pos=(1.0, 2.0, 3.0), init_rot=(0.0, 0.0, 1.0, 0.0))
    positions = np.array([[10, 0, 0], [20, 0, 0], [30, 5, 0]])
    clones = expand_deformable_entries([prototype], ClonePlan(3), np.arange(3), positions)
    assert [clone.root_path for clone in clones] == [f"/World/envs/env_{env}/Cloth" for env in range(3)]
    assert [clone.sim_mesh_path for clone in clones] == [f"/World/envs/env_{env}/Cloth/sim" for env in range(3)]
    assert [clone.vis_mesh_path for clone in clones] == [f"/World/envs/env_{env}/Cloth/vis" for env in range(3)]
    assert [clone.init_pos for clone in clones] == [(1, 2, 3), (11, 2, 3), (21, 7, 3)]
    for clone in clones:
        assert clone.vertices is prototype.vertices
        assert clone.indices is prototype.indices
        assert clone.init_rot == prototype.init_rot


def test_without_positions_clones_stay_where_their_prototype_is():
    prototype = body("/World/envs/env_0/Cloth", init_pos=(1.0, 2.0, 3.0))
    clones = expand_deformable_entries([prototype], ClonePlan(2), np.arange(2))
    assert [clone.init_pos for clone in clones] == [(1, 2, 3)] * 2


def test_environment_ids_are_the_ones_in_the_paths():
    plan = isaac_plan([("/World/envs/env_.*/Cloth", "/World/envs/env_7/Cloth")], [(0,)], [0, 0])
    positions = np.array([[5, 0, 0], [9, 0, 0]])
    clones = expand_deformable_entries([body("/World/envs/env_7/Cloth")], plan, np.array([4, 7]), positions)
    assert {clone.root_path: clone.init_pos for clone in clones} == {
        "/World/envs/env_4/Cloth": (-4, 0, 0),
        "/World/envs/env_7/Cloth": (0, 0, 0),
    }


def test_a_prototype_outside_of_all_environments_moves_by_their_whole_position():
    plan = isaac_plan([("/World/envs/env_.*/Cloth", "/Library/Cloth")], [(0,)], [0, 0])
    clones = expand_deformable_entries([body("/Library/Cloth")], plan, range(2), np.array([[5, 0, 0], [9, 0, 1]]))
    assert [clone.init_pos for clone in clones] == [(5, 0, 0), (9, 0, 1)]


def test_a_prototype_in_an_environment_that_is_not_cloned_counts_for_the_first_that_is():
    plan = isaac_plan([("/World/envs/env_.*/Cloth", "/World/envs/env_0/Cloth")], [(0,)], [0, 0])
    positions = np.array([[5, 0, 0], [9, 0, 0]])
    clones = expand_deformable_entries([body("/World/envs/env_0/Cloth")], plan, [3, 4], positions)
    assert [clone.init_pos for clone in clones] == [(0, 0, 0), (4, 0, 0)]


def test_shared_and_undeclared_bodies_are_there_once_and_stay():
    plan = isaac_plan([("/Curtain", None), ("/World/envs/env_.*/Cloth", None)], [(1,)], [0, 0], shared=(0,))
    prototypes = [body("/Curtain", init_pos=(1.0, 0.0, 0.0)), body("/Flag"), body("/World/envs/env_0/Cloth")]
    clones = expand_deformable_entries(prototypes, plan, range(2), np.array([[5, 0, 0], [9, 0, 0]]))
    assert [clone.root_path for clone in clones] == [
        "/Curtain",
        "/Flag",
        "/World/envs/env_0/Cloth",
        "/World/envs/env_1/Cloth",
    ]
    assert clones[0].init_pos == (1, 0, 0)


def test_environments_of_other_compositions_do_not_get_the_body():
    assets = [("/World/envs/env_.*/Cloth", None), ("/World/envs/env_.*/Box", None)]
    plan = isaac_plan(assets, [(0,), (1,)], [0, 1, 0])
    clones = expand_deformable_entries([body("/World/envs/env_0/Cloth")], plan, range(3))
    assert list(by_path(clones)) == ["/World/envs/env_0/Cloth", "/World/envs/env_2/Cloth"]


def test_only_imported_sources_are_cloned():
    assets = [("/World/envs/env_.*", "/Lab"), ("/World/envs/env_.*/Inner", "/Lab/Inner")]
    plan = isaac_plan(assets, [(0, 1)], [0, 0])
    inner = body("/Lab/Inner/Cloth")
    outer = body("/Lab/Cloth")
    clones = expand_deformable_entries([inner, outer], plan, range(2), imported_sources={"/Lab/Inner"})
    assert list(by_path(clones)) == ["/World/envs/env_0/Inner/Cloth", "/World/envs/env_1/Inner/Cloth", "/Lab/Cloth"]


def test_where_two_prototypes_go_to_one_path_the_more_specific_route_wins():
    assets = [("/World/envs/env_.*", "/Lab"), ("/World/envs/env_.*/Inner", "/Library")]
    plan = isaac_plan(assets, [(0, 1)], [0])
    outer, special = body("/Lab/Inner/Cloth"), body("/Library/Cloth")
    for prototypes in ([outer, special], [special, outer]):
        (clone,) = expand_deformable_entries(prototypes, plan, [0])
        assert clone.root_path == "/World/envs/env_0/Inner/Cloth"
        assert clone.vertices is special.vertices


# Binding to an engine's nodes


def volume(path, vis_vertices):
    nodes = np.array(TET, dtype=np.float32)
    vis_vertices = np.asarray(vis_vertices, dtype=np.float32)
    return DeformableStageEntry(
        path, f"{path}/sim", f"{path}/vis", "volume", 4, len(vis_vertices), nodes, np.arange(4), vis_vertices
    )


def test_bodies_seen_as_their_nodes_are_ranges_of_them():
    cloth = body("/A")
    copied = replace(body("/B"), vis_vertices=body("/B").vertices.copy())
    ((publication, ranges),) = deformable_geometry_batches([cloth, copied], [5, 11], "cpu")
    assert publication._cls is SceneDataFormat.Points
    assert publication.points is None
    assert ranges == {"/A/vis": (5, 3), "/B/vis": (11, 3)}
    assert deformable_geometry_batches([], [], "cpu") == []


def test_visual_meshes_of_their_own_are_interpolated_by_the_provider():
    inside = [[0.25, 0.25, 0.25], [0.1, 0.2, 0.3]]
    prototype = volume("/A", inside)
    clone = replace(prototype, vis_mesh_path="/B/vis")
    batches = deformable_geometry_batches([prototype, body("/Cloth"), clone], [2, 6, 9], "cpu")
    (direct, direct_ranges), (weighted, weighted_ranges) = batches
    assert direct_ranges == {"/Cloth/vis": (6, 3)}
    assert weighted_ranges == {"/A/vis": (0, 2), "/B/vis": (2, 2)}
    assert weighted.indices.numpy().tolist() == [[2, 3, 4, 5]] * 2 + [[9, 10, 11, 12]] * 2
    nodes = np.zeros((13, 3), dtype=np.float32)
    nodes[2:6], nodes[6:9], nodes[9:13] = TET, TRIANGLE, np.array(TET) * 2 + 1
    direct.points = weighted.points = wp.array(nodes, dtype=wp.vec3f, device="cpu")
    backend = SimpleNamespace(geometry_timestamp=0, get_geometry_batches=lambda _: batches)
    points = SceneDataProvider(backend).get_geometry_points()
    np.testing.assert_allclose(points["/A/vis"].numpy(), inside, atol=1e-6)
    np.testing.assert_allclose(points["/B/vis"].numpy(), np.array(inside) * 2 + 1, atol=1e-6)
    np.testing.assert_allclose(points["/Cloth/vis"].numpy(), TRIANGLE)


def test_the_weights_of_a_prototype_are_found_once(monkeypatch):
    from scene_data import deformable_discovery

    searched = []
    build = deformable_discovery.build_volume_vis_barycentric_remap
    monkeypatch.setattr(
        deformable_discovery,
        "build_volume_vis_barycentric_remap",
        lambda *arguments: searched.append(arguments) or build(*arguments),
    )
    prototype = volume("/World/envs/env_0/Soft", [[0.25, 0.25, 0.25]])
    clones = expand_deformable_entries([prototype], ClonePlan(50), range(50))
    ((publication, ranges),) = deformable_geometry_batches(clones, [4 * i for i in range(50)], "cpu")
    assert len(searched) == 1
    assert publication.indices.shape == (50, 4)
    assert ranges["/World/envs/env_49/Soft/vis"] == (49, 1)


def test_what_cannot_be_bound_is_named():
    with pytest.raises(ValueError, match="/Cloth"):
        deformable_geometry_batches([replace(body("/Cloth"), vis_vertices=np.ones((3, 3)))], [0], "cpu")
    flat = replace(volume("/Flat", [[0, 0, 0]]), vertices=np.zeros((4, 3), dtype=np.float32))
    with pytest.raises(ValueError, match=r"/Flat .*/Flat/vis"):
        deformable_geometry_batches([flat], [0], "cpu")
    with pytest.raises(ValueError, match="shorter"):
        deformable_geometry_batches([body("/A")], [], "cpu")


def test_without_usd_geometry_is_bound_all_the_same_and_reading_names_the_extra():
    script = """
import sys
sys.modules["pxr"] = None
from scene_data import deformable_discovery
from scene_data.errors import MissingDependencyError
from scene_data.scene import ClonePlan
assert deformable_discovery.deformable_geometry_batches([], [], "cpu") == []
for read in (
    lambda: deformable_discovery.deformable_entry(None),
    lambda: deformable_discovery.deformable_prototypes(None, ClonePlan(1)),
):
    try:
        read()
    except MissingDependencyError as error:
        print(error.extra)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["usd", "usd"]
