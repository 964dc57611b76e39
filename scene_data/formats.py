"""The layouts in which scene data is published and asked for.

Every format is a Warp struct of arrays. `Format()` has no arrays yet (every field is None), and `instance._cls` is
the format itself. Lengths are metres, quaternions are unit and ordered (x, y, z, w), poses are in the world frame.
"""

import warp as wp

__all__ = ["SceneDataFormat"]


class SceneDataFormat:
    """Warp structs for poses (first), directions, and points."""

    @wp.struct
    class Vec3_Quat:
        """Positions and quaternions in separate arrays."""

        positions: wp.array(dtype=wp.vec3f) = None
        """Positions [m], shape (count,)."""
        orientations: wp.array(dtype=wp.quatf) = None
        """Unit quaternions (x, y, z, w), shape (count,)."""

    @wp.struct
    class Vec3_Matrix33:
        """Positions and rotation matrices in separate arrays."""

        positions: wp.array(dtype=wp.vec3f) = None
        """Positions [m], shape (count,)."""
        orientations: wp.array(dtype=wp.mat33f) = None
        """Rotation matrices whose columns are the body's axes, shape (count,)."""

    @wp.struct
    class Vec3d_Matrix33d:
        """Like `Vec3_Matrix33` in double precision: the arrays of MuJoCo's C engine, borrowed."""

        positions: wp.array(dtype=wp.vec3d) = None
        """Positions [m], shape (count,)."""
        orientations: wp.array(dtype=wp.mat33d) = None
        """Rotation matrices whose columns are the body's axes, shape (count,)."""

    @wp.struct
    class Transform:
        """Packed position and quaternion."""

        transforms: wp.array(dtype=wp.transformf) = None
        """Position [m] and unit quaternion (x, y, z, w), shape (count,)."""

    @wp.struct
    class Matrix44:
        """Homogeneous matrices for column vectors, with the translation in the last column."""

        matrices: wp.array(dtype=wp.mat44f) = None
        """Matrices [m], shape (count,)."""

    @wp.struct
    class TransposedMatrix44d:
        """Double-precision matrices for row vectors, as USD has them: the translation is in the last row."""

        matrices: wp.array(dtype=wp.mat44d) = None
        """Matrices [m], shape (count,)."""

    @wp.struct
    class FabricMatrix44:
        """`TransposedMatrix44d` in Fabric's own storage, which the owner of the destination binds."""

        matrices: wp.fabricarray(dtype=wp.mat44d) = None
        """Matrices [m], shape (count,)."""

    @wp.struct
    class Vec3_Direction:
        """Positions and unit directions, as lights have them."""

        positions: wp.array(dtype=wp.vec3f) = None
        """Positions [m], shape (count,)."""
        directions: wp.array(dtype=wp.vec3f) = None
        """Unit directions, shape (count,)."""

    @wp.struct
    class Vec3d_Direction:
        """`Vec3_Direction` in double precision."""

        positions: wp.array(dtype=wp.vec3d) = None
        """Positions [m], shape (count,)."""
        directions: wp.array(dtype=wp.vec3d) = None
        """Unit directions, shape (count,)."""

    @wp.struct
    class Points:
        """Points in the world: nodes, particles or vertices."""

        points: wp.array(dtype=wp.vec3f) = None
        """Positions [m], shape (point_count,)."""

    @wp.struct
    class WeightedPoints:
        """Vertices that are weighted sums of four published nodes each."""

        points: wp.array(dtype=wp.vec3f) = None
        """Positions of the nodes [m], shape (node_count,)."""
        indices: wp.array2d(dtype=wp.int32) = None
        """Nodes of each vertex, shape (vertex_count, 4)."""
        weights: wp.array2d(dtype=wp.float32) = None
        """Weights of these nodes, shape (vertex_count, 4); each row sums to 1."""

    @wp.struct
    class SkinnedPoints:
        """Vertices that follow bones, which in turn are fixed to bodies (linear blend skinning), in several copies.

        Vertex `v` of copy `c` is point `c * vertex_count + v`. An influence has the place that the vertex had in the
        bone's frame when it was bound; the body's pose takes it to the world, and the weighted sum is the vertex.
        """

        influence_offsets: wp.array(dtype=wp.int32) = None
        """Where the influences on each vertex begin in the next three, shape (vertex_count + 1,)."""
        bone_indices: wp.array(dtype=wp.int32) = None
        """Bone of each influence, shape (influence_count,)."""
        bone_weights: wp.array(dtype=wp.float32) = None
        """Weight of each influence, shape (influence_count,); those on a vertex sum to 1."""
        bone_points: wp.array(dtype=wp.vec3f) = None
        """The bind pose: where the vertex was in the frame of the bone [m], shape (influence_count,)."""
        bone_bodies: wp.array2d(dtype=wp.int32) = None
        """Index in `transforms` of the body of each bone in each copy, shape (copy_count, bone_count)."""
        transforms: wp.array(dtype=wp.transformf) = None
        """Poses of the bodies, shape (transform_count,)."""
        inflations: wp.array(dtype=wp.float32) = None
        """How far each vertex is moved along its normal [m], shape (vertex_count,); None where none is."""
        fan_offsets: wp.array(dtype=wp.int32) = None
        """With inflations: where the triangles at each vertex begin in the next one, shape (vertex_count + 1,)."""
        fan_vertices: wp.array(dtype=wp.vec2i) = None
        """With inflations: the other two vertices of such a triangle, in its order, shape (3 * triangle_count,)."""

    @wp.struct
    class CapsuleEndpoints:
        """Vertices of a polyline that runs along a chain of capsules, as cables are simulated."""

        transforms: wp.array(dtype=wp.transformf) = None
        """Poses of the bodies, shape (transform_count,)."""
        shape_body: wp.array(dtype=wp.int32) = None
        """Body of each capsule, shape (shape_count,)."""
        shape_transform: wp.array(dtype=wp.transformf) = None
        """Pose of each capsule on its body, shape (shape_count,)."""
        shape_scale: wp.array(dtype=wp.vec3f) = None
        """Scale of each capsule [m]: its second component is half the length, shape (shape_count,)."""
        endpoints: wp.array(dtype=wp.vec4i) = None
        """Two (capsule, sign of the end) pairs per vertex, which lies midway between them, shape (vertex_count,)."""

    @wp.struct
    class FabricPoints:
        """Points in Fabric's own storage, one array for each prim."""

        points: wp.fabricarrayarray(dtype=wp.vec3f) = None
        """Positions [m] by prim."""
