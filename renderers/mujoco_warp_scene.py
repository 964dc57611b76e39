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

from . import mujoco_warp_kernels as kernels
from .render_core.placement import rotation_matrices

if TYPE_CHECKING:
    from .mujoco_warp_views import CameraRig
    from .render_core.snapshots import RenderSnapshot

__all__ = ["GeometryBounds", "ShardScene", "TracerModel", "check_snapshot", "on_device"]

# fmt: off
_MODEL_ARRAYS = (
    "geom_type", "geom_dataid", "geom_matid", "geom_size", "geom_rgba", "cam_projection", "cam_fovy",
    "cam_sensorsize", "cam_intrinsic", "light_type", "light_castshadow", "light_active", "light_attenuation",
    "light_cutoff", "light_exponent", "light_ambient", "light_diffuse", "light_specular", "flex_dim",
    "flex_vertadr", "flex_vertnum", "flex_edge", "flex_radius", "flex_elemadr", "flex_elemnum", "flex_elemdataadr",
    "flex_elem", "flex_shelldataadr", "flex_shell", "mesh_faceadr", "mesh_normaladr", "mesh_normal", "mat_texid",
    "mat_texuniform", "mat_texrepeat", "mat_emission", "mat_specular", "mat_shininess", "mat_rgba",
)
# fmt: on

