"""Shapes that Newton's viewer would draw in another way than they should be: as meshes."""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from scene_data.optional import optional_libraries
from scene_data.scene import MaterialDescription, SceneDescription, ShapeDescription, ShapeType
from scene_data.tessellation import Surface, tessellate, tessellate_height_field

from .instancing import mesh_surface
from .texturing import skin_of

with optional_libraries("Newton's viewer"):
    import newton

__all__ = ["NewtonMeshes"]

_FINE_ONES = 256  # round shapes with all of Newton's 2,000 triangles
_SLICES = 12
_COARSE = {
    ShapeType.SPHERE: lambda size: newton.Mesh.create_sphere(
        size[0], num_latitudes=_SLICES, num_longitudes=_SLICES, compute_inertia=False
    ),
    ShapeType.ELLIPSOID: lambda size: newton.Mesh.create_ellipsoid(
        *size, num_latitudes=_SLICES, num_longitudes=_SLICES, compute_inertia=False
    ),
    ShapeType.CAPSULE: lambda size: newton.Mesh.create_capsule(
        size[0], size[1], up_axis=newton.Axis.Z, segments=_SLICES, compute_inertia=False
    ),
    ShapeType.CYLINDER: lambda size: newton.Mesh.create_cylinder(
        size[0], size[1], up_axis=newton.Axis.Z, segments=_SLICES, compute_inertia=False
    ),
}


class NewtonMeshes:
    """Meshes of planes, which Newton would chequer, of what has a texture, and of what is round in a crowd.

    Equal shapes share one.

    Args:
        scene: The scene.
        endless: Half the size that is shown of a plane without an end [m].
        extend_planes: Whether planes that stand still have no end at all, so that one serves several environments.
        env_count: Number of environments that are shown. Where there are many round shapes, they have fewer triangles.
    """

    def __init__(self, scene: SceneDescription, endless: float, extend_planes: bool, env_count: int):
        self._scene = scene
        self._endless = endless
        self._extend_planes = extend_planes
        round_ones = sum(shape.type in _COARSE for shape in scene.shapes)
        self._is_crowd = round_ones * env_count > _FINE_ONES
        self._made: dict[Hashable, newton.Mesh] = {}

    def of(self, shape: ShapeDescription) -> newton.Mesh | None:
        """The mesh of a shape; None where Newton's own will do."""
        is_textured = _has_texture(self._scene, shape)
        is_coarse = self._is_crowd and shape.type in _COARSE
        if shape.type is not ShapeType.PLANE and not is_textured and not is_coarse:
            return None
        size = self._shown_size(shape)
        key = (shape.type, shape.mesh, shape.height_field, *size.tolist(), shape.material if is_textured else None)
        if key not in self._made:
            if is_textured:
                self._made[key] = self._textured(shape, size)
            else:
                self._made[key] = _COARSE[shape.type](size) if is_coarse else _plain(tessellate(shape.type, size))
        return self._made[key]

    def _textured(self, shape: ShapeDescription, size: NDArray[np.float64]) -> newton.Mesh:
        surface, texcoords = self._surface(shape, size)
        skin = skin_of(self._scene, shape, size, surface, texcoords)
        return newton.Mesh(
            skin.surface.points,
            skin.surface.faces.ravel(),
            normals=skin.surface.normals,
            uvs=skin.texcoords,
            compute_inertia=False,
            texture=np.ascontiguousarray(skin.pixels[..., :3]),
            roughness=_roughness(skin.material),
            metallic=max(skin.material.metallic, 0.0),
        )

    def _surface(
        self, shape: ShapeDescription, size: NDArray[np.float64]
    ) -> tuple[Surface, NDArray[np.float32] | None]:
        if shape.mesh is not None:
            return mesh_surface(self._scene.meshes[shape.mesh])
        if shape.height_field is not None:
            return tessellate_height_field(self._scene.height_fields[shape.height_field]), None
        return tessellate(shape.type, size), None

    def _shown_size(self, shape: ShapeDescription) -> NDArray[np.float64]:
        size = shape.size.copy()
        if shape.type is ShapeType.PLANE:
            is_extended = self._extend_planes and self._scene.is_static(shape)
            size[:2] = np.where((size[:2] > 0.0) & (not is_extended), size[:2], self._endless)
        return size


def _has_texture(scene: SceneDescription, shape: ShapeDescription) -> bool:
    return shape.material is not None and bool(scene.materials[shape.material].textures.keys() & {"rgb", "rgba"})


def _plain(surface: Surface) -> newton.Mesh:
    return newton.Mesh(surface.points, surface.faces.ravel(), normals=surface.normals, compute_inertia=False)


def _roughness(material: MaterialDescription) -> float:
    # Shininess is the older look's word for the opposite of roughness.
    return float(material.roughness if material.roughness >= 0.0 else 1.0 - material.shininess)
