"""From a compiled `MjModel` to a `SceneDescription`, in MuJoCo's own order."""

from collections.abc import Sequence
from types import MappingProxyType

import mujoco
import numpy as np
from numpy.typing import NDArray

from scene_data.backends.mjcf_assets import (
    describe_flexes,
    describe_height_fields,
    describe_materials,
    describe_meshes,
    describe_skins,
    describe_textures,
    drawn_rgba,
    index_or_none,
    name_of,
    xyzw,
)
from scene_data.backends.mjcf_cables import describe_cables, find_cables
from scene_data.scene import (
    BodyDescription,
    CameraDescription,
    ClonePlan,
    FreeCameraDescription,
    HeadlightDescription,
    LightDescription,
    SceneDescription,
    ShapeDescription,
    ShapeType,
    StatisticsDescription,
    TendonDescription,
    frozen,
)
from scene_data.usd_paths import unique_identifiers

__all__ = ["describe_model"]

_SHAPE_TYPES = {
    mujoco.mjtGeom.mjGEOM_PLANE: ShapeType.PLANE,
    mujoco.mjtGeom.mjGEOM_HFIELD: ShapeType.HEIGHT_FIELD,
    mujoco.mjtGeom.mjGEOM_SPHERE: ShapeType.SPHERE,
    mujoco.mjtGeom.mjGEOM_CAPSULE: ShapeType.CAPSULE,
    mujoco.mjtGeom.mjGEOM_ELLIPSOID: ShapeType.ELLIPSOID,
    mujoco.mjtGeom.mjGEOM_CYLINDER: ShapeType.CYLINDER,
    mujoco.mjtGeom.mjGEOM_BOX: ShapeType.BOX,
    mujoco.mjtGeom.mjGEOM_MESH: ShapeType.MESH,
    mujoco.mjtGeom.mjGEOM_SDF: ShapeType.SDF,
}
_MODES = {int(mode): name.removeprefix("mjCAMLIGHT_").lower() for name, mode in mujoco.mjtCamLight.__members__.items()}
_LIGHT_TYPES = {
    int(kind): name.removeprefix("mjLIGHT_").lower() for name, kind in mujoco.mjtLightType.__members__.items()
}
_WRAP_TYPES = {int(kind): name.removeprefix("mjWRAP_").lower() for name, kind in mujoco.mjtWrap.__members__.items()}
_PROJECTIONS = {
    int(mujoco.mjtProjection.mjPROJ_PERSPECTIVE): "perspective",
    int(mujoco.mjtProjection.mjPROJ_ORTHOGRAPHIC): "orthographic",
}


def describe_model(model: mujoco.MjModel, num_envs: int = 1) -> SceneDescription:
    """Describe a model and the environments it is cloned into.

    Bodies, cameras and lights keep MuJoCo's indices, so that published arrays need no mapping.

    Args:
        model: A compiled model. It is copied from, except that `native("mujoco_model")` is the model itself.
        num_envs: Number of environments.

    Raises:
        ModelLoadError: A texture's file, kept by reference, cannot be read.
        ValueError: `num_envs` is below 1.
    """
    clone_plan = ClonePlan(num_envs)
    cables = find_cables(model)
    names = _PathNames(model, [chain.name for chain in cables])
    statistics = model.stat
    initial_camera = index_or_none(model.vis.global_.cameraid)
    return SceneDescription(
        name=model.names.split(b"\0", 1)[0].decode(errors="replace"),
        bodies=_bodies(model, names.bodies),
        shapes=_shapes(model, names.shapes),
        sites=_sites(model, names.sites),
        meshes=describe_meshes(model),
        materials=describe_materials(model),
        textures=describe_textures(model),
        height_fields=describe_height_fields(model),
        flexes=describe_flexes(model, names.flexes),
        skins=describe_skins(model, names.skins),
        cables=describe_cables(model, cables, names.cables),
        tendons=_tendons(model, names.tendons),
        cameras=_cameras(model, names.cameras),
        lights=_lights(model, names.lights),
        free_camera=_free_camera(model),
        initial_camera=initial_camera if initial_camera is not None and initial_camera < model.ncam else None,
        headlight=HeadlightDescription(
            active=bool(model.vis.headlight.active),
            ambient=frozen(model.vis.headlight.ambient, np.float32),
            diffuse=frozen(model.vis.headlight.diffuse, np.float32),
            specular=frozen(model.vis.headlight.specular, np.float32),
        ),
        center=frozen(statistics.center, np.float64),
        extent=float(statistics.extent),
        near=float(model.vis.map.znear * statistics.extent),
        far=float(model.vis.map.zfar * statistics.extent),
        statistics=StatisticsDescription(
            mean_mass=float(statistics.meanmass),
            mean_inertia=float(statistics.meaninertia),
            mean_size=float(statistics.meansize),
        ),
        clone_plan=clone_plan,
        natives=MappingProxyType({"mujoco_model": model}),
    )


