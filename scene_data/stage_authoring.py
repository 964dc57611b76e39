"""From a `SceneDescription` to a USD layer: the prototype once, and a reference to it for every environment.

Below the root prim stand `Looks` (materials), `Prototypes` (abstract, so that nobody draws them), `Lights` (what
shines for all environments) and the environments. A body is an instance of its shapes, so that a thousand robots
share the composed shapes of one, unless a camera or a light on it moves by itself.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pxr import Gf, Kind, Sdf, Usd, UsdGeom

from scene_data.scene import WORLD, LightDescription, SceneDescription, ShapeDescription
from scene_data.stage_cameras import define_camera
from scene_data.stage_deformables import deformables
from scene_data.stage_lights import define_ambient_light, define_light
from scene_data.stage_materials import MaterialLibrary, TextureFiles
from scene_data.stage_poses import aiming_matrices, env_offsets, pose_matrix, rest_matrices
from scene_data.stage_shapes import define_mesh, define_shape, define_surface
from scene_data.tessellation import tessellate_height_field
from scene_data.usd_paths import join_path, unique_identifiers

__all__ = ["MATRIX_OP", "author_layer", "declare_motion", "driven_cameras", "driven_lights"]

MATRIX_OP = "xformOp:transform"
"""The attribute that holds the pose of a body, a camera or a light."""

_ENDLESS = 10.0  # times the extent of the model: half the size of a plane without end
_FIXED = "fixed"


def driven_cameras(scene: SceneDescription) -> list[int]:
    """Indices of the cameras whose pose on their body is the engine's to say."""
    return [index for index, camera in enumerate(scene.cameras) if camera.mode != _FIXED]


def driven_lights(scene: SceneDescription) -> list[int]:
    """Indices of the lights whose pose on their body is the engine's to say."""
    return [index for index, light in enumerate(scene.lights) if light.mode != _FIXED]


def author_layer(
    layer: Sdf.Layer, scene: SceneDescription, envs: Sequence[int], files: TextureFiles, env_spacing: float
) -> None:
    """Write the scene in its default configuration.

    Args:
        layer: An empty layer. No stage may look at it meanwhile: it would compose every environment as it appears.
        scene: What to write.
        envs: Which of its environments.
        files: Textures.
        env_spacing: Distance between neighbouring environments [m].
    """
    _Author(Usd.Stage.Open(layer), scene, files, env_spacing).write_prototypes()
    _clone(layer, scene, envs, env_spacing)


def declare_motion(layer: Sdf.Layer, scene: SceneDescription, envs: Sequence[int]) -> None:
    """Declare, in a layer of samples, every attribute that moves. `author_layer` has done so in its own."""
    with Sdf.ChangeBlock():
        for env in envs:
            _declare_motion(layer, scene, scene.env_path(env))


def _root_of(scene: SceneDescription) -> str:
    return join_path(scene.clone_plan.root.strip("/").partition("/")[0])


def _prototypes_of(scene: SceneDescription) -> str:
    return join_path(_root_of(scene), "Prototypes")


def _env_prototype_of(scene: SceneDescription) -> str:
    return join_path(_prototypes_of(scene), "env")


