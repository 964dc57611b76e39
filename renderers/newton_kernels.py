"""Kernels around Newton's ray tracer: place what it draws, aim its cameras, and hand its pixels on."""

import warp as wp

from scene_data.formats import SceneDataFormat

from .render_core.camera_tables import CameraPlaces, camera_pose
from .render_core.divergence import is_healthy, is_healthy_pose

wp.set_module_options({"enable_backward": False})

__all__ = [
    "aim_camera",
    "place_bodies",
    "place_points",
    "resolve_colours",
    "resolve_depth",
    "resolve_depth_by_fours",
    "resolve_distance",
    "resolve_objects",
    "resolve_rgba",
    "resolve_vectors",
    "write_rays",
]

OPAQUE = wp.constant(wp.uint32(0xFF000000))

# Newton gives up at the nearest triangle where that is seen from behind, so no two may lie in one place [m].
BACK_GAP = wp.constant(1e-4)


# An environment that holds a value which is not finite is flagged where that value is met, and blanked in the end; what
# would spoil the boxes of the tracer is replaced.


@wp.kernel
def place_bodies(
    positions: wp.array[wp.vec3],
    rotations: wp.array[wp.mat33],
    body_q: wp.array[wp.transform],
    diverged: wp.array[wp.int32],
):
    """Poses of the bodies."""
    i = wp.tid()
    pose = wp.transform_identity(dtype=float)
    if is_healthy_pose(positions[i], rotations[i]):
        pose = wp.transform(positions[i], wp.normalize(wp.quat_from_matrix(rotations[i])))
    else:
        diverged[i / (body_q.shape[0] / diverged.shape[0])] = 1
    body_q[i] = pose


@wp.func
def _point(points: wp.array[wp.vec3], i: int) -> wp.vec3:
    point = points[i]
    if not is_healthy(point):
        point = wp.vec3(0.0)
    return point


@wp.kernel
def place_points(
    points: wp.array[wp.vec3],
    fronts: wp.array[wp.vec3i],
    particle_q: wp.array[wp.vec3],
    diverged: wp.array[wp.int32],
):
    """Positions of the points, and of what backs their triangles, a hair behind them."""
    env, i = wp.tid()
    count = points.shape[0] / diverged.shape[0]
    first = env * count
    particle = env * (count + 3 * fronts.shape[0])
    if i < count:
        if not is_healthy(points[first + i]):
            diverged[env] = 1
        particle_q[particle + i] = _point(points, first + i)
    else:
        front = fronts[i - count]
        a = _point(points, first + front[0])
        b = _point(points, first + front[1])
        c = _point(points, first + front[2])
        behind = -BACK_GAP * wp.normalize(wp.cross(b - a, c - a))
        particle += count + 3 * (i - count)
        particle_q[particle] = c + behind
        particle_q[particle + 1] = b + behind
        particle_q[particle + 2] = a + behind


@wp.kernel
def aim_camera(
    camera: int,
    body_count: int,
    model_camera_count: int,
    bodies: SceneDataFormat.Vec3_Matrix33,
    model_cameras: SceneDataFormat.Vec3_Matrix33,
    places: CameraPlaces,
    views: wp.array[wp.transform],
    diverged: wp.array[wp.int32],
):
    """Poses of one camera in all environments."""
    env = wp.tid()
    p, r = camera_pose(env, camera, body_count, model_camera_count, bodies, model_cameras, places)
    pose = wp.transform_identity(dtype=float)
    if is_healthy_pose(p, r):
        pose = wp.transform(p, wp.normalize(wp.quat_from_matrix(r)))
    else:
        diverged[env] = 1
    views[env] = pose


@wp.kernel
def write_rays(pinhole: wp.vec4, is_orthographic: bool, rays: wp.array4d[wp.vec3]):
    """Rays of one camera, in its frame, through the pixel centres: origin and unit direction of each.

    `pinhole` is (fx, fy, cx, cy) in pixels; of an orthographic camera fx and fy are pixels per metre.
    """
    y, x = wp.tid()
    right = (float(x) + 0.5 - pinhole[2]) / pinhole[0]
    up = (pinhole[3] - float(y) - 0.5) / pinhole[1]
    if is_orthographic:
        rays[y, x, 0, 0] = wp.vec3(right, up, 0.0)
        rays[y, x, 0, 1] = wp.vec3(0.0, 0.0, -1.0)
    else:
        rays[y, x, 0, 0] = wp.vec3(0.0)
        rays[y, x, 0, 1] = wp.normalize(wp.vec3(right, up, -1.0))


# Images and frames are (environment, pixel): some rows of some environments. Each thread takes every `lanes`-th pixel
# of an environment: on CUDA there is one per pixel, on the CPU one per environment, where threads cost more than
# pixels. What is not hit has depth 0.


@wp.func
def _is_hit(depth: float, far: float, diverged: int) -> bool:
    return diverged == 0 and depth > 0.0 and depth <= far


