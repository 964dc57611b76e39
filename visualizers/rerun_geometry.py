"""Shapes as Rerun knows them: its own primitives where it has them, else triangles with their texture."""

from dataclasses import replace

import numpy as np
import rerun as rr
from numpy.typing import NDArray

from scene_data.scene import HeightFieldDescription, SceneDescription, ShapeDescription, ShapeType
from scene_data.tessellation import Surface, tessellate, tessellate_height_field

from .instancing import mesh_surface
from .texturing import Skin, colour_bytes, skin_of

__all__ = ["Geometry", "RerunGeometry", "recoloured"]

Geometry = rr.Boxes3D | rr.Ellipsoids3D | rr.Capsules3D | rr.Cylinders3D | rr.Mesh3D

_SOLID = rr.components.FillMode.Solid


class RerunGeometry:
    """Makes the shapes of a scene. A mesh that several shapes have is prepared once.

    Args:
        scene: The scene.
        endless: Half the size that is shown of a plane without an end [m].
        extend_planes: Whether planes that stand still have no end at all, so that one serves several environments.
    """

    def __init__(self, scene: SceneDescription, endless: float, extend_planes: bool):
        self._scene = scene
        self._endless = endless
        self._extend_planes = extend_planes
        self._surfaces: dict[tuple[str, int], tuple[Surface, NDArray[np.float32] | None]] = {}

    def of(self, shape: ShapeDescription, count: int) -> Geometry:
        """A shape in its own frame, with its size, colour and texture, for so many instances."""
        size = self._shown_size(shape)
        if shape.material is not None and self._scene.materials[shape.material].textures.keys() & {"rgb", "rgba"}:
            surface, texcoords = self._surface(shape, size)
            return _textured(skin_of(self._scene, shape, size, surface, texcoords))
        colours = [colour_bytes(shape.rgba)]
        match shape.type:
            case ShapeType.BOX:
                return rr.Boxes3D(half_sizes=[size], colors=colours, fill_mode=_SOLID)
            case ShapeType.SPHERE:
                return rr.Ellipsoids3D(half_sizes=[np.full(3, size[0])], colors=colours, fill_mode=_SOLID)
            case ShapeType.ELLIPSOID:
                return rr.Ellipsoids3D(half_sizes=[size], colors=colours, fill_mode=_SOLID)
            case ShapeType.CYLINDER:
                return rr.Cylinders3D(radii=[size[0]], lengths=[2.0 * size[1]], colors=colours, fill_mode=_SOLID)
            case ShapeType.CAPSULE:
                # Rerun's begin at the origin. Each instance needs one: unlike others, they are not repeated.
                return rr.Capsules3D(
                    radii=[size[0]] * count,
                    lengths=[2.0 * size[1]] * count,
                    translations=[(0.0, 0.0, -size[1])] * count,
                    colors=colours,
                    fill_mode=_SOLID,
                )
        surface, _ = self._surface(shape, size)
        return rr.Mesh3D(
            vertex_positions=surface.points,
            vertex_normals=surface.normals,
            triangle_indices=surface.faces,
            albedo_factor=colours[0],
        )

    def change_height_field(self, index: int, field: HeightFieldDescription) -> None:
        """Have the shapes of this height field made of another one from now on."""
        fields = list(self._scene.height_fields)
        fields[index] = field
        self._scene = replace(self._scene, height_fields=tuple(fields))
        self._surfaces.pop(("height_field", index), None)

    def _shown_size(self, shape: ShapeDescription) -> NDArray[np.float64]:
        size = shape.size.copy()
        if shape.type is ShapeType.PLANE:
            is_extended = self._extend_planes and self._scene.is_static(shape)
            has_end = (size[:2] > 0.0) & (not is_extended)
            size[:2] = np.where(has_end, size[:2], self._endless)
        return size

    def _surface(
        self, shape: ShapeDescription, size: NDArray[np.float64]
    ) -> tuple[Surface, NDArray[np.float32] | None]:
        if shape.mesh is not None:
            key = ("mesh", shape.mesh)
            if key not in self._surfaces:
                self._surfaces[key] = mesh_surface(self._scene.meshes[shape.mesh])
            return self._surfaces[key]
        if shape.height_field is not None:
            key = ("height_field", shape.height_field)
            if key not in self._surfaces:
                self._surfaces[key] = (tessellate_height_field(self._scene.height_fields[shape.height_field]), None)
            return self._surfaces[key]
        return tessellate(shape.type, size), None


def recoloured(kind: type[Geometry], rgba: NDArray[np.float32]) -> Geometry:
    """New colours `(E, 4)` of a shape of this kind, one for each of its instances; a mesh has that of the first."""
    colours = colour_bytes(rgba)
    if issubclass(kind, rr.Mesh3D):
        return kind.from_fields(albedo_factor=colours[0])
    return kind.from_fields(colors=colours)


def _textured(skin: Skin) -> rr.Mesh3D:
    return rr.Mesh3D(
        vertex_positions=skin.surface.points,
        vertex_normals=skin.surface.normals,
        triangle_indices=skin.surface.faces,
        # Rerun counts texture coordinates from the top of the image.
        vertex_texcoords=skin.texcoords * (1.0, -1.0) + (0.0, 1.0),
        albedo_texture=np.ascontiguousarray(skin.pixels),
        albedo_factor=colour_bytes(skin.rgba),
    )