class _Author:
    """Writes everything but the environments."""

    def __init__(self, stage: Usd.Stage, scene: SceneDescription, files: TextureFiles, env_spacing: float):
        self._stage = stage
        self._scene = scene
        self._env_spacing = env_spacing
        self._rest = rest_matrices(scene.bodies)
        self._root = _root_of(scene)
        self._bodies = join_path(_prototypes_of(scene), "bodies")
        self._env = _env_prototype_of(scene)
        self._write_root()
        looks = join_path(self._root, "Looks")
        self._materials = MaterialLibrary(stage, looks, scene.materials, scene.textures, files)

    def _write_root(self) -> None:
        UsdGeom.SetStageUpAxis(self._stage, UsdGeom.Tokens.z)
        UsdGeom.SetStageMetersPerUnit(self._stage, 1.0)
        root = UsdGeom.Xform.Define(self._stage, self._root).GetPrim()
        Usd.ModelAPI(root).SetKind(Kind.Tokens.assembly)
        self._stage.SetDefaultPrim(root)
        self._stage.CreateClassPrim(_prototypes_of(self._scene))
        for path in (self._bodies, self._env):
            UsdGeom.Xform.Define(self._stage, path)

    def write_prototypes(self) -> None:
        """Write assets, bodies, deformables and shared lights."""
        shapes: dict[int, list[ShapeDescription]] = defaultdict(list)
        for shape in self._scene.shapes:
            shapes[shape.body].append(shape)
        meshes, fields = self._write_assets()
        for index in range(len(self._scene.bodies)):
            self._write_body(index, shapes[index], meshes, fields)
        for shape in shapes[WORLD]:
            self._write_shape(self._env, shape, meshes, fields)
        self._write_cameras()
        self._write_lights()
        for deformable in deformables(self._scene):
            path = join_path(self._env, deformable.path_name)
            if "/" in deformable.path_name:
                UsdGeom.Scope.Define(self._stage, path.rpartition("/")[0])
            deformable.define(self._stage, path, self._materials)

    def _write_assets(self) -> tuple[list[str], list[str]]:
        scene = self._scene
        names = unique_identifiers([asset.name for asset in (*scene.meshes, *scene.height_fields)], "mesh")
        paths = [join_path(_prototypes_of(scene), "meshes", name) for name in names]
        if paths:
            UsdGeom.Scope.Define(self._stage, join_path(_prototypes_of(scene), "meshes"))
        meshes, fields = paths[: len(scene.meshes)], paths[len(scene.meshes) :]
        for path, mesh in zip(meshes, scene.meshes, strict=True):
            define_mesh(self._stage, path, mesh)
        for path, field in zip(fields, scene.height_fields, strict=True):
            define_surface(self._stage, path, tessellate_height_field(field))
        return meshes, fields

    def _write_body(self, index: int, shapes: list[ShapeDescription], meshes: list[str], fields: list[str]) -> None:
        body = self._scene.bodies[index]
        placed = UsdGeom.Xform.Define(self._stage, join_path(self._env, body.path_name))
        placed.AddTransformOp().Set(Gf.Matrix4d(self._rest[index]))
        content = UsdGeom.Xform.Define(self._stage, join_path(self._bodies, body.path_name))
        placed.GetPrim().GetReferences().AddInternalReference(content.GetPath())
        for shape in shapes:
            self._write_shape(self._bodies, shape, meshes, fields)
        scene = self._scene
        moving = {scene.cameras[camera].body for camera in driven_cameras(scene)}
        moving |= {scene.lights[light].body for light in driven_lights(scene)}
        placed.GetPrim().SetInstanceable(index not in moving)

    def _write_shape(self, parent: str, shape: ShapeDescription, meshes: list[str], fields: list[str]) -> None:
        asset = None
        if shape.mesh is not None:
            asset = meshes[shape.mesh]
        elif shape.height_field is not None:
            asset = fields[shape.height_field]
        endless = _ENDLESS * max(self._scene.extent, 1.0)
        define_shape(self._stage, join_path(parent, shape.path_name), shape, asset, self._materials, endless)

    def _write_cameras(self) -> None:
        scene = self._scene
        driven = driven_cameras(scene)
        for index, camera in enumerate(scene.cameras):
            path = join_path(self._env if index in driven else self._bodies, camera.path_name)
            defined = define_camera(self._stage, path, camera, scene.near, scene.far)
            defined.AddTransformOp().Set(Gf.Matrix4d(pose_matrix(camera.position, camera.quaternion)))

    def _write_lights(self) -> None:
        scene = self._scene
        driven = driven_lights(scene)
        names: list[str] = []
        shared = join_path(self._root, "Lights")
        UsdGeom.Scope.Define(self._stage, shared)
        if scene.headlight.active and scene.headlight.ambient.any():
            names.append("ambient")
            define_ambient_light(self._stage, join_path(shared, "ambient"), scene.headlight.ambient)
        for index, light in enumerate(scene.lights):
            matrix = aiming_matrices(light.position[None], light.direction[None])[0]
            in_env = matrix @ self._rest[light.body]
            if index in driven:
                path = join_path(self._env, light.path_name)
            elif self._is_shared(light):
                names += unique_identifiers([light.path_name.rpartition("/")[2]], "light", names)
                path, matrix = join_path(shared, names[-1]), in_env
            else:
                path = join_path(self._bodies, light.path_name)
            reach = max(float(np.linalg.norm(in_env[3, :3] - scene.center)), 0.1 * scene.extent)
            prim = define_light(self._stage, path, light, reach)
            UsdGeom.Xformable(prim).AddTransformOp().Set(Gf.Matrix4d(matrix))

    def _is_shared(self, light: LightDescription) -> bool:
        """Whether one light serves all environments: each of its copies would add to the others."""
        if not self._scene.is_static(light):
            return False
        return light.type in ("directional", "image") or self._env_spacing == 0.0