class _PathNames:
    """A path below the environment for everything that has one."""

    def __init__(self, model: mujoco.MjModel, cables: Sequence[str]):
        kinds = mujoco.mjtObj

        def names(kind: mujoco.mjtObj, count: int) -> list[str]:
            return [name_of(model, kind, index) for index in range(count)]

        # Bodies first: a deformable may not change the path of a body.
        self.bodies = unique_identifiers(names(kinds.mjOBJ_BODY, model.nbody), "body")
        taken = list(self.bodies)
        self.flexes = unique_identifiers(names(kinds.mjOBJ_FLEX, model.nflex), "flex", taken)
        taken += self.flexes
        self.skins = unique_identifiers(names(kinds.mjOBJ_SKIN, model.nskin), "skin", taken)
        taken += self.skins
        self.tendons = unique_identifiers(names(kinds.mjOBJ_TENDON, model.ntendon), "tendon", taken)
        taken += self.tendons
        self.cables = unique_identifiers(cables, "cable", taken)

        self._siblings: list[list[str]] = [[] for _ in range(model.nbody)]
        self.shapes = self._on_bodies(names(kinds.mjOBJ_GEOM, model.ngeom), model.geom_bodyid, "shape")
        self.cameras = self._on_bodies(names(kinds.mjOBJ_CAMERA, model.ncam), model.cam_bodyid, "camera")
        self.lights = self._on_bodies(names(kinds.mjOBJ_LIGHT, model.nlight), model.light_bodyid, "light")
        self.sites = self._on_bodies(names(kinds.mjOBJ_SITE, model.nsite), model.site_bodyid, "site")

    def _on_bodies(self, names: Sequence[str], bodies: NDArray[np.int32], fallback: str) -> tuple[str, ...]:
        members: dict[int, list[int]] = {}
        for index, body in enumerate(bodies):
            members.setdefault(int(body), []).append(index)
        paths = [""] * len(names)
        for body, indices in members.items():
            siblings = self._siblings[body]
            identifiers = unique_identifiers([names[index] for index in indices], fallback, siblings)
            siblings += identifiers
            for index, identifier in zip(indices, identifiers, strict=True):
                paths[index] = f"{self.bodies[body]}/{identifier}"
        return tuple(paths)


def _bodies(model: mujoco.MjModel, path_names: tuple[str, ...]) -> tuple[BodyDescription, ...]:
    return tuple(
        BodyDescription(
            name=name_of(model, mujoco.mjtObj.mjOBJ_BODY, index),
            path_name=path_names[index],
            parent=int(model.body_parentid[index]) if index else -1,
            position=frozen(model.body_pos[index], np.float64),
            quaternion=frozen(xyzw(model.body_quat[index]), np.float64),
            mass=float(model.body_mass[index]),
            is_static=bool(model.body_weldid[index] == 0),
            is_mocap=bool(model.body_mocapid[index] >= 0),
        )
        for index in range(model.nbody)
    )


def _shapes(model: mujoco.MjModel, path_names: tuple[str, ...]) -> tuple[ShapeDescription, ...]:
    shapes = []
    for index in range(model.ngeom):
        kind = _SHAPE_TYPES[mujoco.mjtGeom(model.geom_type[index])]
        asset = index_or_none(model.geom_dataid[index])
        shapes.append(
            ShapeDescription(
                name=name_of(model, mujoco.mjtObj.mjOBJ_GEOM, index),
                path_name=path_names[index],
                body=int(model.geom_bodyid[index]),
                position=frozen(model.geom_pos[index], np.float64),
                quaternion=frozen(xyzw(model.geom_quat[index]), np.float64),
                type=kind,
                size=frozen(model.geom_size[index], np.float64),
                # A primitive that was fitted to a mesh keeps its id, and does not show it.
                mesh=asset if kind in (ShapeType.MESH, ShapeType.SDF) else None,
                height_field=asset if kind is ShapeType.HEIGHT_FIELD else None,
                material=index_or_none(model.geom_matid[index]),
                rgba=drawn_rgba(model, model.geom_rgba[index], model.geom_matid[index]),
                group=int(model.geom_group[index]),
                casts_shadow=bool(model.geom_castshadow[index]),
                collides=bool(model.geom_contype[index] or model.geom_conaffinity[index]),
            )
        )
    return tuple(shapes)


