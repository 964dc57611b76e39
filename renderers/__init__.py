"""From a snapshot of the scene to leased camera frames: the render core, its backends, and the cameras that users read.

Render backends are imported when they are first named, since each needs a library of its own.
"""

from typing import TYPE_CHECKING

from scene_data.camera import CameraCfg
from scene_data.optional import lazy_names

from .render_core import (
    BodyMount,
    CameraDescriptor,
    CameraMount,
    ContextIntegrityError,
    DemandScheduler,
    FrameBoundary,
    FrameCapacityError,
    FrameLease,
    FrameStamp,
    FrameStatus,
    FrameStatusCode,
    FrameWriter,
    Intrinsics,
    ModelCamera,
    Orthographic,
    Pinhole,
    PlaneKind,
    PlaneLayout,
    RenderBackend,
    RenderConfiguration,
    RenderCore,
    RenderPlan,
    RenderSnapshot,
    RenderStats,
    RenderStatus,
    RenderStatusCode,
    SnapshotPool,
    SnapshotResult,
    StaleGenerationError,
    VisualOptions,
    WorldPose,
    compute_frame_byte_capacity,
    compute_frame_slot_capacity,
    compute_warm_slot_count,
    is_context_integrity_failure,
)

if TYPE_CHECKING:
    from .camera_group import CameraGroup
    from .camera_sensor import Camera
    from .disabled import DisabledRenderBackend
    from .isaaclab import RenderCoreRenderer, RenderCoreRendererCfg
    from .mujoco_gl import MujocoGlRenderBackend
    from .mujoco_warp import MujocoWarpRenderBackend
    from .newton import NewtonRenderBackend as NewtonRenderBackend
    from .ovrtx import OvrtxRenderBackend as OvrtxRenderBackend
    from .transports import BoundedPublicationQueue, CameraPublicationTransport, FrameConsumer

_LAZY = {
    "BoundedPublicationQueue": ".transports",
    "Camera": ".camera_sensor",
    "CameraGroup": ".camera_group",
    "CameraPublicationTransport": ".transports",
    "DisabledRenderBackend": ".disabled",
    "FrameConsumer": ".transports",
    "MujocoGlRenderBackend": ".mujoco_gl",
    "MujocoWarpRenderBackend": ".mujoco_warp",
    "NewtonRenderBackend": ".newton",
    "OvrtxRenderBackend": ".ovrtx",
    "RenderCoreRenderer": ".isaaclab",
    "RenderCoreRendererCfg": ".isaaclab",
}

# Without the names that need an optional library: `import *` works where it is missing.
__all__ = [
    "BodyMount",
    "BoundedPublicationQueue",
    "Camera",
    "CameraCfg",
    "CameraDescriptor",
    "CameraGroup",
    "CameraMount",
    "CameraPublicationTransport",
    "ContextIntegrityError",
    "DemandScheduler",
    "DisabledRenderBackend",
    "FrameBoundary",
    "FrameCapacityError",
    "FrameConsumer",
    "FrameLease",
    "FrameStamp",
    "FrameStatus",
    "FrameStatusCode",
    "FrameWriter",
    "Intrinsics",
    "ModelCamera",
    "MujocoGlRenderBackend",
    "MujocoWarpRenderBackend",
    "Orthographic",
    "Pinhole",
    "PlaneKind",
    "PlaneLayout",
    "RenderBackend",
    "RenderConfiguration",
    "RenderCore",
    "RenderCoreRenderer",
    "RenderCoreRendererCfg",
    "RenderPlan",
    "RenderSnapshot",
    "RenderStats",
    "RenderStatus",
    "RenderStatusCode",
    "SnapshotPool",
    "SnapshotResult",
    "StaleGenerationError",
    "VisualOptions",
    "WorldPose",
    "compute_frame_byte_capacity",
    "compute_frame_slot_capacity",
    "compute_warm_slot_count",
    "is_context_integrity_failure",
]


__getattr__, __dir__ = lazy_names(__name__, _LAZY, __all__)
