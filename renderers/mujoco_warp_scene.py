"""What MuJoCo Warp's ray tracer sees: the model's geometry on the device, and where it is in each environment.

The tracer reads a few dozen fields of a Model and nine of a Data. We hand it just these, filled from the `MjModel` and
from snapshots, so that a model renders whether or not MuJoCo Warp can simulate it (solvers, sensors, plugins, ... play
no role here), and so that nothing but the snapshot decides what is seen.
"""

import copy
import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from scene_data.formats import SceneDataFormat
from scene_data.launches import KeptLaunch
from scene_data.scene import SceneDescription

from . import mujoco_warp_kernels as kernels
from .mujoco_warp_appearance import ShardAppearance
from .mujoco_warp_extra import DeviceGeometry, ExtraSlots
from .mujoco_warp_skins import ShardSkins, TracerSkins
from .render_core.camera_tables import NO_POSES
from .render_core.placement import rotation_matrices

if TYPE_CHECKING:
    from .mujoco_warp_views import CameraRig
    from .render_core.snapshots import RenderSnapshot

__all__ = ["GeometryBounds", "ShardScene", "TracerModel", "on_device"]

# fmt: off
_MODEL_ARRAYS = (
    "geom_type", "geom_dataid", "geom_matid", "geom_size", "geom_rgba", "light_type", "light_castshadow",
    "light_active", "light_attenuation", "light_cutoff", "light_exponent", "light_ambient", "light_diffuse",
    "light_specular", "flex_dim",
    "flex_vertadr", "flex_vertnum", "flex_edge", "flex_radius", "flex_elemadr", "flex_elemnum", "flex_elemdataadr",
    "flex_elem", "flex_shelldataadr", "flex_shell", "mesh_faceadr", "mesh_normaladr", "mesh_normal", "mat_texid",
    "mat_texuniform", "mat_texrepeat", "mat_emission", "mat_specular", "mat_shininess", "mat_rgba",
)
# fmt: on

_NOWHERE = 1e9
_REFITS_PER_REBUILD = 16
_IDENTITY = wp.mat33(*np.eye(3).ravel())
_NO_TYPES = np.zeros(0, dtype=np.int32)
_NO_LIGHTS = SceneDataFormat.Vec3_Direction()

# Warp's default device, which the tracer launches on, belongs to the process and not to a thread.
_default_device_lock = threading.Lock()


@contextmanager
def on_device(device: wp.Device) -> Iterator[None]:
    """Run tracer calls on `device`; costs nothing where that is Warp's default device, and excludes others if not."""
    if wp.get_device() == device:
        yield
        return
    with _default_device_lock, wp.ScopedDevice(device):
        yield


