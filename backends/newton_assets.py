"""Meshes, materials, textures and height fields of Newton's shapes."""

from dataclasses import dataclass
from typing import Any

import newton
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scene_data.errors import ModelLoadError
from scene_data.scene import (
    HeightFieldDescription,
    MaterialDescription,
    MeshDescription,
    TextureDescription,
    TextureType,
    frozen,
)

__all__ = ["NewtonAssets", "ShapeLook"]


@dataclass(frozen=True)
class ShapeLook:
    """What a shape shows.

    Attributes:
        size: As `ShapeType` means it [m], `(3,)`.
        mesh, height_field, material: Indices into the assets, or None.
    """

    size: NDArray[Any]
    mesh: int | None = None
    height_field: int | None = None
    material: int | None = None


class NewtonAssets:
    """Collects what shapes refer to, each once.

    Attributes:
        meshes, materials, textures, height_fields: In the order in which they were met.
    """

    def __init__(self):
        self.meshes: list[MeshDescription] = []
        self.materials: list[MaterialDescription] = []
        self.textures: list[TextureDescription] = []
        self.height_fields: list[HeightFieldDescription] = []
        self._indices: dict[Any, int] = {}

    def add(self, kind: newton.GeoType, source: Any, scale: NDArray[Any], color: NDArray[Any]) -> ShapeLook:
        """Describe what a shape of this type, source, scale and colour (r, g, b, opacity) shows.

        Raises:
            ModelLoadError: The image file of a texture cannot be read.
        """
        if kind is newton.GeoType.PLANE:
            return ShapeLook(np.array([scale[0] / 2, scale[1] / 2, 0.0]))
        if kind is newton.GeoType.SPHERE:
            return ShapeLook(np.array([scale[0], 0.0, 0.0]))
        if kind is newton.GeoType.HFIELD:
            index = self._once(
                ("height field", id(source), *scale), self.height_fields, lambda: _height_field(source, scale)
            )
            field = self.height_fields[index]
            return ShapeLook(np.array([*field.half_extents, field.base_depth]), height_field=index)
        if kind is newton.GeoType.CONE:
            index = self._once(("cone", *scale[:2]), self.meshes, lambda: _cone(scale))
        elif kind in (newton.GeoType.MESH, newton.GeoType.CONVEX_MESH):
            index = self._once(("mesh", id(source), *scale), self.meshes, lambda: _mesh(source, scale))
        else:
            return ShapeLook(scale)
        vertices = self.meshes[index].vertices
        size = (vertices.max(axis=0) - vertices.min(axis=0)) / 2
        return ShapeLook(size, mesh=index, material=self._material(source, color))

    def _material(self, source: Any, color: NDArray[Any]) -> int | None:
        if source is None or (source.texture is None and source.roughness is None and source.metallic is None):
            return None
        textures = {}
        if source.texture is not None:
            textures["rgb"] = self._once(
                ("texture", source.texture_hash), self.textures, lambda: _texture(source.texture)
            )
        key = ("material", *color, *textures.values(), source.roughness, source.metallic)
        return self._once(key, self.materials, lambda: _describe_material(source, color, textures))

    def _once(self, key: tuple, assets: list, describe: Any) -> int:
        if key not in self._indices:
            assets.append(describe())
            self._indices[key] = len(assets) - 1
        return self._indices[key]


def _mesh(source: newton.Mesh, scale: NDArray[Any]) -> MeshDescription:
    faces = np.asarray(source.indices).reshape(-1, 3)
    if np.prod(scale) < 0:  # mirrored, so that corners run the other way round
        faces = faces[:, ::-1]
    vertices = np.asarray(source.vertices) * scale
    normals = _vertex_normals(vertices, faces) if source.normals is None else source.normals / scale
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    uvs = source.uvs
    if uvs is not None:
        linear = np.asarray(source.texture_transform)
        uvs = uvs @ linear[:, :2].T + linear[:, 2]
        # Newton's v runs up the image, as in USD; MuJoCo's, which descriptions follow, runs down.
        uvs = np.column_stack((uvs[:, 0], 1.0 - uvs[:, 1]))
    return MeshDescription(
        name="",
        vertices=frozen(vertices, np.float32),
        faces=frozen(faces, np.int32),
        normals=frozen(normals / np.where(lengths > 0, lengths, 1.0), np.float32),
        face_normals=frozen(faces, np.int32),
        texcoords=None if uvs is None else frozen(uvs, np.float32),
        face_texcoords=None if uvs is None else frozen(faces, np.int32),
    )


def _cone(scale: NDArray[Any]) -> MeshDescription:
    cone = newton.Mesh.create_cone(float(scale[0]), float(scale[1]), up_axis=newton.Axis.Z, compute_inertia=False)
    return _mesh(cone, np.ones(3))


def _vertex_normals(vertices: NDArray[Any], faces: NDArray[Any]) -> NDArray[Any]:
    first, second, third = (vertices[faces[:, corner]] for corner in range(3))
    weighted = np.cross(second - first, third - first)
    normals = np.zeros_like(vertices)
    for corner in range(3):
        np.add.at(normals, faces[:, corner], weighted)
    return normals


def _height_field(source: newton.Heightfield, scale: NDArray[Any]) -> HeightFieldDescription:
    heights = source.min_z + source.data * (source.max_z - source.min_z)
    return HeightFieldDescription(
        name="",
        heights=frozen(heights * scale[2], np.float32),
        half_extents=frozen((source.hx * scale[0], source.hy * scale[1]), np.float64),
        base_depth=0.0,
    )


def _texture(texture: str | NDArray[Any]) -> TextureDescription:
    if isinstance(texture, str):
        try:
            pixels = np.asarray(Image.open(texture).convert("RGB"))
        except OSError as error:
            raise ModelLoadError(texture, str(error)) from error
    else:
        pixels = texture if texture.dtype == np.uint8 else np.clip(texture * 255.0, 0.0, 255.0).round()
    pixels = np.atleast_3d(pixels)
    return TextureDescription(name="", type=TextureType.PLANAR, pixels=frozen(pixels, np.uint8), colorspace="auto")


def _describe_material(source: newton.Mesh, color: NDArray[Any], textures: dict[str, int]) -> MaterialDescription:
    return MaterialDescription(
        name="",
        rgba=frozen(color, np.float32),
        textures=textures,
        texture_repeat=frozen((1, 1), np.float32),
        texture_uniform=False,
        emission=0.0,
        specular=0.5,
        shininess=0.5,
        reflectance=0.0,
        metallic=-1.0 if source.metallic is None else float(source.metallic),
        roughness=-1.0 if source.roughness is None else float(source.roughness),
    )
