"""The assets of an `MjModel` as the core describes them."""

from types import MappingProxyType

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.errors import ModelLoadError
from scene_data.scene import (
    FlexDescription,
    HeightFieldDescription,
    MaterialDescription,
    MeshDescription,
    SkinDescription,
    TextureDescription,
    TextureType,
    frozen,
)

__all__ = [
    "describe_flexes",
    "describe_height_fields",
    "describe_materials",
    "describe_meshes",
    "describe_skins",
    "describe_textures",
    "drawn_rgba",
    "index_or_none",
    "name_of",
    "xyzw",
]

_TEXTURE_TYPES = {
    mujoco.mjtTexture.mjTEXTURE_2D: TextureType.PLANAR,
    mujoco.mjtTexture.mjTEXTURE_CUBE: TextureType.CUBE,
    mujoco.mjtTexture.mjTEXTURE_SKYBOX: TextureType.SKYBOX,
}
_COLORSPACES = {
    mujoco.mjtColorSpace.mjCOLORSPACE_AUTO: "auto",
    mujoco.mjtColorSpace.mjCOLORSPACE_LINEAR: "linear",
    mujoco.mjtColorSpace.mjCOLORSPACE_SRGB: "srgb",
}
_TEXTURE_ROLES = {
    int(role): name.removeprefix("mjTEXROLE_").lower()
    for name, role in mujoco.mjtTextureRole.__members__.items()
    if name.startswith("mjTEXROLE_")
}
_DEFAULT_RGBA = np.array([0.5, 0.5, 0.5, 1.0], np.float32)


def name_of(model: mujoco.MjModel, kind: mujoco.mjtObj, index: int) -> str:
    """The engine's name of an object, empty for none."""
    return mujoco.mj_id2name(model, kind, index) or ""


def index_or_none(index: int) -> int | None:
    """MuJoCo writes -1 for "none"."""
    return None if index < 0 else int(index)


def xyzw(quaternions: NDArray) -> NDArray:
    """Quaternions of MuJoCo, (w, x, y, z) along the last axis, in the order of Warp and USD."""
    return np.roll(quaternions, -1, axis=-1)


def drawn_rgba(model: mujoco.MjModel, own: NDArray[np.float32], material: int) -> NDArray[np.float32]:
    """The colour that MuJoCo draws: the object's own, unless that is the default and there is a material."""
    use_material = material >= 0 and np.array_equal(own, _DEFAULT_RGBA)
    return frozen(model.mat_rgba[material] if use_material else own, np.float32)


def describe_textures(model: mujoco.MjModel) -> tuple[TextureDescription, ...]:
    """Every texture with its pixels, whether the model embeds them or names a file.

    Raises:
        ModelLoadError: A file that a texture refers to cannot be read.
    """
    return tuple(_texture(model, index) for index in range(model.ntex))


def _texture(model: mujoco.MjModel, index: int) -> TextureDescription:
    name = name_of(model, mujoco.mjtObj.mjOBJ_TEXTURE, index)
    try:
        pixels, colorspace = mujoco.mj_loadTexture(model, index)
    except Exception as error:
        path = model.paths[model.tex_pathadr[index] :].split(b"\0", 1)[0].decode(errors="replace")
        raise ModelLoadError(path, f"texture {name or index!r} does not load: {error}") from error
    return TextureDescription(
        name=name,
        type=_TEXTURE_TYPES[mujoco.mjtTexture(model.tex_type[index])],
        pixels=frozen(pixels, np.uint8),
        colorspace=_COLORSPACES[mujoco.mjtColorSpace(colorspace)],
    )


def describe_materials(model: mujoco.MjModel) -> tuple[MaterialDescription, ...]:
    """Every material."""
    return tuple(
        MaterialDescription(
            name=name_of(model, mujoco.mjtObj.mjOBJ_MATERIAL, index),
            rgba=frozen(model.mat_rgba[index], np.float32),
            textures=MappingProxyType(
                {
                    _TEXTURE_ROLES[role]: int(texture)
                    for role, texture in enumerate(model.mat_texid[index])
                    if texture >= 0
                }
            ),
            texture_repeat=frozen(model.mat_texrepeat[index], np.float32),
            texture_uniform=bool(model.mat_texuniform[index]),
            emission=float(model.mat_emission[index]),
            specular=float(model.mat_specular[index]),
            shininess=float(model.mat_shininess[index]),
            reflectance=float(model.mat_reflectance[index]),
            metallic=float(model.mat_metallic[index]),
            roughness=float(model.mat_roughness[index]),
        )
        for index in range(model.nmat)
    )


def describe_meshes(model: mujoco.MjModel) -> tuple[MeshDescription, ...]:
    """Every mesh, with the per-corner indices that MuJoCo keeps."""
    return tuple(_mesh(model, index) for index in range(model.nmesh))


def _mesh(model: mujoco.MjModel, index: int) -> MeshDescription:
    vertices = _span(model.mesh_vertadr[index], model.mesh_vertnum[index])
    faces = _span(model.mesh_faceadr[index], model.mesh_facenum[index])
    normals = _span(model.mesh_normaladr[index], model.mesh_normalnum[index])
    has_texcoords = model.mesh_texcoordadr[index] >= 0 and model.mesh_texcoordnum[index] > 0
    texcoords = _span(model.mesh_texcoordadr[index], model.mesh_texcoordnum[index])
    return MeshDescription(
        name=name_of(model, mujoco.mjtObj.mjOBJ_MESH, index),
        vertices=frozen(model.mesh_vert[vertices], np.float32),
        faces=frozen(model.mesh_face[faces], np.int32),
        normals=frozen(model.mesh_normal[normals], np.float32),
        face_normals=frozen(model.mesh_facenormal[faces], np.int32),
        texcoords=frozen(model.mesh_texcoord[texcoords], np.float32) if has_texcoords else None,
        face_texcoords=frozen(model.mesh_facetexcoord[faces], np.int32) if has_texcoords else None,
    )