@wp.kernel
def resolve_depth(
    depth: wp.array2d[float], far: float, diverged: wp.array[wp.int32], lanes: int, frame: wp.array2d[float]
):
    """Distance along the optical axis [m]; infinite for a miss."""
    env, lane = wp.tid()
    for i in range(lane, frame.shape[1], lanes):
        z = depth[env, i]
        if not _is_hit(z, far, diverged[env]):
            z = wp.inf
        frame[env, i] = z


@wp.kernel
def resolve_depth_by_fours(
    depth: wp.array2d[wp.vec4], far: float, diverged: wp.array[wp.int32], lanes: int, frame: wp.array2d[wp.vec4]
):
    """As `resolve_depth`, four pixels at a time, in half the time."""
    env, lane = wp.tid()
    for i in range(lane, frame.shape[1], lanes):
        z = depth[env, i]
        for k in range(4):
            if not _is_hit(z[k], far, diverged[env]):
                z[k] = wp.inf
        frame[env, i] = z


@wp.kernel
def resolve_distance(
    depth: wp.array2d[float],
    far: float,
    diverged: wp.array[wp.int32],
    lanes: int,
    first_row: int,
    intrinsics: wp.array2d[wp.vec4],
    camera: int,
    is_orthographic: bool,
    width: int,
    height: int,
    frame: wp.array2d[float],
):
    """Euclidean distance from the camera's position [m]; infinite for a miss.

    The frame begins at `first_row` of the image. `intrinsics` are those of `CameraTables`: (fx, fy, width / 2 - cx,
    height / 2 - cy) in pixels.
    """
    env, lane = wp.tid()
    intrinsic = intrinsics[env, camera]
    for i in range(lane, frame.shape[1], lanes):
        z = depth[env, i]
        distance = float(wp.inf)
        if _is_hit(z, far, diverged[env]):
            right = (float(i % width) + 0.5 - 0.5 * float(width) + intrinsic[2]) / intrinsic[0]
            down = (float(first_row + i / width) + 0.5 - 0.5 * float(height) + intrinsic[3]) / intrinsic[1]
            if is_orthographic:
                distance = wp.length(wp.vec3(right, down, z))
            else:
                distance = wp.length(wp.vec3(right * z, down * z, z))
        frame[env, i] = distance


@wp.kernel
def resolve_colours(
    packed: wp.array2d[wp.uint32],
    depth: wp.array2d[float],
    far: float,
    diverged: wp.array[wp.int32],
    lanes: int,
    background: wp.vec3ub,
    frame: wp.array2d[wp.vec3ub],
):
    """Unpack words whose bytes in memory are red, green, blue, alpha."""
    env, lane = wp.tid()
    for i in range(lane, frame.shape[1], lanes):
        colour = background
        if _is_hit(depth[env, i], far, diverged[env]):
            word = packed[env, i]
            colour = wp.vec3ub(wp.uint8(word), wp.uint8(word >> wp.uint32(8)), wp.uint8(word >> wp.uint32(16)))
        frame[env, i] = colour


@wp.kernel
def resolve_rgba(
    packed: wp.array2d[wp.uint32],
    depth: wp.array2d[float],
    far: float,
    diverged: wp.array[wp.int32],
    lanes: int,
    background: wp.uint32,
    frame: wp.array2d[wp.uint32],
):
    """Colours whose alpha is 255 where something was hit, and 0 on the background."""
    env, lane = wp.tid()
    for i in range(lane, frame.shape[1], lanes):
        colour = background
        if _is_hit(depth[env, i], far, diverged[env]):
            colour = packed[env, i] | OPAQUE
        frame[env, i] = colour


@wp.kernel
def resolve_vectors(
    vectors: wp.array2d[wp.vec3],
    depth: wp.array2d[float],
    far: float,
    diverged: wp.array[wp.int32],
    lanes: int,
    background: wp.vec3,
    frame: wp.array2d[wp.vec3],
):
    """Normals, or linear colours."""
    env, lane = wp.tid()
    for i in range(lane, frame.shape[1], lanes):
        v = background
        if _is_hit(depth[env, i], far, diverged[env]):
            v = vectors[env, i]
        frame[env, i] = v


@wp.kernel
def resolve_objects(
    shapes: wp.array2d[wp.uint32],
    depth: wp.array2d[float],
    far: float,
    diverged: wp.array[wp.int32],
    lanes: int,
    shape_object: wp.array[wp.int32],
    shape_type: int,
    flex: wp.vec2i,
    frame: wp.array2d[wp.vec2i],
):
    """Pairs (object id, object type), (-1, -1) for a miss; all that is not a shape is `flex`."""
    env, lane = wp.tid()
    for i in range(lane, frame.shape[1], lanes):
        hit = wp.vec2i(-1, -1)
        if _is_hit(depth[env, i], far, diverged[env]):
            shape = shapes[env, i]
            hit = flex
            if shape < wp.uint32(shape_object.shape[0]):
                hit = wp.vec2i(shape_object[int(shape)], shape_type)
        frame[env, i] = hit
