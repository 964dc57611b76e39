"""What is published as points, on a USD stage: flexes, skins and tendons."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pxr import Usd, UsdGeom, Vt

from scene_data.scene import FlexDescription, SceneDescription, SkinDescription, TendonDescription
from scene_data.stage_materials import MaterialLibrary
from scene_data.stage_shapes import define_triangles, set_look, set_points, set_texcoords, upright_texcoords

__all__ = ["Deformable", "curve_order", "deformables"]


@dataclass(frozen=True, eq=False)
class Deformable:
    """One prim of an environment whose points move.

    Attributes:
        path_name: Path below the environment, the published one.
        points: At rest, in the order in which they are published, `(V, 3)` float32 [m].
        order: Which of them the prim shows, in its own order, `(n,)`.
        margin: How far the prim reaches beyond its points [m].
        define: Writes the prim at a path, at rest.
    """

    path_name: str
    points: NDArray[np.float32]
    order: NDArray[np.intp]
    margin: float
    define: Callable[[Usd.Stage, str, MaterialLibrary], None]


def deformables(scene: SceneDescription) -> Iterator[Deformable]:
    """All of them. Cables made of capsules are not among them: their capsules are drawn."""
    for flex in scene.flexes:
        yield _flex_curves(flex) if flex.dim == 1 else _flex_mesh(flex)
    for skin in scene.skins:
        yield _skin(skin)
    for tendon in scene.tendons:
        for path_name, count in tendon.curves:
            yield _tendon(tendon, path_name, count)


def curve_order(elements: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Join segments `(E, 2)` that follow each other.

    Returns:
        The vertices along all curves, one curve after the other, and the number of vertices of each curve.
    """
    starts = np.flatnonzero(np.append(True, elements[1:, 0] != elements[:-1, 1]))
    lengths = np.diff(np.append(starts, len(elements))) + 1
    order = [np.append(run[:, 0], run[-1, 1]) for run in np.split(elements, starts[1:])]
    return np.concatenate(order).astype(np.intp), lengths.astype(np.int32)


def _flex_curves(flex: FlexDescription) -> Deformable:
    order, counts = curve_order(flex.elements)

    def define(stage: Usd.Stage, path: str, materials: MaterialLibrary) -> None:
        curves = _define_curves(stage, path, flex.rest_vertices[order], counts, flex.radius)
        materials.bind(curves, _material_of(flex), flex.rgba)
        set_look(curves, flex.group, flex.rgba)

    return Deformable(flex.path_name, flex.rest_vertices, order, flex.radius, define)


def _flex_mesh(flex: FlexDescription) -> Deformable:
    """A cloth as its faces, a solid as its surface. The whole of it has the material of its first element."""

    def define(stage: Usd.Stage, path: str, materials: MaterialLibrary) -> None:
        is_cloth = flex.dim == 2
        mesh = define_triangles(stage, path, flex.rest_vertices, flex.elements if is_cloth else flex.shell)
        mesh.CreateDoubleSidedAttr(is_cloth)
        if is_cloth and flex.texcoords is not None and flex.element_texcoords is not None:
            set_texcoords(mesh, upright_texcoords(flex.texcoords), flex.element_texcoords)
        materials.bind(mesh.GetPrim(), _material_of(flex), flex.rgba)
        set_look(mesh.GetPrim(), flex.group, flex.rgba)

    return Deformable(flex.path_name, flex.rest_vertices, np.arange(flex.vertex_count), 0.0, define)


def _skin(skin: SkinDescription) -> Deformable:
    def define(stage: Usd.Stage, path: str, materials: MaterialLibrary) -> None:
        mesh = define_triangles(stage, path, skin.vertices, skin.faces)
        mesh.CreateDoubleSidedAttr(True)
        if skin.texcoords is not None:
            set_texcoords(mesh, upright_texcoords(skin.texcoords), skin.faces)
        materials.bind(mesh.GetPrim(), skin.material, skin.rgba)
        set_look(mesh.GetPrim(), skin.group, skin.rgba)

    return Deformable(skin.path_name, skin.vertices, np.arange(len(skin.vertices)), 0.0, define)


def _tendon(tendon: TendonDescription, path_name: str, count: int) -> Deformable:
    """A polyline whose points are the engine's to say, at rest too: until then it has no length."""
    points = np.zeros((count, 3), np.float32)

    def define(stage: Usd.Stage, path: str, materials: MaterialLibrary) -> None:
        curve = _define_curves(stage, path, points, np.array([count], np.int32), tendon.width)
        materials.bind(curve, tendon.material, tendon.rgba)
        set_look(curve, tendon.group, tendon.rgba)

    return Deformable(path_name, points, np.arange(count), tendon.width, define)


def _define_curves(
    stage: Usd.Stage, path: str, points: NDArray[np.float32], counts: NDArray[np.int32], radius: float
) -> Usd.Prim:
    curves = UsdGeom.BasisCurves.Define(stage, path)
    curves.CreateTypeAttr(UsdGeom.Tokens.linear)
    curves.CreateCurveVertexCountsAttr(Vt.IntArray.FromNumpy(counts))
    curves.CreateWidthsAttr(Vt.FloatArray([2.0 * radius]))
    curves.SetWidthsInterpolation(UsdGeom.Tokens.constant)
    set_points(curves, points)
    return curves.GetPrim()


def _material_of(flex: FlexDescription) -> int | None:
    material = int(flex.element_materials[0]) if len(flex.element_materials) else -1
    return None if material < 0 else material
