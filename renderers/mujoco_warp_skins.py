"""Skins for MuJoCo Warp's ray tracer, which knows none: meshes of a geom each, bent anew in every environment.

The tracer finds the mesh of a geom in a table that may differ among environments. So each environment of a shard has a
mesh of its own for each skin, at a geom behind the model's, and textures, materials and smooth normals come as for any
mesh. What bends them follows from the snapshot's body poses, so it runs on the shard's thread.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp

from scene_data.scene_assets import SkinDescription
from scene_data.skinning import skin_corners, skin_influences

__all__ = ["ShardSkins", "TracerSkins"]

wp.set_module_options({"enable_backward": False})


@wp.kernel
def _bend(
    first_env: int,
    body_count: int,
    diverged: wp.array[wp.int32],
    body_position: wp.array[wp.vec3],
    body_rotation: wp.array[wp.mat33],
    influence_offsets: wp.array[wp.int32],
    influence_body: wp.array[wp.int32],
    influence_weight: wp.array[wp.float32],
    influence_place: wp.array[wp.vec3],
    skin_of_vertex: wp.array[wp.int32],
    carrier: wp.array[wp.int32],
    bent: wp.array2d[wp.vec3],
):
    """Vertices where their bones have them, seen from the skin's carrier; of diverged environments all in one point."""
    env, vertex = wp.tid()
    p = wp.vec3(0.0)
    if diverged[env] == 0:
        first_body = (first_env + env) * body_count
        origin = body_position[first_body + carrier[skin_of_vertex[vertex]]]
        for i in range(influence_offsets[vertex], influence_offsets[vertex + 1]):
            body = first_body + influence_body[i]
            placed = body_position[body] - origin + body_rotation[body] @ influence_place[i]
            p += influence_weight[i] * placed
    bent[env, vertex] = p


@wp.kernel
def _finish(
    bent: wp.array2d[wp.vec3],
    corner_offsets: wp.array[wp.int32],
    corner_others: wp.array[wp.vec2i],
    inflation: wp.array[wp.float32],
    skin_of_vertex: wp.array[wp.int32],
    points: wp.array2d[wp.vec3],
    normals: wp.array2d[wp.vec3],
    half_extent: wp.array2d[wp.vec3],
):
    """Normals, in which triangles count by their areas; vertices blown up along them; how far the skin reaches."""
    env, vertex = wp.tid()
    p = bent[env, vertex]
    normal = wp.vec3(0.0)
    for i in range(corner_offsets[vertex], corner_offsets[vertex + 1]):
        others = corner_others[i]
        normal += wp.cross(bent[env, others[0]] - p, bent[env, others[1]] - p)
    normal = wp.normalize(normal)
    p += inflation[vertex] * normal
    points[env, vertex] = p
    normals[env, vertex] = normal
    wp.atomic_max(half_extent, env, skin_of_vertex[vertex], wp.vec3(wp.abs(p[0]), wp.abs(p[1]), wp.abs(p[2])))


@wp.kernel
def _place(
    first_env: int,
    body_count: int,
    diverged: wp.array[wp.int32],
    body_position: wp.array[wp.vec3],
    carrier: wp.array[wp.int32],
    first_geom: int,
    geom_position: wp.array2d[wp.vec3],
):
    """The frame of each skin's mesh: in the position of its carrier, and not turned."""
    env, skin = wp.tid()
    p = wp.vec3(0.0)
    if diverged[env] == 0:
        p = body_position[(first_env + env) * body_count + carrier[skin]]
    geom_position[env, first_geom + skin] = p