def _clone(layer: Sdf.Layer, scene: SceneDescription, envs: Sequence[int], env_spacing: float) -> None:
    """Write the environments, with every attribute that will move declared: later, each would cost a recomposition."""
    if not len(envs):
        return
    template = scene.env_path(envs[0])
    _write_env(layer, scene, template)
    for env in envs[1:]:
        path = scene.env_path(env)
        Sdf.CreatePrimInLayer(layer, path)
        Sdf.CopySpec(layer, template, layer, path)
    if env_spacing:
        _place_envs(layer, scene, envs, env_offsets(len(envs), env_spacing))
    ancestor = Sdf.Path(template).GetParentPath()
    while ancestor.GetParentPath() != Sdf.Path.absoluteRootPath:
        spec = layer.GetPrimAtPath(ancestor)
        spec.specifier, spec.typeName = Sdf.SpecifierDef, "Xform"
        ancestor = ancestor.GetParentPath()


def _write_env(layer: Sdf.Layer, scene: SceneDescription, path: str) -> None:
    env = Sdf.CreatePrimInLayer(layer, path)
    env.specifier, env.typeName = Sdf.SpecifierDef, "Xform"
    env.referenceList.Prepend(Sdf.Reference("", _env_prototype_of(scene)))
    _declare_motion(layer, scene, path)


def _declare_motion(layer: Sdf.Layer, scene: SceneDescription, path: str) -> None:
    driven = [scene.cameras[index] for index in driven_cameras(scene)]
    driven_too = [scene.lights[index] for index in driven_lights(scene)]
    types = Sdf.ValueTypeNames
    for part in (*scene.bodies, *driven, *driven_too):
        _declare(layer, join_path(path, part.path_name), MATRIX_OP, types.Matrix4d)
    for deformable in deformables(scene):
        _declare(layer, join_path(path, deformable.path_name), "points", types.Point3fArray)
        _declare(layer, join_path(path, deformable.path_name), "extent", types.Float3Array)


def _declare(layer: Sdf.Layer, prim: str, attribute: str, kind: Sdf.ValueTypeName) -> None:
    Sdf.JustCreatePrimAttributeInLayer(layer, f"{prim}.{attribute}", kind)


def _place_envs(layer: Sdf.Layer, scene: SceneDescription, envs: Sequence[int], offsets: NDArray[np.float64]) -> None:
    translate = "xformOp:translate"
    for env, offset in zip(envs, offsets, strict=True):
        prim = layer.GetPrimAtPath(scene.env_path(env))
        Sdf.AttributeSpec(prim, translate, Sdf.ValueTypeNames.Double3).default = Gf.Vec3d(*offset.tolist())
        order = Sdf.AttributeSpec(prim, "xformOpOrder", Sdf.ValueTypeNames.TokenArray, Sdf.VariabilityUniform)
        order.default = [translate]
