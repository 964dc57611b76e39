"""Kernels around MuJoCo Warp's ray tracer: place what it draws, aim its rays, and hand its pixels on."""

import mujoco
import warp as wp
from mujoco_warp._src.render_util import compute_ray

from scene_data.formats import SceneDataFormat

from .render_core.camera_tables import CameraPlaces, camera_pose
from .render_core.divergence import is_healthy, is_healthy_pose

wp.set_module_options({"enable_backward": False})

__all__ = [
    "bvh_roots",
    "find_diverged",
    "mesh_roots",
    "place_extra",
    "place_scene",
    "resolve_depth",
    "resolve_distance",
    "resolve_rgb",
    "resolve_rgba",
    "resolve_segmentation",
    "write_rays",
]

# MuJoCo's numbers of object types.
GEOM = wp.constant(int(mujoco.mjtObj.mjOBJ_GEOM))
SKIN = wp.constant(int(mujoco.mjtObj.mjOBJ_SKIN))


@wp.kernel
def find_diverged(
    first_env: int,
    body_count: int,
    camera_count: int,
    light_count: int,
    point_count: int,
    bodies: SceneDataFormat.Vec3_Matrix33,
    cameras: SceneDataFormat.Vec3_Matrix33,
    lights: SceneDataFormat.Vec3_Direction,
    points: wp.array[wp.vec3],
    diverged: wp.array[wp.int32],
):
    """Flag the environments that hold a value which is not finite."""
    env, i = wp.tid()
    source = first_env + env
    healthy = bool(True)  # noqa: UP018  (Warp takes a literal for a constant, which must not change)
    if i < body_count:
        j = source * body_count + i
        healthy = healthy and is_healthy_pose(bodies.positions[j], bodies.orientations[j])
    if i < camera_count:
        j = source * camera_count + i
        healthy = healthy and is_healthy_pose(cameras.positions[j], cameras.orientations[j])
    if i < light_count:
        j = source * light_count + i
        healthy = healthy and is_healthy(lights.positions[j]) and is_healthy(lights.directions[j])
    if i < point_count:
        healthy = healthy and is_healthy(points[source * point_count + i])
    if not healthy:
        diverged[env] = 1


