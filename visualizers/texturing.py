"""Textures on shapes, for viewers that want an image and a coordinate per vertex."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scene_data.scene import MaterialDescription, SceneDescription, ShapeDescription, ShapeType, TextureType
from scene_data.tessellation import Surface, planar_texcoords

__all__ = ["Skin", "colour_bytes", "skin_of"]

# For each face of a cube texture, in the order of `TextureDescription.faces`: the axis that it faces, and those along
# which its columns (to the right) and rows (downwards) run.
_CUBE_AXES = np.array(
    [
        [(1, 0, 0), (0, 0, -1), (0, -1, 0)],
        [(-1, 0, 0), (0, 0, 1), (0, -1, 0)],
        [(0, 1, 0), (1, 0, 0), (0, 0, 1)],
        [(0, -1, 0), (1, 0, 0), (0, 0, -1)],
        [(0, 0, 1), (1, 0, 0), (0, -1, 0)],
        [(0, 0, -1), (-1, 0, 0), (0, -1, 0)],
    ],
    dtype=np.float64,
)


@dataclass(frozen=True, eq=False)
class Skin:
    """A surface with a texture on it.

    Attributes:
        surface: The triangles; a vertex may be there more often than in the bare surface.
        texcoords: `(V, 2)` float32, with (0, 0) at the lower left corner of the image, which repeats.
        pixels: The image, `(H, W, 3 or 4)` uint8, first row at the top.
        rgba: Colour that multiplies it, `(4,)`.
        material: The rest of its look.
    """

    surface: Surface
    texcoords: NDArray[np.float32]
    pixels: NDArray[np.uint8]
    rgba: NDArray[np.float32]
    material: MaterialDescription


def skin_of(
    scene: SceneDescription,
    shape: ShapeDescription,
    size: NDArray[np.float64],
    surface: Surface,
    texcoords: NDArray[np.float32] | None,
) -> Skin:
    """What a shape with a textured material wears.

    Args:
        scene: Has the material and its texture.
        shape: The shape.
        size: Its size with ends where it has none [m], `(3,)`.
        surface: Its triangles.
        texcoords: The mesh's own texture coordinates, `(V, 2)`, or None.
    """
    assert shape.material is not None
    material = scene.materials[shape.material]
    texture = scene.textures[next(material.textures[role] for role in ("rgb", "rgba") if role in material.textures)]
    pixels = _colour(texture.pixels)
    extents = _half_extents(shape, size, surface)
    if texture.type is not TextureType.PLANAR:
        surface, texcoords = _cube_mapped(surface, extents, len(texture.faces))
    elif texcoords is None:
        # However much is shown of a plane, its texture repeats as its own size has it.
        ends = shape.size[:2] if shape.type is ShapeType.PLANE else extents[:2]
        texcoords = planar_texcoords(surface.points, ends, material.texture_repeat, material.texture_uniform)
    return Skin(surface, texcoords, pixels, shape.rgba, material)


def _colour(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if pixels.shape[-1] in (3, 4):
        return pixels
    return np.repeat(pixels[..., :1], 3, axis=-1)


def _half_extents(shape: ShapeDescription, size: NDArray[np.float64], surface: Surface) -> NDArray[np.float64]:
    match shape.type:
        case ShapeType.BOX | ShapeType.ELLIPSOID | ShapeType.PLANE:
            return size
        case ShapeType.SPHERE:
            return np.full(3, size[0])
        case ShapeType.CYLINDER:
            return np.array((size[0], size[0], size[1]))
    return np.maximum(np.abs(surface.points).max(axis=0).astype(np.float64), 1e-9)


def _cube_mapped(
    surface: Surface, extents: NDArray[np.float64], face_count: int
) -> tuple[Surface, NDArray[np.float32]]:
    """Triangles with vertices of their own, each on the face of the cube that it looks at from the centre."""
    corners = surface.faces.reshape(-1)
    points = surface.points[corners]
    directions = (points / extents).reshape(-1, 3, 3)
    middles = directions.mean(axis=1)
    face = np.argmax(middles @ _CUBE_AXES[:, 0].T, axis=1)
    normal, right, down = (np.einsum("fcx,fx->fc", directions, _CUBE_AXES[face, axis]) for axis in range(3))
    reach = np.maximum(normal, 1e-6)
    # A triangle that reaches over an edge must not show what lies beside its face in the image.
    column, row = (np.clip(0.5 + 0.5 * along / reach, 0.001, 0.999) for along in (right, down))
    texcoords = np.stack((column, 1.0 - (face[:, None] + row) / face_count), axis=-1).reshape(-1, 2)
    faces = np.arange(len(corners), dtype=np.int32).reshape(-1, 3)
    return Surface(points, surface.normals[corners], faces), texcoords.astype(np.float32)


def colour_bytes(colour: NDArray | Sequence[float]) -> NDArray[np.uint8]:
    """Colours in [0, 1] as bytes."""
    return (np.clip(colour, 0.0, 1.0) * 255.0).round().astype(np.uint8)