def _sites(model: mujoco.MjModel, path_names: tuple[str, ...]) -> tuple[ShapeDescription, ...]:
    return tuple(
        ShapeDescription(
            name=name_of(model, mujoco.mjtObj.mjOBJ_SITE, index),
            path_name=path_names[index],
            body=int(model.site_bodyid[index]),
            position=frozen(model.site_pos[index], np.float64),
            quaternion=frozen(xyzw(model.site_quat[index]), np.float64),
            type=_SHAPE_TYPES[mujoco.mjtGeom(model.site_type[index])],
            size=frozen(model.site_size[index], np.float64),
            mesh=index_or_none(model.site_dataid[index]),
            height_field=None,
            material=index_or_none(model.site_matid[index]),
            rgba=drawn_rgba(model, model.site_rgba[index], model.site_matid[index]),
            group=int(model.site_group[index]),
            casts_shadow=False,
            collides=False,
        )
        for index in range(model.nsite)
    )


def _cameras(model: mujoco.MjModel, path_names: tuple[str, ...]) -> tuple[CameraDescription, ...]:
    return tuple(
        CameraDescription(
            name=name_of(model, mujoco.mjtObj.mjOBJ_CAMERA, index),
            path_name=path_names[index],
            body=int(model.cam_bodyid[index]),
            position=frozen(model.cam_pos[index], np.float64),
            quaternion=frozen(xyzw(model.cam_quat[index]), np.float64),
            mode=_MODES[model.cam_mode[index]],
            target_body=index_or_none(model.cam_targetbodyid[index]),
            projection=_PROJECTIONS[model.cam_projection[index]],
            fovy=float(model.cam_fovy[index]),
            focal=frozen(model.cam_intrinsic[index, :2], np.float32),
            principal=frozen(model.cam_intrinsic[index, 2:], np.float32),
            sensor_size=frozen(model.cam_sensorsize[index], np.float32),
            resolution=frozen(model.cam_resolution[index], np.int32),
        )
        for index in range(model.ncam)
    )


def _lights(model: mujoco.MjModel, path_names: tuple[str, ...]) -> tuple[LightDescription, ...]:
    return tuple(
        LightDescription(
            name=name_of(model, mujoco.mjtObj.mjOBJ_LIGHT, index),
            path_name=path_names[index],
            body=int(model.light_bodyid[index]),
            position=frozen(model.light_pos[index], np.float64),
            direction=frozen(model.light_dir[index], np.float64),
            mode=_MODES[model.light_mode[index]],
            target_body=index_or_none(model.light_targetbodyid[index]),
            type=_LIGHT_TYPES[model.light_type[index]],
            active=bool(model.light_active[index]),
            casts_shadow=bool(model.light_castshadow[index]),
            ambient=frozen(model.light_ambient[index], np.float32),
            diffuse=frozen(model.light_diffuse[index], np.float32),
            specular=frozen(model.light_specular[index], np.float32),
            attenuation=frozen(model.light_attenuation[index], np.float32),
            cutoff=float(model.light_cutoff[index]),
            exponent=float(model.light_exponent[index]),
            softness=float(model.light_softness[index]),
            bulb_radius=float(model.light_bulbradius[index]),
            intensity=float(model.light_intensity[index]),
            range=float(model.light_range[index]),
            texture=index_or_none(model.light_texid[index]),
        )
        for index in range(model.nlight)
    )


def _tendons(model: mujoco.MjModel, path_names: tuple[str, ...]) -> tuple[TendonDescription, ...]:
    return tuple(_tendon(model, index, path_names[index]) for index in range(model.ntendon))


def _tendon(model: mujoco.MjModel, index: int, path_name: str) -> TendonDescription:
    first = int(model.tendon_adr[index])
    path = slice(first, first + int(model.tendon_num[index]))
    types = tuple(_WRAP_TYPES[kind] for kind in model.wrap_type[path])
    curved = np.isin(types, ("sphere", "cylinder"))
    parameters = model.wrap_prm[path]
    return TendonDescription(
        name=name_of(model, mujoco.mjtObj.mjOBJ_TENDON, index),
        path_name=path_name,
        is_spatial=bool(model.tendon_type[index] == mujoco.mjtTendon.mjTENDON_SPATIAL),
        wrap_types=types,
        wrap_objects=frozen(model.wrap_objid[path], np.int32),
        # MuJoCo keeps the side site of a curved object in the field that holds a divisor for the others.
        wrap_side_sites=frozen(np.where(curved, parameters, -1), np.int32),
        wrap_parameters=frozen(np.where(curved, 0, parameters), np.float64),
        width=float(model.tendon_width[index]),
        material=index_or_none(model.tendon_matid[index]),
        rgba=drawn_rgba(model, model.tendon_rgba[index], model.tendon_matid[index]),
        group=int(model.tendon_group[index]),
    )


def _free_camera(model: mujoco.MjModel) -> FreeCameraDescription:
    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    return FreeCameraDescription(
        lookat=frozen(camera.lookat, np.float64),
        distance=float(camera.distance),
        azimuth=float(camera.azimuth),
        elevation=float(camera.elevation),
        projection=_PROJECTIONS[int(bool(model.vis.global_.orthographic))],
        fovy=float(model.vis.global_.fovy),
    )