class TracerModel:
    """The model's geometry and appearance on the device, shared by all shards and all options.

    Attributes:
        fields: What the tracer reads of a Model.
        slots: What is reserved for extra geometry; nothing at first.
        skins: The model's skins.
        geoms: The model's geoms, and behind them a mesh for each skin, by the fields of an `MjModel`.
        prototype: A render context that holds all geometry of one environment in the model's default pose. It is
            never rendered; every other context is a copy of it with its own bounding volumes and cameras.
    """

    def __init__(self, scene: SceneDescription, device: wp.Device):
        mj_model: Any = scene.native("mujoco_model")
        self.mj_model = mj_model
        self.device = device
        self.skins = TracerSkins(mj_model, scene.skins, device)
        self.geoms = self.skins.geoms
        self.fields = _tracer_fields(mj_model, self.geoms, device)
        with on_device(device):
            # Alpha 0 marks pixels that saw nothing, so that a background colour costs no kernel of its own.
            self.prototype = mjw.create_render_context(
                mj_model,
                cam_active=[],
                render_skybox=True,
                enabled_geom_groups=sorted({int(group) for group in mj_model.geom_group}),
                background_color=(0.0, 0.0, 0.0, 0.0),
            )
        if scene.flexes:  # the tracer knows no materials of flexes
            colours = np.array([flex.rgba for flex in scene.flexes])
            self.prototype.flex_rgba = wp.array(colours, dtype=wp.vec4, device=device)
        # Materials without a texture can be given one at run time.
        self.has_textures = bool(mj_model.nmat and (mj_model.tex_type != mujoco.mjtTexture.mjTEXTURE_SKYBOX).any())
        self.has_skybox = self.prototype.render_skybox
        self.geom_body = wp.array(mj_model.geom_bodyid, dtype=wp.int32, device=device)
        self.geom_position = wp.array(mj_model.geom_pos, dtype=wp.vec3, device=device)
        self.geom_rotation = wp.array(rotation_matrices(mj_model.geom_quat[:, [1, 2, 3, 0]]), wp.mat33, device=device)
        self._flex_of_bound = self.prototype.flex_geom_flexid.numpy()
        self.slots = ExtraSlots((), device)
        self._contexts: dict[tuple[tuple[int, ...], bool], mjw.RenderContext] = {}

    def reserve(self, capacity: tuple[int, ...]) -> None:
        """Have slots for as much extra geometry as this; contexts with extra geometry are made anew."""
        if capacity != self.slots.capacity:
            self.slots = ExtraSlots(capacity, self.device)
            self._contexts = {key: context for key, context in self._contexts.items() if not key[1]}

    def context(self, groups: tuple[int, ...], extra_geometry: bool) -> mjw.RenderContext:
        """The prototype cut down to the geoms and flexes of these groups: to be copied, not to be changed."""
        key = groups, extra_geometry
        if key not in self._contexts:
            self._contexts[key] = self._select(groups, self.slots.types if extra_geometry else _NO_TYPES)
        return self._contexts[key]

    def _select(self, groups: tuple[int, ...], slot_types: np.ndarray) -> mjw.RenderContext:
        model, prototype, drawn = self.mj_model, self.prototype, self.geoms
        visible = np.flatnonzero(np.isin(drawn.geom_group, groups))
        geoms = np.concatenate((visible, drawn.ngeom + np.arange(slot_types.size)))
        bounds = np.flatnonzero(np.isin(model.flex_group, groups)[self._flex_of_bound])
        types = {int(geom_type) for geom_type in (*drawn.geom_type[visible], *slot_types)}
        if bounds.size:
            types.add(int(mjw.GeomType.FLEX))
        context = copy.copy(prototype)
        context.enabled_geom_ids = wp.array(geoms, dtype=int, device=self.device)
        context.bvh_ngeom = geoms.size
        context.flex_geom_flexid = wp.array(self._flex_of_bound[bounds], dtype=int, device=self.device)
        edges = prototype.flex_geom_edgeid.numpy()
        context.flex_geom_edgeid = wp.array(edges[bounds], dtype=int, device=self.device)
        context.bvh_nflexgeom = bounds.size
        context.geom_ray_types = tuple(sorted(types))
        parked = np.tile(model.stat.center, (slot_types.size, 1))
        known = ((prototype.lower.numpy(), self.skins.lower), (prototype.upper.numpy(), self.skins.upper))
        lower, upper = (
            np.concatenate((np.concatenate((own[: model.ngeom], skins))[visible], parked, own[model.ngeom + bounds]))
            for own, skins in known
        )
        if not len(lower):  # a query of an empty hierarchy is no query: give it something that no ray meets
            lower = upper = np.full((1, 3), _NOWHERE)
        context.lower = wp.array(lower, dtype=wp.vec3, device=self.device)
        context.upper = wp.array(upper, dtype=wp.vec3, device=self.device)
        return context


