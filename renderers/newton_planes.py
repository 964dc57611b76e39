"""The planes of a frame made out of what Newton's sensor draws: which of its outputs, and by which kernel."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import warp as wp

from . import newton_kernels as kernels
from .newton_stage import GEOM, NewtonStage
from .newton_views import Piece, View
from .render_core.layout import PlaneKind

__all__ = ["Images", "Source", "keep_resolve", "sources_of"]


@dataclass(frozen=True)
class Source:
    """Where a plane comes from: the sensor's output and the type of its pixels."""

    output: str
    dtype: Any


Images = Mapping[Source, wp.array]
"""What the sensor draws, by where it is needed."""

_DEPTH = Source("forward_depth_image", wp.float32)
_SOURCES = {
    PlaneKind.RGB: Source("color_image", wp.uint32),
    PlaneKind.RGBA: Source("color_image", wp.uint32),
    PlaneKind.ALBEDO: Source("albedo_image", wp.uint32),
    PlaneKind.RGB_HDR: Source("hdr_color_image", wp.vec3f),
    PlaneKind.NORMALS: Source("normal_image", wp.vec3f),
    PlaneKind.SEGMENTATION: Source("shape_index_image", wp.uint32),
    PlaneKind.DEPTH: _DEPTH,
    PlaneKind.DISTANCE_TO_CAMERA: _DEPTH,
}

_PIXEL = {
    PlaneKind.RGB: wp.vec3ub,
    PlaneKind.RGBA: wp.uint32,
    PlaneKind.ALBEDO: wp.vec3ub,
    PlaneKind.RGB_HDR: wp.vec3,
    PlaneKind.NORMALS: wp.vec3,
    PlaneKind.SEGMENTATION: wp.vec2i,
    PlaneKind.DEPTH: wp.float32,
    PlaneKind.DISTANCE_TO_CAMERA: wp.float32,
}


def sources_of(planes: Iterable[PlaneKind]) -> frozenset[Source]:
    """What the sensor has to draw for these planes."""
    return frozenset({_DEPTH, *(_SOURCES[plane] for plane in planes)})


def keep_resolve(
    view: View, stage: NewtonStage, far: float, plane: PlaneKind, piece: Piece, images: Images, frame: wp.array
) -> wp.Launch:
    """What writes a plane of a piece by our conventions, as a launch that can be made again and again.

    Args:
        view: The camera.
        stage: What it looks at.
        far: Where the background begins [m].
        plane: The plane.
        piece: The piece.
        images: What the sensor draws it into, as (environment, row, column).
        frame: The plane of all images (N, H, W, C).
    """
    camera, device = view.camera, frame.device
    background = [round(255 * channel) for channel in camera.options.background]
    drawn, depth = (_flat(images[source]) for source in (_SOURCES[plane], _DEPTH))
    part = _by_pixel(plane, frame)[piece.tile.envs, piece.pixels]
    is_by_fours = plane is PlaneKind.DEPTH and camera.width % 4 == 0
    if is_by_fours:
        depth, part = _by_fours(depth), _by_fours(part)
    lanes = 1 if device.is_cpu else part.shape[1]
    common = [depth, far, piece.diverged, lanes]
    match plane:
        case PlaneKind.DEPTH:
            kernel = kernels.resolve_depth_by_fours if is_by_fours else kernels.resolve_depth
            inputs = common
        case PlaneKind.DISTANCE_TO_CAMERA:
            lens = piece.intrinsic, view.index, view.is_orthographic, camera.width, camera.height
            kernel, inputs = kernels.resolve_distance, [*common, piece.tile.rows.start, *lens]
        case PlaneKind.RGB:
            kernel, inputs = kernels.resolve_colours, [drawn, *common, wp.vec3ub(*background)]
        case PlaneKind.ALBEDO:
            kernel, inputs = kernels.resolve_colours, [drawn, *common, wp.vec3ub()]
        case PlaneKind.RGBA:
            red, green, blue = background
            kernel, inputs = kernels.resolve_rgba, [drawn, *common, red | green << 8 | blue << 16]
        case PlaneKind.NORMALS:
            kernel, inputs = kernels.resolve_vectors, [drawn, *common, wp.vec3()]
        case PlaneKind.RGB_HDR:
            kernel, inputs = kernels.resolve_vectors, [drawn, *common, wp.vec3(*camera.options.background)]
        case PlaneKind.SEGMENTATION:
            kernel, inputs = kernels.resolve_objects, [drawn, *common, stage.shape_object, GEOM, stage.flex]
        case _:
            raise ValueError(f"Newton's camera makes no {plane.value!r}")
    return wp.launch(kernel, (part.shape[0], lanes), inputs, [part], device=device, record_cmd=True)


def _flat(image: wp.array) -> wp.array:
    """The same memory as (environment, pixel)."""
    return image.reshape((image.shape[0], image.shape[1] * image.shape[2]))


def _by_pixel(plane: PlaneKind, frame: wp.array) -> wp.array:
    """The same memory as (environment, pixel) in the type that the plane is written in."""
    shape = frame.shape[0], frame.shape[1] * frame.shape[2]
    return wp.array(ptr=frame.ptr, dtype=_PIXEL[plane], shape=shape, device=frame.device)


def _by_fours(depth: wp.array) -> wp.array:
    """The same memory as (environment, four pixels)."""
    rows, count = depth.shape
    strides = (depth.strides[0], 4 * depth.strides[1])
    return wp.array(ptr=depth.ptr, dtype=wp.vec4, shape=(rows, count // 4), strides=strides, device=depth.device)
