"""Shapes of a USD stage: primitives, meshes and height fields."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pxr import Gf, Sdf, Usd, UsdGeom, Vt

from scene_data.scene_assets import MeshDescription
from scene_data.scene_parts import ShapeDescription, ShapeType
from scene_data.stage_materials import MaterialLibrary
from scene_data.stage_poses import pose_matrix
from scene_data.tessellation import Surface, planar_texcoords, tessellate

__all__ = [
    "define_mesh",
    "define_shape",
    "define_surface",
    "define_triangles",
    "set_look",
    "set_points",
    "set_texcoords",
    "upright_texcoords",
]

_DRAWN_GROUPS = (0, 1, 2)


def define_mesh(stage: Usd.Stage, path: str, mesh: MeshDescription) -> UsdGeom.Mesh:
    """Write the geometry of a mesh, for shapes to refer to."""
    defined = define_triangles(stage, path, mesh.vertices, mesh.faces)
    if np.array_equal(mesh.face_normals, mesh.faces):
        _set_normals(defined, mesh.normals, UsdGeom.Tokens.vertex)
    else:
        _set_normals(defined, mesh.normals[mesh.face_normals].reshape(-1, 3), UsdGeom.Tokens.faceVarying)
    if mesh.texcoords is not None and mesh.face_texcoords is not None:
        set_texcoords(defined, upright_texcoords(mesh.texcoords), mesh.face_texcoords)
    return defined


def define_surface(stage: Usd.Stage, path: str, surface: Surface) -> UsdGeom.Mesh:
    """Write the geometry of a tessellated primitive or height field."""
    defined = define_triangles(stage, path, surface.points, surface.faces)
    _set_normals(defined, surface.normals, UsdGeom.Tokens.vertex)
    return defined


def define_shape(
    stage: Usd.Stage, path: str, shape: ShapeDescription, asset: str | None, materials: MaterialLibrary, endless: float
) -> Usd.Prim:
    """Write a shape in the frame of its body.

    A primitive stays one where nothing has to be wrapped around it, and becomes triangles under a planar texture.
    What is in a group that MuJoCo does not draw by default is a guide, and what has no opacity is invisible.

    Args:
        stage: Where to define it.
        path: Its path.
        shape: What it is like.
        asset: Path of the mesh or height field that it shows, or None.
        materials: Where it takes its material from.
        endless: Half the size of what has no end [m].
    """
    textured = bool(materials.planar_roles(shape.material))
    size = shape.size.copy()
    if shape.type is ShapeType.PLANE:
        size[:2] = np.where(size[:2] > 0.0, size[:2], endless)
    scale = np.ones(3)
    if asset is not None:
        prim = UsdGeom.Mesh.Define(stage, path).GetPrim()
        prim.GetReferences().AddInternalReference(asset)
    elif textured:
        prim = define_surface(stage, path, tessellate(shape.type, size)).GetPrim()
    else:
        prim, scale = _define_primitive(stage, path, shape.type, size)
    if textured:
        _wrap_texture(UsdGeom.Mesh(prim), shape, materials)
    matrix = np.diag((*scale, 1.0)) @ pose_matrix(shape.position, shape.quaternion)
    UsdGeom.Xformable(prim).AddTransformOp().Set(Gf.Matrix4d(matrix))
    if shape.type is ShapeType.PLANE:
        UsdGeom.Gprim(prim).CreateDoubleSidedAttr(True)
    materials.bind(prim, shape.material, shape.rgba)
    set_look(prim, shape.group, shape.rgba)
    return prim


def define_triangles(
    stage: Usd.Stage, path: str, points: NDArray[np.float32], faces: NDArray[np.int32]
) -> UsdGeom.Mesh:
    """Write triangles `(F, 3)` over points `(V, 3)`, as they are: not subdivided."""
    mesh = UsdGeom.Mesh.Define(stage, path)
    mesh.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
    mesh.CreateFaceVertexCountsAttr(Vt.IntArray(len(faces), 3))
    mesh.CreateFaceVertexIndicesAttr(Vt.IntArray.FromNumpy(faces.reshape(-1)))
    set_points(mesh, points)
    return mesh


def set_points(prim: UsdGeom.PointBased, points: NDArray[np.float32]) -> None:
    """Write points `(V, 3)`, and the extent that follows from them."""
    prim.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(points))
    prim.CreateExtentAttr(UsdGeom.Boundable.ComputeExtentFromPlugins(prim, Usd.TimeCode.Default()))


def _set_normals(mesh: UsdGeom.Mesh, normals: NDArray[np.float32], interpolation: str) -> None:
    mesh.CreateNormalsAttr(Vt.Vec3fArray.FromNumpy(normals))
    mesh.SetNormalsInterpolation(interpolation)


def set_texcoords(mesh: UsdGeom.Mesh, texcoords: NDArray[np.float32], corners: NDArray[np.int32]) -> None:
    """Write texture coordinates `(T, 2)`, and which of them each corner of the faces has, `(F, 3)`."""
    primvar = UsdGeom.PrimvarsAPI(mesh).CreatePrimvar(
        "st", Sdf.ValueTypeNames.TexCoord2fArray, UsdGeom.Tokens.faceVarying
    )
    primvar.Set(Vt.Vec2fArray.FromNumpy(texcoords))
    primvar.SetIndices(Vt.IntArray.FromNumpy(corners.reshape(-1)))


def upright_texcoords(texcoords: NDArray[np.float32]) -> NDArray[np.float32]:
    """MuJoCo counts texture coordinates from the top of an image, USD from the bottom."""
    return np.column_stack((texcoords[:, 0], 1.0 - texcoords[:, 1])).astype(np.float32)


def _wrap_texture(mesh: UsdGeom.Mesh, shape: ShapeDescription, materials: MaterialLibrary) -> None:
    if UsdGeom.PrimvarsAPI(mesh).HasPrimvar("st"):
        return
    points = np.asarray(mesh.GetPointsAttr().Get())
    corners = np.asarray(mesh.GetFaceVertexIndicesAttr().Get(), dtype=np.int32)
    repeat, uniform = materials.repetition(shape.material)
    set_texcoords(mesh, planar_texcoords(points, _half_extents(shape), repeat, uniform), corners)


def _half_extents(shape: ShapeDescription) -> NDArray[np.float64]:
    if shape.type in (ShapeType.SPHERE, ShapeType.CAPSULE, ShapeType.CYLINDER):
        return np.full(2, shape.size[0])
    return shape.size[:2]


def _define_primitive(
    stage: Usd.Stage, path: str, kind: ShapeType, size: Sequence[float] | NDArray[np.float64]
) -> tuple[Usd.Prim, NDArray[np.float64]]:
    """The primitive, and the scale that gives it its size."""
    scale = np.ones(3)
    radius, length, _ = (float(extent) for extent in size)
    match kind:
        case ShapeType.PLANE:
            plane = UsdGeom.Plane.Define(stage, path)
            plane.CreateAxisAttr(UsdGeom.Tokens.z)
            plane.CreateWidthAttr(2.0 * radius)
            plane.CreateLengthAttr(2.0 * length)
            primitive: UsdGeom.Gprim = plane
        case ShapeType.SPHERE | ShapeType.ELLIPSOID:
            sphere = primitive = UsdGeom.Sphere.Define(stage, path)
            sphere.CreateRadiusAttr(radius if kind is ShapeType.SPHERE else 1.0)
            scale = scale if kind is ShapeType.SPHERE else np.asarray(size)
        case ShapeType.BOX:
            cube = primitive = UsdGeom.Cube.Define(stage, path)
            cube.CreateSizeAttr(2.0)
            scale = np.asarray(size)
        case ShapeType.CAPSULE | ShapeType.CYLINDER:
            schema = UsdGeom.Capsule if kind is ShapeType.CAPSULE else UsdGeom.Cylinder
            round_one = primitive = schema.Define(stage, path)
            round_one.CreateAxisAttr(UsdGeom.Tokens.z)
            round_one.CreateRadiusAttr(radius)
            round_one.CreateHeightAttr(2.0 * length)
        case _:
            raise ValueError(f"{path}: a {kind.value} needs an asset to show")
    primitive.CreateExtentAttr(UsdGeom.Boundable.ComputeExtentFromPlugins(primitive, Usd.TimeCode.Default()))
    return primitive.GetPrim(), scale


def set_look(prim: Usd.Prim, group: int, rgba: NDArray[np.float32]) -> None:
    """Make a guide of what is in a group that MuJoCo does not draw by default, and hide what has no opacity."""
    imageable = UsdGeom.Imageable(prim)
    if group not in _DRAWN_GROUPS:
        imageable.CreatePurposeAttr(UsdGeom.Tokens.guide)
    if rgba[3] <= 0.0:
        imageable.CreateVisibilityAttr(UsdGeom.Tokens.invisible)