def describe_height_fields(model: mujoco.MjModel) -> tuple[HeightFieldDescription, ...]:
    """Every height field, in metres."""
    fields = []
    for index in range(model.nhfield):
        rows, columns = int(model.hfield_nrow[index]), int(model.hfield_ncol[index])
        size = model.hfield_size[index]
        elevation = model.hfield_data[_span(model.hfield_adr[index], rows * columns)].reshape(rows, columns)
        fields.append(
            HeightFieldDescription(
                name=name_of(model, mujoco.mjtObj.mjOBJ_HFIELD, index),
                heights=frozen(elevation * size[2], np.float32),
                half_extents=frozen(size[:2], np.float64),
                base_depth=float(size[3]),
            )
        )
    return tuple(fields)


def describe_flexes(model: mujoco.MjModel, path_names: tuple[str, ...]) -> tuple[FlexDescription, ...]:
    """Every flex."""
    if not model.nflex:
        return ()
    rest = mujoco.MjData(model)
    mujoco.mj_kinematics(model, rest)
    mujoco.mj_comPos(model, rest)
    mujoco.mj_flex(model, rest)
    return tuple(_flex(model, index, path_names[index], rest.flexvert_xpos) for index in range(model.nflex))


def _flex(model: mujoco.MjModel, index: int, path_name: str, rest: NDArray[np.float64]) -> FlexDescription:
    dim = int(model.flex_dim[index])
    vertices = _span(model.flex_vertadr[index], model.flex_vertnum[index])
    elements = _span(model.flex_elemadr[index], model.flex_elemnum[index])
    element_data = _span(model.flex_elemdataadr[index], model.flex_elemnum[index] * (dim + 1))
    shell_data = _span(model.flex_shelldataadr[index], model.flex_shellnum[index] * dim)
    texcoord_address = int(model.flex_texcoordadr[index])
    texcoords = element_texcoords = None
    if texcoord_address >= 0:
        element_texcoords = frozen(model.flex_elemtexcoord[element_data].reshape(-1, dim + 1), np.int32)
        texcoords = frozen(model.flex_texcoord[_span(texcoord_address, element_texcoords.max() + 1)], np.float32)
    materials = model.flex_matid[elements]
    return FlexDescription(
        name=name_of(model, mujoco.mjtObj.mjOBJ_FLEX, index),
        path_name=path_name,
        dim=dim,
        vertex_offset=vertices.start,
        vertex_count=vertices.stop - vertices.start,
        rest_vertices=frozen(rest[vertices], np.float32),
        elements=frozen(model.flex_elem[element_data].reshape(-1, dim + 1), np.int32),
        edges=frozen(model.flex_edge[_span(model.flex_edgeadr[index], model.flex_edgenum[index])], np.int32),
        shell=frozen(model.flex_shell[shell_data].reshape(-1, dim), np.int32),
        radius=float(model.flex_radius[index]),
        texcoords=texcoords,
        element_texcoords=element_texcoords,
        element_materials=frozen(materials, np.int32),
        rgba=drawn_rgba(model, model.flex_rgba[index], _commonest(materials)),
        group=int(model.flex_group[index]),
        flat_shading=bool(model.flex_flatskin[index]),
    )


def _commonest(materials: NDArray[np.int32]) -> int:
    values, counts = np.unique(materials, return_counts=True)
    return int(values[counts.argmax()]) if len(values) else -1


def describe_skins(model: mujoco.MjModel, path_names: tuple[str, ...]) -> tuple[SkinDescription, ...]:
    """Every skin."""
    return tuple(_skin(model, index, path_names[index]) for index in range(model.nskin))


def _skin(model: mujoco.MjModel, index: int, path_name: str) -> SkinDescription:
    vertices = _span(model.skin_vertadr[index], model.skin_vertnum[index])
    bones = _span(model.skin_boneadr[index], model.skin_bonenum[index])
    counts = model.skin_bonevertnum[bones]
    weights = _span(model.skin_bonevertadr[bones.start] if len(counts) else 0, int(counts.sum()))
    texcoords = model.skin_texcoordadr[index]
    return SkinDescription(
        name=name_of(model, mujoco.mjtObj.mjOBJ_SKIN, index),
        path_name=path_name,
        vertices=frozen(model.skin_vert[vertices], np.float32),
        faces=frozen(model.skin_face[_span(model.skin_faceadr[index], model.skin_facenum[index])], np.int32),
        texcoords=(
            frozen(model.skin_texcoord[_span(texcoords, model.skin_vertnum[index])], np.float32)
            if texcoords >= 0
            else None
        ),
        bone_bodies=frozen(model.skin_bonebodyid[bones], np.int32),
        bone_bind_positions=frozen(model.skin_bonebindpos[bones], np.float32),
        bone_bind_quaternions=frozen(xyzw(model.skin_bonebindquat[bones]), np.float32),
        bone_offsets=frozen(np.concatenate(([0], np.cumsum(counts))), np.int32),
        bone_vertices=frozen(model.skin_bonevertid[weights], np.int32),
        bone_weights=frozen(model.skin_bonevertweight[weights], np.float32),
        inflate=float(model.skin_inflate[index]),
        material=index_or_none(model.skin_matid[index]),
        rgba=drawn_rgba(model, model.skin_rgba[index], model.skin_matid[index]),
        group=int(model.skin_group[index]),
    )


def _span(start: int | np.integer, count: int | np.integer) -> slice:
    return slice(int(start), int(start) + int(count))
