"""What shapes are made of: meshes, materials, textures, height fields, flexes and skins.

Arrays are read-only copies; indices count from the start of the asset they belong to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FlexDescription",
    "HeightFieldDescription",
    "MaterialDescription",
    "MeshDescription",
    "SkinDescription",
    "TextureDescription",
    "TextureType",
]


class TextureType(Enum):
    """How a texture wraps around what it covers."""

    PLANAR = "2d"
    CUBE = "cube"
    SKYBOX = "skybox"


@dataclass(frozen=True, eq=False)
class TextureDescription:
    """An image.

    Attributes:
        name: The engine's name, possibly empty.
        type: Planar, cube or skybox.
        pixels: `(H, W, C)` uint8, first row at the top of the image. A cube or skybox has its six square faces stacked
            along H, in the order right (+X), left, up (+Y), down, front (+Z), back, or a square one for all of them.
        colorspace: `"srgb"`, `"linear"`, or `"auto"` where the file does not say.
    """

    name: str
    type: TextureType
    pixels: NDArray[np.uint8]
    colorspace: str

    @property
    def faces(self) -> NDArray[np.uint8]:
        """The images of the faces, `(1 or 6, h, W, C)`: one for a planar texture or all faces, else six."""
        height, width, channels = self.pixels.shape
        count = 1 if self.type is TextureType.PLANAR or height == width else 6
        return self.pixels.reshape(count, height // count, width, channels)


@dataclass(frozen=True, eq=False)
class MaterialDescription:
    """How a surface answers light.

    Attributes:
        name: The engine's name, possibly empty.
        rgba: Base colour, `(4,)` float32 in [0, 1].
        textures: Texture index by role: `"rgb"`, `"rgba"`, `"normal"`, `"roughness"`, `"metallic"`, `"occlusion"`,
            `"opacity"`, `"emissive"`, `"orm"` or `"user"`. Only the roles that are filled.
        texture_repeat: How often a planar texture repeats along (u, v), `(2,)` float32; per metre if `texture_uniform`.
        texture_uniform: Whether the texture scales with space rather than with the object.
        emission, specular, shininess, reflectance: Coefficients in [0, 1] of the fixed-function look.
        metallic, roughness: Coefficients of the physically based look, negative where not given.
    """

    name: str
    rgba: NDArray[np.float32]
    textures: Mapping[str, int]
    texture_repeat: NDArray[np.float32]
    texture_uniform: bool
    emission: float
    specular: float
    shininess: float
    reflectance: float
    metallic: float
    roughness: float


@dataclass(frozen=True, eq=False)
class MeshDescription:
    """A triangle mesh in the frame of the shape that shows it [m].

    Attributes:
        name: The engine's name, possibly empty.
        vertices: `(V, 3)` float32.
        faces: Vertex of each corner, `(F, 3)` int32, counter-clockwise seen from outside.
        normals: `(N, 3)` float32, of unit length.
        face_normals: Normal of each corner, `(F, 3)` int32 into `normals`.
        texcoords: `(T, 2)` float32, or None for a mesh without texture coordinates.
        face_texcoords: Texture coordinate of each corner, `(F, 3)` int32 into `texcoords`, or None.
    """

    name: str
    vertices: NDArray[np.float32]
    faces: NDArray[np.int32]
    normals: NDArray[np.float32]
    face_normals: NDArray[np.int32]
    texcoords: NDArray[np.float32] | None
    face_texcoords: NDArray[np.int32] | None


@dataclass(frozen=True, eq=False)
class HeightFieldDescription:
    """A terrain on a regular grid, centred on the shape that shows it.

    Attributes:
        name: The engine's name, possibly empty.
        heights: `(rows, columns)` float32 [m] above the shape's origin. Columns run along +X, rows along +Y.
        half_extents: Half the size along X and Y [m], `(2,)` float64.
        base_depth: How far the solid reaches below the shape's origin [m].
    """

    name: str
    heights: NDArray[np.float32]
    half_extents: NDArray[np.float64]
    base_depth: float


@dataclass(frozen=True, eq=False)
class FlexDescription:
    """A deformable: a cable (`dim` 1), a cloth (2) or a solid (3). Its vertices are published as points.

    Attributes:
        name: The engine's name, possibly empty.
        path_name: Path below the environment.
        dim: Dimension of the elements.
        vertex_offset: Index of its first vertex among all points of one environment.
        vertex_count: Number of vertices V.
        rest_vertices: Vertices in the model's default configuration, environment frame [m], `(V, 3)` float32.
        elements: `(E, dim + 1)` int32 vertex indices.
        edges: `(n, 2)` int32 vertex indices.
        shell: Surface of the flex, `(S, dim)` int32 vertex indices: triangles of a solid, border edges of a cloth.
        radius: Thickness around the elements [m].
        texcoords: `(T, 2)` float32, or None.
        element_texcoords: `(E, dim + 1)` int32 into `texcoords`, or None.
        element_materials: Material of each element, `(E,)` int32, -1 for none.
        rgba: Colour as drawn, its own or that of most elements' material, `(4,)` float32.
        group: Visibility group.
        flat_shading: Whether faces are shaded flat.
    """

    name: str
    path_name: str
    dim: int
    vertex_offset: int
    vertex_count: int
    rest_vertices: NDArray[np.float32]
    elements: NDArray[np.int32]
    edges: NDArray[np.int32]
    shell: NDArray[np.int32]
    radius: float
    texcoords: NDArray[np.float32] | None
    element_texcoords: NDArray[np.int32] | None
    element_materials: NDArray[np.int32]
    rgba: NDArray[np.float32]
    group: int
    flat_shading: bool


@dataclass(frozen=True, eq=False)
class SkinDescription:
    """A mesh that deforms with the bodies it is bound to (linear blend skinning).

    Bone `b` moves the vertices `bone_vertices[bone_offsets[b]:bone_offsets[b + 1]]` with the weights of the same range.

    Attributes:
        name: The engine's name, possibly empty.
        path_name: Path below the environment.
        vertices: Bind pose in the environment frame [m], `(V, 3)` float32.
        faces: `(F, 3)` int32 vertex indices.
        texcoords: One per vertex, `(V, 2)` float32, or None.
        bone_bodies: Body of each bone, `(B,)` int32.
        bone_bind_positions: `(B, 3)` float32 [m], the body's position at binding.
        bone_bind_quaternions: `(B, 4)` float32 (x, y, z, w).
        bone_offsets: `(B + 1,)` int32 into the next two.
        bone_vertices: `(n,)` int32 vertex indices.
        bone_weights: `(n,)` float32.
        inflate: How far vertices are moved along their normals [m].
        material: Material index, or None.
        rgba: `(4,)` float32, the colour it is drawn in.
        group: Visibility group.
    """

    name: str
    path_name: str
    vertices: NDArray[np.float32]
    faces: NDArray[np.int32]
    texcoords: NDArray[np.float32] | None
    bone_bodies: NDArray[np.int32]
    bone_bind_positions: NDArray[np.float32]
    bone_bind_quaternions: NDArray[np.float32]
    bone_offsets: NDArray[np.int32]
    bone_vertices: NDArray[np.int32]
    bone_weights: NDArray[np.float32]
    inflate: float
    material: int | None
    rgba: NDArray[np.float32]
    group: int