@wp.kernel
def place_scene(
    first_env: int,
    body_count: int,
    model_camera_count: int,
    light_count: int,
    point_count: int,
    diverged: wp.array[wp.int32],
    bodies: SceneDataFormat.Vec3_Matrix33,
    model_cameras: SceneDataFormat.Vec3_Matrix33,
    model_lights: SceneDataFormat.Vec3_Direction,
    points: wp.array[wp.vec3],
    geom_body: wp.array[wp.int32],
    geom_local_position: wp.array[wp.vec3],
    geom_local_rotation: wp.array[wp.mat33],
    places: CameraPlaces,
    geom_position: wp.array2d[wp.vec3],
    geom_rotation: wp.array2d[wp.mat33],
    camera_position: wp.array2d[wp.vec3],
    camera_rotation: wp.array2d[wp.mat33],
    light_position: wp.array2d[wp.vec3],
    light_direction: wp.array2d[wp.vec3],
    flex_position: wp.array2d[wp.vec3],
):
    """World poses of geoms, cameras, lights and flex vertices of a shard's environments.

    A diverged environment is parked at the origin: the bounding volumes stay finite, and its pixels are blanked later.
    """
    env, i = wp.tid()
    source = first_env + env
    parked = diverged[env] != 0
    identity = wp.mat33(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

    if i < geom_body.shape[0]:  # there may be slots for extra geometry behind the model's geoms
        p = wp.vec3(0.0)
        r = identity
        if not parked:
            body = source * body_count + geom_body[i]
            p = bodies.positions[body] + bodies.orientations[body] @ geom_local_position[i]
            r = bodies.orientations[body] @ geom_local_rotation[i]
        geom_position[env, i] = p
        geom_rotation[env, i] = r

    if i < camera_position.shape[1]:
        p = wp.vec3(0.0)
        r = identity
        if not parked:
            p, r = camera_pose(source, i, body_count, model_camera_count, bodies, model_cameras, places)
        camera_position[env, i] = p
        camera_rotation[env, i] = r

    if i < light_count:
        p = wp.vec3(0.0)
        d = wp.vec3(0.0, 0.0, -1.0)
        if not parked:
            p = model_lights.positions[source * light_count + i]
            d = model_lights.directions[source * light_count + i]
        light_position[env, i] = p
        light_direction[env, i] = d

    if i < point_count:
        p = wp.vec3(0.0)
        if not parked:
            p = points[source * point_count + i]
        flex_position[env, i] = p


@wp.kernel
def place_extra(
    first_env: int,
    geom_count: int,
    type_count: int,
    parking: wp.vec3,
    slot_type: wp.array[wp.int32],
    slot_rank: wp.array[wp.int32],
    first: wp.array[wp.int32],
    position: wp.array[wp.vec3],
    quaternion: wp.array[wp.quat],
    size: wp.array[wp.vec3],
    rgba: wp.array[wp.vec4],
    ids: wp.array[wp.int32],
    diverged: wp.array[wp.int32],
    geom_position: wp.array2d[wp.vec3],
    geom_rotation: wp.array2d[wp.mat33],
    geom_size: wp.array2d[wp.vec3],
    geom_rgba: wp.array2d[wp.vec4],
    slot_id: wp.array2d[wp.int32],
):
    """Fill the slots behind the model's geoms with extra geometry, sorted as in `PackedGeometry`.

    The slots of a type take first what every environment shows, and then what this one does. A slot that is left over
    is a transparent point in the parking position. A primitive with a value that is not finite makes its environment a
    diverged one.
    """
    env, slot = wp.tid()
    kind = slot_type[slot]
    rank = slot_rank[slot]
    shared = first[kind + 1] - first[kind]
    k = first[kind] + rank
    if rank >= shared:
        block = (first_env + env + 1) * type_count + kind
        k = first[block] + rank - shared
        if k >= first[block + 1]:
            k = -1

    p = parking
    r = wp.mat33(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    s = wp.vec3(0.0)
    colour = wp.vec4(0.0)
    name = -1
    if k >= 0:
        rotation = wp.quat_to_matrix(quaternion[k])
        if is_healthy_pose(position[k], rotation) and is_healthy(size[k]):
            p = position[k]
            r = rotation
            s = size[k]
            colour = rgba[k]
            name = ids[k]
        else:
            diverged[env] = 1
    geom = geom_count + slot
    geom_position[env, geom] = p
    geom_rotation[env, geom] = r
    geom_size[env, geom] = s
    geom_rgba[env, geom] = colour
    slot_id[env, slot] = name


@wp.kernel
def write_rays(
    width: int,
    height: int,
    camera: int,
    projection: wp.array[int],
    fovy: wp.array2d[float],
    sensor_size: wp.array[wp.vec2],
    intrinsic: wp.array2d[wp.vec4],
    near: float,
    ray: wp.array[wp.vec3],
    ray_offset: wp.array[wp.vec3],
):
    """Rays of one camera, in its frame, through the pixel centres, row by row from the top left.

    They are those of environment 0, to the last bit as the tracer would compute them: when environments begin to
    differ, the pictures of those that nothing was set about stay what they were.
    """
    y, x = wp.tid()
    i = y * width + x
    direction, offset = compute_ray(
        projection[camera], fovy[0, camera], sensor_size[camera], intrinsic[0, camera], width, height, x, y, near
    )
    ray[i] = direction
    ray_offset[i] = offset


@wp.kernel
def bvh_roots(bvh: wp.uint64, roots: wp.array[wp.int32]):
    """Root of each environment's subtree in a grouped bounding volume hierarchy."""
    env = wp.tid()
    roots[env] = wp.bvh_get_group_root(bvh, env)


@wp.kernel
def mesh_roots(mesh: wp.uint64, flex: int, roots: wp.array2d[wp.int32]):
    """Root of each environment's subtree in a grouped mesh."""
    env = wp.tid()
    roots[env, flex] = wp.mesh_get_group_root(mesh, env)


# The tracer's images and the frames are (environment, pixel): some rows, from the top down, in all of a shard's
# environments. Where their pixels are of one size, image and frame are the same memory. Each thread takes every
# `lanes`-th pixel: on CUDA there is one per pixel, on the CPU one per environment, where threads cost more than pixels.


@wp.kernel
def resolve_rgb(
    packed: wp.array2d[wp.uint32],
    diverged: wp.array[wp.int32],
    lanes: int,
    background: wp.vec3ub,
    frame: wp.array2d[wp.vec3ub],
):
    """Unpack ARGB words; pixels with alpha 0 saw nothing and show the background."""
    env, lane = wp.tid()
    is_blank = diverged[env] != 0
    pixels = frame.shape[1]
    for i in range(lane, pixels, lanes):
        word = packed[env, i]
        colour = background
        if not is_blank and (word >> wp.uint32(24)) != wp.uint32(0):
            colour = wp.vec3ub(wp.uint8(word >> wp.uint32(16)), wp.uint8(word >> wp.uint32(8)), wp.uint8(word))
        frame[env, i] = colour


@wp.kernel
def resolve_rgba(
    packed: wp.array2d[wp.uint32],
    diverged: wp.array[wp.int32],
    lanes: int,
    background: wp.vec3ub,
    frame: wp.array2d[wp.uint32],
):
    """Turn ARGB words into RGBA bytes; pixels that saw nothing show the background with alpha 0."""
    env, lane = wp.tid()
    is_blank = diverged[env] != 0
    pixels = frame.shape[1]
    nothing = (
        wp.uint32(background[0])
        | (wp.uint32(background[1]) << wp.uint32(8))
        | (wp.uint32(background[2]) << wp.uint32(16))
    )
    for i in range(lane, pixels, lanes):
        word = packed[env, i]
        colour = nothing
        if not is_blank and (word >> wp.uint32(24)) != wp.uint32(0):
            red = (word >> wp.uint32(16)) & wp.uint32(0xFF)
            blue = (word & wp.uint32(0xFF)) << wp.uint32(16)
            colour = wp.uint32(0xFF000000) | blue | (word & wp.uint32(0xFF00)) | red
        frame[env, i] = colour


@wp.kernel
def resolve_depth(
    depth: wp.array2d[float],
    diverged: wp.array[wp.int32],
    lanes: int,
    frame: wp.array2d[float],
):
    """Distance along the optical axis [m]; the tracer's 0 is a miss and becomes infinite."""
    env, lane = wp.tid()
    is_blank = diverged[env] != 0
    pixels = frame.shape[1]
    for i in range(lane, pixels, lanes):
        z = depth[env, i]
        if is_blank or z <= 0.0:
            z = wp.inf
        frame[env, i] = z


@wp.kernel
def resolve_distance(
    depth: wp.array2d[float],
    diverged: wp.array[wp.int32],
    lanes: int,
    first_row: int,
    camera: int,
    width: int,
    height: int,
    intrinsic: wp.array2d[wp.vec4],
    orthographic_pixel: float,
    frame: wp.array2d[float],
):
    """Euclidean distance from the camera's position [m]; misses are infinite.

    The frame begins at `first_row` of the camera's image. `intrinsic` is (fx, fy, width / 2 - cx, height / 2 - cy) in
    pixels. Where `orthographic_pixel`, the edge length of a pixel [m], is above 0, rays are parallel instead.
    """
    env, lane = wp.tid()
    is_blank = diverged[env] != 0
    pixels = frame.shape[1]
    for i in range(lane, pixels, lanes):
        z = depth[env, i]
        distance = float(wp.inf)
        if not is_blank and z > 0.0:
            u = float(i % width) + 0.5 - 0.5 * float(width)
            v = float(first_row + i // width) + 0.5 - 0.5 * float(height)
            k = intrinsic[env, camera]
            hit = wp.vec3((u + k[2]) / k[0], (v + k[3]) / k[1], 1.0) * z
            if orthographic_pixel > 0.0:
                hit = wp.vec3(u * orthographic_pixel, v * orthographic_pixel, z)
            distance = wp.length(hit)
        frame[env, i] = distance


@wp.kernel
def resolve_segmentation(
    objects: wp.array2d[wp.vec2i],
    diverged: wp.array[wp.int32],
    lanes: int,
    geom_count: int,
    skin_count: int,
    slot_id: wp.array2d[wp.int32],
    frame: wp.array2d[wp.vec2i],
):
    """Pairs (object id, object type), (-1, -1) where nothing was hit.

    Behind the model's geoms come its skins, and extra geometry, which has ids of its own and type 0.
    """
    env, lane = wp.tid()
    is_blank = diverged[env] != 0
    pixels = frame.shape[1]
    for i in range(lane, pixels, lanes):
        hit = objects[env, i]
        behind = hit[0] - geom_count
        if hit[1] == GEOM and behind >= 0:
            hit = wp.vec2i(behind, SKIN)
            if behind >= skin_count:
                hit = wp.vec2i(slot_id[env, behind - skin_count], 0)
        if is_blank:
            hit = wp.vec2i(-1, -1)
        frame[env, i] = hit