_NOWHERE = 1e9

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
        prototype: A render context that holds all geometry of one environment in the model's default pose. It is
            never rendered; every other context is a copy of it with its own bounding volumes and cameras.
    """

    def __init__(self, mj_model: mujoco.MjModel, device: wp.Device):
        self.mj_model = mj_model
        self.device = device
        self.fields = _tracer_fields(mj_model, device)
        with on_device(device):
            # Alpha 0 marks pixels that saw nothing, so that a background colour costs no kernel of its own.
            self.prototype = mjw.create_render_context(
                mj_model,
                cam_active=[],
                render_skybox=True,
                enabled_geom_groups=sorted({int(group) for group in mj_model.geom_group}),
                background_color=(0.0, 0.0, 0.0, 0.0),
            )
        self.has_textures = bool((mj_model.mat_texid >= 0).any())
        self.has_skybox = self.prototype.render_skybox
        self.geom_body = wp.array(mj_model.geom_bodyid, dtype=wp.int32, device=device)
        self.geom_position = wp.array(mj_model.geom_pos, dtype=wp.vec3, device=device)
        self.geom_rotation = wp.array(rotation_matrices(mj_model.geom_quat[:, [1, 2, 3, 0]]), wp.mat33, device=device)
        self._flex_of_bound = self.prototype.flex_geom_flexid.numpy()
        self._contexts: dict[tuple[int, ...], mjw.RenderContext] = {}

    def context(self, groups: tuple[int, ...]) -> mjw.RenderContext:
        """The prototype cut down to the geoms and flexes of these groups: to be copied, not to be changed."""
        if groups not in self._contexts:
            self._contexts[groups] = self._select(groups)
        return self._contexts[groups]

    def _select(self, groups: tuple[int, ...]) -> mjw.RenderContext:
        model, prototype = self.mj_model, self.prototype
        geoms = np.flatnonzero(np.isin(model.geom_group, groups))
        bounds = np.flatnonzero(np.isin(model.flex_group, groups)[self._flex_of_bound])
        types = {int(geom_type) for geom_type in model.geom_type[geoms]}
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
        lower, upper = (
            np.concatenate((bound.numpy()[geoms], bound.numpy()[model.ngeom + bounds]))
            for bound in (prototype.lower, prototype.upper)
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
        wp.launch(kernels.bvh_roots, num_envs, [self.bvh.id], [self.group_root], device=device)

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

    def install(self, context: mjw.RenderContext) -> None:
        """Make `context` draw what these volumes bound."""
        context.lower, context.upper, context.group = self.lower, self.upper, self.group
        context.bvh, context.bvh_id, context.group_root = self.bvh, self.bvh.id, self.group_root
        context.flex_mesh_registry = self.flex_meshes
        context.flex_bvh_id, context.flex_group_root = self.flex_bvh_id, self.flex_root


class ShardScene:
    """Where everything is in the environments `first_env` to `first_env + num_envs`.

    Attributes:
        fields: What the tracer reads of a Data.
        diverged: 1 for each environment whose poses are not finite (num_envs,) int32; a slice of the backend's.
    """

    def __init__(self, tracer: TracerModel, rig: "CameraRig", first_env: int, diverged: wp.array):
        model, device = tracer.mj_model, tracer.device
        self.tracer = tracer
        self.rig = rig
        self.first_env = first_env
        self.num_envs = diverged.shape[0]
        self.diverged = diverged

        def zeros(count: int, dtype: Any) -> wp.array:
            return wp.zeros((self.num_envs, count), dtype=dtype, device=device)

        self.fields = SimpleNamespace(
            nworld=self.num_envs,
            geom_xpos=zeros(model.ngeom, wp.vec3),
            geom_xmat=zeros(model.ngeom, wp.mat33),
            cam_xpos=zeros(rig.count, wp.vec3),
            cam_xmat=zeros(rig.count, wp.mat33),
            light_xpos=zeros(model.nlight, wp.vec3),
            light_xdir=zeros(model.nlight, wp.vec3),
            flexvert_xpos=zeros(model.nflexvert, wp.vec3),
        )
        for rotations in (self.fields.geom_xmat, self.fields.cam_xmat):
            rotations.fill_(wp.mat33(*np.eye(3).ravel()))
        self._placed = max(model.ngeom, rig.count, model.nlight, model.nflexvert)
        self._checked = max(model.nbody, model.ncam, model.nlight, model.nflexvert)
        self._none = tuple(wp.zeros(0, dtype=dtype, device=device) for dtype in (wp.vec3, wp.mat33))

    def place(self, snapshot: "RenderSnapshot") -> None:
        """Bring geoms, cameras, lights and flexes to where the snapshot has them, and flag diverged environments."""
        model, device = self.tracer.mj_model, self.tracer.device
        no_vectors, no_matrices = self._none
        bodies, cameras, lights = snapshot.transforms, snapshot.cameras, snapshot.lights
        counts = [model.nbody, model.ncam if cameras else 0, model.nlight if lights else 0, model.nflexvert]
        published = [
            bodies.positions,
            bodies.orientations,
            cameras.positions if cameras else no_vectors,
            cameras.orientations if cameras else no_matrices,
            lights.positions if lights else no_vectors,
            lights.directions if lights else no_vectors,
            no_vectors if snapshot.points is None else snapshot.points,
        ]
        self.diverged.zero_()
        wp.launch(
            kernels.find_diverged,
            dim=(self.num_envs, self._checked),
            inputs=[self.first_env, *counts, *published],
            outputs=[self.diverged],
            device=device,
        )
        tracer, rig, placed = self.tracer, self.rig, self.fields
        wp.launch(
            kernels.place_scene,
            dim=(self.num_envs, self._placed),
            inputs=[
                self.first_env,
                *counts,
                self.diverged,
                *published,
                tracer.geom_body,
                tracer.geom_position,
                tracer.geom_rotation,
                rig.mount_camera,
                rig.mount_body,
                rig.mount_position,
                rig.mount_rotation,
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
            device=device,
        )


def check_snapshot(snapshot: "RenderSnapshot", mj_model: mujoco.MjModel, rig: "CameraRig", num_envs: int) -> None:
    """Refuse a snapshot that is not of this scene.

    Raises:
        ValueError: It lacks poses that the model's parts need, or has those of another number of parts.
    """
    cameras, lights, points = snapshot.cameras, snapshot.lights, snapshot.points
    for what, published, count in (
        ("body poses", snapshot.transforms and snapshot.transforms.positions, mj_model.nbody),
        ("camera poses", cameras and cameras.positions, mj_model.ncam if cameras or rig.uses_model_cameras else 0),
        ("light poses", lights and lights.positions, mj_model.nlight),
        ("flex vertices", points, mj_model.nflexvert),
    ):
        found = 0 if published is None else published.shape[0]
        if found != num_envs * count:
            raise ValueError(
                f"the snapshot has {found} {what}, but {num_envs} environments of the model have {num_envs * count}"
            )


def _tracer_fields(mj_model: mujoco.MjModel, device: wp.Device) -> SimpleNamespace:
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
        values = np.asarray(getattr(mj_model, name))
        if spec.dtype is bool:
            values = values.astype(bool)
        if spec.shape[0] == "*":  # may differ among environments; ours do not
            values = values[None]
        setattr(fields, name, wp.array(values, dtype=spec.dtype, device=device))
    return fields
