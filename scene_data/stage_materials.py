"""Materials of a USD stage: preview surfaces, and the PNG files of their textures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pxr import Gf, Sdf, Usd, UsdGeom, UsdShade, Vt

from scene_data.scene_assets import MaterialDescription, TextureDescription, TextureType
from scene_data.usd_paths import join_path, unique_identifiers

__all__ = ["MaterialLibrary", "TextureFiles"]

_COLOUR_ROLES = ("rgb", "rgba", "emissive")
# Inputs of the surface that a texture of this role feeds, and by which of its channels.
_INPUTS_OF_ROLE = {
    "rgb": {"diffuseColor": "rgb"},
    "rgba": {"diffuseColor": "rgb", "opacity": "a"},
    "emissive": {"emissiveColor": "rgb"},
    "normal": {"normal": "rgb"},
    "roughness": {"roughness": "r"},
    "metallic": {"metallic": "r"},
    "occlusion": {"occlusion": "r"},
    "opacity": {"opacity": "r"},
    "orm": {"occlusion": "r", "roughness": "g", "metallic": "b"},
}
_OUTPUT_TYPES = {"rgb": Sdf.ValueTypeNames.Float3}
_INPUT_TYPES = {
    "diffuseColor": Sdf.ValueTypeNames.Color3f,
    "emissiveColor": Sdf.ValueTypeNames.Color3f,
    "normal": Sdf.ValueTypeNames.Normal3f,
}


class TextureFiles:
    """Writes textures as PNG files, each when it is first asked for.

    Args:
        textures: The scene's textures.
        folder: Where the files go. It is made with the first of them.
        reference: How the stage refers to the folder.
    """

    def __init__(self, textures: Sequence[TextureDescription], folder: Path, reference: str):
        self._textures = textures
        self._names = unique_identifiers([texture.name for texture in textures], "texture")
        self._folder = folder
        self._reference = reference
        self._written: set[int] = set()

    def asset(self, index: int) -> Sdf.AssetPath:
        """Reference to the file of this texture."""
        name = f"{self._names[index]}.png"
        if index not in self._written:
            self._folder.mkdir(parents=True, exist_ok=True)
            pixels = self._textures[index].pixels
            Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(self._folder / name)
            self._written.add(index)
        return Sdf.AssetPath(f"{self._reference}/{name}")


class MaterialLibrary:
    """The materials of a stage, one for each combination of a material and a colour that something is drawn in.

    UsdPreviewSurface has no cube maps: a cube texture counts with its mean colour.

    Args:
        stage: Where to define them.
        scope: Path of the prim that they go below.
        materials: The scene's materials.
        textures: The scene's textures.
        files: Their files.
    """

    def __init__(
        self,
        stage: Usd.Stage,
        scope: str,
        materials: Sequence[MaterialDescription],
        textures: Sequence[TextureDescription],
        files: TextureFiles,
    ):
        self._stage = stage
        self._scope = scope
        self._materials = materials
        self._textures = textures
        self._files = files
        self._defined: dict[tuple[int | None, bytes], UsdShade.Material] = {}
        self._names: list[str] = []
        UsdGeom.Scope.Define(stage, scope)

    def bind(self, prim: Usd.Prim, material: int | None, rgba: NDArray[np.float32]) -> None:
        """Give a prim this material, drawn in the colour `rgba` (4,), also where only display colours are shown."""
        key = (material, rgba.tobytes())
        if key not in self._defined:
            self._defined[key] = self._define(material, rgba)
        UsdShade.MaterialBindingAPI.Apply(prim).Bind(self._defined[key])
        primvars = UsdGeom.PrimvarsAPI(prim)
        types = Sdf.ValueTypeNames
        primvars.CreatePrimvar("displayColor", types.Color3fArray).Set(Vt.Vec3fArray([Gf.Vec3f(*rgba[:3].tolist())]))
        primvars.CreatePrimvar("displayOpacity", types.FloatArray).Set(Vt.FloatArray([float(rgba[3])]))

    def planar_roles(self, material: int | None) -> dict[str, int]:
        """Texture index by role, of the textures that need texture coordinates."""
        if material is None:
            return {}
        return {
            role: texture
            for role, texture in self._materials[material].textures.items()
            if role in _INPUTS_OF_ROLE and self._textures[texture].type is TextureType.PLANAR
        }

    def repetition(self, material: int | None) -> tuple[NDArray[np.float32], bool]:
        """How often the planar textures of a material repeat, `(2,)`, and whether they scale with space."""
        if material is None:
            return np.ones(2, np.float32), False
        return self._materials[material].texture_repeat, self._materials[material].texture_uniform

    def _define(self, material: int | None, rgba: NDArray[np.float32]) -> UsdShade.Material:
        wanted = "colour_" + (rgba * 255).round().astype(np.uint8).tobytes().hex()
        if material is not None:
            wanted = self._materials[material].name or f"material_{material}"
        (name,) = unique_identifiers([wanted], "material", self._names)
        self._names.append(name)
        path = join_path(self._scope, name)
        defined = UsdShade.Material.Define(self._stage, path)
        surface = UsdShade.Shader.Define(self._stage, join_path(path, "surface"))
        surface.CreateIdAttr("UsdPreviewSurface")
        defined.CreateSurfaceOutput().ConnectToSource(surface.ConnectableAPI(), "surface")
        colour = rgba * (*self._mean_colour(material), 1.0)
        self._set_constants(surface, None if material is None else self._materials[material], colour)
        for role, texture in self.planar_roles(material).items():
            self._connect(surface, path, role, self._files.asset(texture), rgba)
        return defined

    def _mean_colour(self, material: int | None) -> NDArray[np.float64]:
        textures = {} if material is None else self._materials[material].textures
        for role in ("rgb", "rgba"):
            if role in textures and self._textures[textures[role]].type is not TextureType.PLANAR:
                pixels = self._textures[textures[role]].pixels
                return np.broadcast_to(pixels[..., :3].mean(axis=(0, 1)) / 255.0, 3)
        return np.ones(3)

    def _set_constants(
        self, surface: UsdShade.Shader, material: MaterialDescription | None, colour: NDArray[np.float32]
    ) -> None:
        def set_input(name: str, value: object) -> None:
            surface.CreateInput(name, _INPUT_TYPES.get(name, Sdf.ValueTypeNames.Float)).Set(value)

        rgb = Gf.Vec3f(*colour[:3].tolist())
        set_input("diffuseColor", rgb)
        set_input("opacity", float(colour[3]))
        if material is None:
            return
        # Shininess is the older look's word for the opposite of roughness.
        set_input("roughness", material.roughness if material.roughness >= 0.0 else 1.0 - material.shininess)
        set_input("metallic", max(material.metallic, 0.0))
        if material.emission > 0.0:
            set_input("emissiveColor", rgb * material.emission)

    def _connect(
        self, surface: UsdShade.Shader, path: str, role: str, asset: Sdf.AssetPath, rgba: NDArray[np.float32]
    ) -> None:
        types = Sdf.ValueTypeNames
        reader = UsdShade.Shader.Define(self._stage, join_path(path, "texcoords"))
        reader.CreateIdAttr("UsdPrimvarReader_float2")
        reader.CreateInput("varname", types.String).Set("st")
        reader.CreateOutput("result", types.Float2)
        texture = UsdShade.Shader.Define(self._stage, join_path(path, f"{role}_texture"))
        texture.CreateIdAttr("UsdUVTexture")
        texture.CreateInput("file", types.Asset).Set(asset)
        texture.CreateInput("st", types.Float2).ConnectToSource(reader.ConnectableAPI(), "result")
        for axis in ("wrapS", "wrapT"):
            texture.CreateInput(axis, types.Token).Set("repeat")
        texture.CreateInput("sourceColorSpace", types.Token).Set("sRGB" if role in _COLOUR_ROLES else "raw")
        if role in ("rgb", "rgba"):
            texture.CreateInput("scale", types.Float4).Set(Gf.Vec4f(*rgba.tolist()))
        elif role == "normal":
            texture.CreateInput("scale", types.Float4).Set(Gf.Vec4f(2, 2, 2, 1))
            texture.CreateInput("bias", types.Float4).Set(Gf.Vec4f(-1, -1, -1, 0))
        for name, channels in _INPUTS_OF_ROLE[role].items():
            texture.CreateOutput(channels, _OUTPUT_TYPES.get(channels, types.Float))
            kind = _INPUT_TYPES.get(name, types.Float)
            surface.CreateInput(name, kind).ConnectToSource(texture.ConnectableAPI(), channels)