class GeometryBounds:
    """The bounding volumes of one context's geometry, repeated for the environments of a shard."""

    def __init__(self, context: mjw.RenderContext, num_envs: int, device: wp.Device):
        drawn = context.lower.shape[0]
        environments = np.arange(num_envs, dtype=np.int32)
        self.lower = wp.array(np.tile(context.lower.numpy(), (num_envs, 1)), dtype=wp.vec3, device=device)
        self.upper = wp.array(np.tile(context.upper.numpy(), (num_envs, 1)), dtype=wp.vec3, device=device)
        self.group = wp.array(np.repeat(environments, drawn), dtype=wp.int32, device=device)
        self.bvh = wp.Bvh(self.lower, self.upper, groups=self.group, constructor="sah")
        self.group_root = wp.zeros(num_envs, dtype=wp.int32, device=device)
        self._find_roots()
        self._refits = 0

        self.flex_meshes: dict[int, wp.Mesh] = {}
        self.flex_ids = np.zeros(context.flex_bvh_id.shape[0], dtype=np.uint64)
        self.flex_root = wp.full((num_envs, self.flex_ids.size), -1, dtype=wp.int32, device=device)
        for flex, mesh in context.flex_mesh_registry.items():
            corners = mesh.indices.shape[0]
            indices = mesh.indices.numpy()[None, :] + environments[:, None] * corners  # no vertex is shared by faces
            repeated = wp.Mesh(
                points=wp.array(np.tile(mesh.points.numpy(), (num_envs, 1)), dtype=wp.vec3, device=device),
                indices=wp.array(indices.ravel(), dtype=wp.int32, device=device),
                groups=wp.array(np.repeat(environments, corners // 3), dtype=wp.int32, device=device),
                bvh_constructor="sah",
                bvh_leaf_size=2,
            )
            self.flex_meshes[flex] = repeated
            self.flex_ids[flex] = repeated.id
            wp.launch(kernels.mesh_roots, num_envs, [repeated.id, flex], [self.flex_root], device=device)
        self.flex_bvh_id = wp.array(self.flex_ids, dtype=wp.uint64, device=device)

    def refit(self, scene: "ShardScene", context: mjw.RenderContext) -> None:
        """Bring the volumes to where the scene is; `context` is one that they are installed in.

        What was near in the default pose may be far apart by now, and a hierarchy that joins it slows every ray down.
        On the CPU, where it costs next to nothing, the hierarchy is sorted anew now and then.
        """
        mjw.refit_bvh(scene.model, scene.fields, context)
        if self.bvh.device.is_cpu and self._refits % _REFITS_PER_REBUILD == 0:
            self.bvh.rebuild()
            self._find_roots()
        self._refits += 1

    def install(self, context: mjw.RenderContext) -> None:
        """Make `context` draw what these volumes bound."""
        context.lower, context.upper, context.group = self.lower, self.upper, self.group
        context.bvh, context.bvh_id, context.group_root = self.bvh, self.bvh.id, self.group_root
        context.flex_mesh_registry = self.flex_meshes
        context.flex_bvh_id, context.flex_group_root = self.flex_bvh_id, self.flex_root

    def _find_roots(self) -> None:
        roots = self.group_root
        wp.launch(kernels.bvh_roots, roots.shape[0], [self.bvh.id], [roots], device=roots.device)


class ShardScene:
    """Where everything is in the environments `first_env` to `first_env + num_envs`.

    Attributes:
        model: What the tracer reads of a Model.
        fields: What the tracer reads of a Data.
        slot_id: Id of the extra geometry in each slot, or -1 (num_envs, slots) int32.
        diverged: 1 for each environment whose poses are not finite (num_envs,) int32; a slice of the backend's.
        intrinsic: Intrinsics of the rig's cameras (num_envs, C); a slice of the rig's.
    """

    def __init__(self, tracer: TracerModel, rig: "CameraRig", first_env: int, diverged: wp.array):
        model = tracer.mj_model
        self.tracer = tracer
        self.rig = rig
        self.first_env = first_env
        self.num_envs = diverged.shape[0]
        self.diverged = diverged
        self.intrinsic = rig.intrinsic[first_env : first_env + self.num_envs]
        self.model = copy.copy(tracer.fields)
        self.model.cam_projection, self.model.cam_fovy = rig.projection, rig.fovy
        self.model.cam_sensorsize, self.model.cam_intrinsic = rig.sensor_size, self.intrinsic
        self.fields = SimpleNamespace(
            nworld=self.num_envs,
            geom_xpos=self._zeros(tracer.geoms.ngeom, wp.vec3),
            geom_xmat=self._zeros(tracer.geoms.ngeom, wp.mat33),
            cam_xpos=self._zeros(rig.count, wp.vec3),
            cam_xmat=self._zeros(rig.count, wp.mat33),
            light_xpos=self._zeros(model.nlight, wp.vec3),
            light_xdir=self._zeros(model.nlight, wp.vec3),
            flexvert_xpos=self._zeros(model.nflexvert, wp.vec3),
        )
        for rotations in (self.fields.geom_xmat, self.fields.cam_xmat):
            rotations.fill_(_IDENTITY)
        self.slot_id = self._zeros(0, wp.int32)
        self.skins = None
        if tracer.skins.count:
            self.skins = ShardSkins(tracer.skins, tracer.prototype, self.model, first_env, self.num_envs)
        self._appearance = ShardAppearance(model, self.model, first_env, self.num_envs, tracer.device)
        self._counts = model.nbody, model.ncam, model.nlight, model.nflexvert
        self._find_diverged = KeptLaunch(kernels.find_diverged, tracer.device)
        self._place_scene = KeptLaunch(kernels.place_scene, tracer.device)
        self._placed = max(model.ngeom, rig.count, model.nlight, model.nflexvert)
        self._checked = max(model.nbody, model.ncam, model.nlight, model.nflexvert)

    def reserve(self) -> None:
        """Have the model's slots for extra geometry behind its geoms, with sizes and colours per environment."""
        geoms, slots = self.tracer.geoms, self.tracer.slots
        count = geoms.ngeom + slots.count
        self.slot_id = self._zeros(slots.count, wp.int32)
        self.fields.geom_xpos, self.fields.geom_xmat = self._zeros(count, wp.vec3), self._zeros(count, wp.mat33)
        self.fields.geom_xmat.fill_(_IDENTITY)
        self.model.geom_type = self._with_slots(geoms.geom_type, slots.types, int)
        data_ids = geoms.geom_dataid[None] if self.skins is None else self.skins.data_ids()
        for name, values in (("geom_dataid", data_ids), ("geom_matid", geoms.geom_matid[None])):
            unused = np.full((len(values), slots.count), -1)
            setattr(self.model, name, self._with_slots(values, unused, int))
        for name, dtype, width in (("geom_size", wp.vec3, 3), ("geom_rgba", wp.vec4, 4)):
            values = np.tile(getattr(geoms, name), (self.num_envs, 1, 1))
            setattr(self.model, name, self._with_slots(values, np.zeros((self.num_envs, slots.count, width)), dtype))
        self._appearance.forget_geoms()

    def dress(self, snapshot: "RenderSnapshot") -> None:
        """Give the environments their looks. May compile, so it is called on one thread for all shards."""
        self._appearance.apply(snapshot.appearance, snapshot.model_looks)

    def install_skins(self, context: mjw.RenderContext) -> None:
        """Make `context` draw the skins where `place` has them."""
        if self.skins is not None:
            self.skins.install(context)

    def place(self, snapshot: "RenderSnapshot", extra: DeviceGeometry | None = None) -> None:
        """Bring geoms, cameras, lights and flexes to where the snapshot has them, and flag diverged environments."""
        bodies, cameras, lights = snapshot.transforms, snapshot.cameras, snapshot.lights
        body_count, camera_count, light_count, point_count = self._counts
        counts = [body_count, camera_count if cameras else 0, light_count if lights else 0, point_count]
        published = [
            bodies,
            cameras or NO_POSES,
            lights or _NO_LIGHTS,
            snapshot.points,
        ]
        self.diverged.zero_()
        self._find_diverged.launch(
            (self.num_envs, self._checked), [self.first_env, *counts, *published], [self.diverged]
        )
        tracer, rig, placed = self.tracer, self.rig, self.fields
        if extra is not None:
            self._place_extra(extra)
        self._place_scene.launch(
            (self.num_envs, self._placed),
            inputs=[
                self.first_env,
                *counts,
                self.diverged,
                *published,
                tracer.geom_body,
                tracer.geom_position,
                tracer.geom_rotation,
                rig.places,
            ],
            outputs=[
                placed.geom_xpos,
                placed.geom_xmat,
                placed.cam_xpos,
                placed.cam_xmat,
                placed.light_xpos,
                placed.light_xdir,
                placed.flexvert_xpos,
            ],
        )
        if self.skins is not None:
            self.skins.bend(bodies, body_count, self.diverged, placed.geom_xpos)
        self._appearance.place_lights(placed.light_xpos, placed.light_xdir)

    def _place_extra(self, extra: DeviceGeometry) -> None:
        slots, model, placed = self.tracer.slots, self.model, self.fields
        wp.launch(
            kernels.place_extra,
            dim=(self.num_envs, slots.count),
            inputs=[
                self.first_env,
                self.tracer.geoms.ngeom,
                len(slots.capacity),
                wp.vec3(*self.tracer.mj_model.stat.center),
                slots.type_of_slot,
                slots.rank_of_slot,
                *extra.arrays,
            ],
            outputs=[
                self.diverged,
                placed.geom_xpos,
                placed.geom_xmat,
                model.geom_size,
                model.geom_rgba,
                self.slot_id,
            ],
            device=self.tracer.device,
        )

    def _zeros(self, count: int, dtype: Any) -> wp.array:
        return wp.zeros((self.num_envs, count), dtype=dtype, device=self.tracer.device)

    def _with_slots(self, values: np.ndarray, slots: np.ndarray, dtype: Any) -> wp.array:
        """The model's values and behind them those of the slots, along the axis of the geoms."""
        axis = 0 if values.ndim == 1 else 1
        return wp.array(np.concatenate((values, slots), axis=axis), dtype=dtype, device=self.tracer.device)


def _tracer_fields(mj_model: mujoco.MjModel, geoms: SimpleNamespace, device: wp.Device) -> SimpleNamespace:
    """The model's arrays in the types and shapes of a MuJoCo Warp Model, as far as the tracer reads them."""
    specs = {field.name: field.type for field in dataclasses.fields(mjw.Model)}
    fields = SimpleNamespace(
        nlight=mj_model.nlight,
        nflex=mj_model.nflex,
        nflexelem=mj_model.nflexelem,
        opt=SimpleNamespace(deterministic=0),
        block_dim=SimpleNamespace(render=64),
    )
    for name in _MODEL_ARRAYS:
        spec: Any = specs[name]
        values = np.asarray(getattr(geoms if hasattr(geoms, name) else mj_model, name))
        if spec.dtype is bool:
            values = values.astype(bool)
        if spec.shape[0] == "*":  # may differ among environments; ours do not
            values = values[None]
        setattr(fields, name, wp.array(values, dtype=spec.dtype, device=device))
    return fields