class TracerSkins:
    """The skins of a model on the device, shared by all shards.

    Args:
        mj_model: The model.
        skins: Its skins.
        device: Where the tracer runs.

    Attributes:
        count: Number of skins.
        vertex_count: Number of their vertices.
        geoms: The model's geoms and behind them a mesh for each skin, by the fields of an `MjModel`.
        lower, upper: What bounds each skin at binding (count, 3).
    """

    def __init__(self, mj_model: mujoco.MjModel, skins: Sequence[SkinDescription], device: wp.Device):
        self.mj_model = mj_model
        self.skins = tuple(skins)
        self.device = device
        self.count = len(skins)
        sizes = [len(skin.vertices) for skin in skins]
        self.first_vertex = np.cumsum([0, *sizes])
        self.vertex_count = int(self.first_vertex[-1])
        self.lower = np.array([skin.vertices.min(axis=0) for skin in skins]).reshape(-1, 3)
        self.upper = np.array([skin.vertices.max(axis=0) for skin in skins]).reshape(-1, 3)
        self.geoms = _geoms_with_skins(mj_model)
        if not skins:
            return

        def upload(values: Any, dtype: Any) -> wp.array:
            return wp.array(np.ascontiguousarray(values), dtype=dtype, device=device)

        influences, corners = skin_influences(skins), skin_corners(skins, [True] * len(skins))
        bone_bodies = np.concatenate([skin.bone_bodies for skin in skins])
        self.carrier = upload([skin.bone_bodies[0] for skin in skins], wp.int32)
        self.skin_of_vertex = upload(np.repeat(np.arange(self.count), sizes), wp.int32)
        self.influences = (
            upload(influences.offsets, wp.int32),
            upload(bone_bodies[influences.bones], wp.int32),
            upload(influences.weights, wp.float32),
            upload(influences.places, wp.vec3),
        )
        self.corners = (upload(corners.offsets, wp.int32), upload(corners.others, wp.vec2i))
        self.inflation = upload(np.repeat([skin.inflate for skin in skins], sizes), wp.float32)
        self.is_inflated = any(skin.inflate for skin in skins)
        self.triangles = [upload(skin.faces.ravel(), wp.int32) for skin in skins]
        faces = np.concatenate([skin.faces for skin in skins])
        texcoords = [np.zeros((len(skin.vertices), 2)) if skin.texcoords is None else skin.texcoords for skin in skins]
        self._texcoord = upload(np.concatenate((mj_model.mesh_texcoord.reshape(-1, 2), *texcoords)), wp.vec2)
        self._facetexcoord = upload(np.concatenate((mj_model.mesh_facetexcoord, faces)), wp.vec3i)
        self._facenormal = upload(np.concatenate((mj_model.mesh_facenormal, faces)), wp.vec3i)

    def mesh_tables(self, num_envs: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the faces, normals and texture coordinates of the model's meshes begin, and behind them the skins'."""
        model, first = self.mj_model, self.first_vertex[:-1]
        faces = np.cumsum([0, *(len(skin.faces) for skin in self.skins)])[:-1] + model.nmeshface
        normals = model.nmeshnormal + self.vertex_count * np.arange(num_envs)[:, None] + first
        has_texcoords = [skin.texcoords is not None for skin in self.skins]
        texcoords = np.where(has_texcoords, model.nmeshtexcoord + first, -1)
        return (
            np.concatenate((model.mesh_faceadr, np.tile(faces, num_envs))),
            np.concatenate((model.mesh_normaladr, normals.ravel())),
            np.concatenate((model.mesh_texcoordadr, np.tile(texcoords, num_envs))),
        )

    def install(self, context: mjw.RenderContext) -> None:
        """Give a context the triangles of the skins behind those of the meshes."""
        context.mesh_texcoord, context.mesh_facetexcoord = self._texcoord, self._facetexcoord
        context.mesh_facenormal = self._facenormal


class ShardSkins:
    """The skins of a shard's environments.

    Args:
        skins: The model's skins, at least one.
        prototype: A context with the model's meshes.
        model: What the shard's tracer reads of a Model; what it says of meshes becomes the shard's own.
        first_env: First environment of the shard.
        num_envs: Number of its environments.
    """

    def __init__(
        self, skins: TracerSkins, prototype: mjw.RenderContext, model: SimpleNamespace, first_env: int, num_envs: int
    ):
        device, mj_model = skins.device, skins.mj_model
        self._skins = skins
        self._first_env = first_env
        self.num_envs = num_envs
        shape = (num_envs, skins.vertex_count)
        faces, normals, texcoords = skins.mesh_tables(num_envs)
        model.mesh_faceadr = wp.array(faces, dtype=int, device=device)
        model.mesh_normaladr = wp.array(normals, dtype=int, device=device)
        model.mesh_normal = wp.zeros(mj_model.nmeshnormal + shape[0] * shape[1], dtype=wp.vec3, device=device)
        if mj_model.nmeshnormal:
            model.mesh_normal[: mj_model.nmeshnormal].assign(mj_model.mesh_normal)
        model.geom_dataid = wp.array(self.data_ids(), dtype=int, device=device)
        self._normals = model.mesh_normal[mj_model.nmeshnormal :].reshape(shape)
        self._texcoordadr = wp.array(texcoords, dtype=int, device=device)

        bound = np.concatenate([skin.vertices - skin.bone_bind_positions[0] for skin in skins.skins])
        self._points = wp.array(np.tile(bound, (num_envs, 1, 1)), dtype=wp.vec3, device=device)
        self._bent = wp.zeros(shape, dtype=wp.vec3, device=device) if skins.is_inflated else self._points
        self._bounds = wp.zeros(mj_model.nmesh + num_envs * skins.count, dtype=wp.vec3, device=device)
        if mj_model.nmesh:
            wp.copy(self._bounds, prototype.mesh_bounds_size, count=mj_model.nmesh)
        self._half_extent = self._bounds[mj_model.nmesh :].reshape((num_envs, skins.count))
        self._meshes = [self._mesh(env, skin) for env in range(num_envs) for skin in range(skins.count)]
        known = prototype.mesh_bvh_id.numpy()[: mj_model.nmesh]
        ids = np.concatenate((known, np.array([mesh.id for mesh in self._meshes], dtype=np.uint64)))
        self._mesh_ids = wp.array(ids, dtype=wp.uint64, device=device)

    def data_ids(self) -> np.ndarray:
        """The mesh of each geom in each environment (num_envs, geoms)."""
        skins = self._skins
        ids = np.tile(skins.geoms.geom_dataid, (self.num_envs, 1))
        own = np.arange(self.num_envs * skins.count).reshape(self.num_envs, skins.count)
        ids[:, skins.mj_model.ngeom :] = skins.mj_model.nmesh + own
        return ids

    def install(self, context: mjw.RenderContext) -> None:
        """Make a context draw these skins."""
        self._skins.install(context)
        context.mesh_bvh_id, context.mesh_bounds_size = self._mesh_ids, self._bounds
        context.mesh_texcoord_offsets = self._texcoordadr

    def bend(self, bodies: Any, body_count: int, diverged: wp.array, geom_position: wp.array) -> None:
        """Bring the skins to where the bodies (`Vec3_Matrix33`) of all environments have them."""
        skins, device = self._skins, self._skins.device
        poses = [bodies.positions, bodies.orientations]
        wp.launch(
            _bend,
            dim=self._points.shape,
            inputs=[
                self._first_env,
                body_count,
                diverged,
                *poses,
                *skins.influences,
                skins.skin_of_vertex,
                skins.carrier,
            ],
            outputs=[self._bent],
            device=device,
        )
        self._half_extent.zero_()
        wp.launch(
            _finish,
            dim=self._points.shape,
            inputs=[self._bent, *skins.corners, skins.inflation, skins.skin_of_vertex],
            outputs=[self._points, self._normals, self._half_extent],
            device=device,
        )
        wp.launch(
            _place,
            dim=(self.num_envs, skins.count),
            inputs=[self._first_env, body_count, diverged, poses[0], skins.carrier, skins.mj_model.ngeom],
            outputs=[geom_position],
            device=device,
        )
        for mesh in self._meshes:
            mesh.refit()

    def _mesh(self, env: int, skin: int) -> wp.Mesh:
        skins = self._skins
        vertices = slice(int(skins.first_vertex[skin]), int(skins.first_vertex[skin + 1]))
        return wp.Mesh(
            points=self._points[env, vertices],
            indices=skins.triangles[skin],
            bvh_constructor="sah",
            bvh_leaf_size=2,
        )


def _geoms_with_skins(model: mujoco.MjModel) -> SimpleNamespace:
    count = model.nskin
    mesh = int(mujoco.mjtGeom.mjGEOM_MESH)
    return SimpleNamespace(
        ngeom=model.ngeom + count,
        geom_type=np.concatenate((model.geom_type, np.full(count, mesh))),
        geom_dataid=np.concatenate((model.geom_dataid, np.full(count, -1))),
        geom_matid=np.concatenate((model.geom_matid, model.skin_matid)),
        geom_group=np.concatenate((model.geom_group, model.skin_group)),
        geom_size=np.concatenate((model.geom_size, np.zeros((count, 3)))),
        geom_rgba=np.concatenate((model.geom_rgba, model.skin_rgba)),
    )
