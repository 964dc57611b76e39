"""RenderCore: turns snapshots of a scene into leased, immutable frames for any number of consumers."""

from .backend import RenderBackend, RenderConfiguration
from .camera import (
    BodyMount,
    CameraDescriptor,
    CameraMount,
    Intrinsics,
    ModelCamera,
    Orthographic,
    Pinhole,
    VisualOptions,
    WorldPose,
)
from .capacity import (
    FrameCapacityError,
    compute_frame_byte_capacity,
    compute_frame_slot_capacity,
    compute_warm_slot_count,
)
from .core import RenderCore, RenderStats
from .demand import DemandScheduler, RenderPlan
from .frames import FrameBoundary
from .layout import FrameStamp, PlaneKind, PlaneLayout
from .leases import FrameLease
from .snapshots import RenderSnapshot, SnapshotPool, SnapshotResult
from .status import (
    ContextIntegrityError,
    FrameStatus,
    FrameStatusCode,
    RenderStatus,
    RenderStatusCode,
    StaleGenerationError,
    is_context_integrity_failure,
)
from .writers import FrameWriter

__all__ = [
    "BodyMount",
    "CameraDescriptor",
    "CameraMount",
    "ContextIntegrityError",
    "DemandScheduler",
    "FrameBoundary",
    "FrameCapacityError",
    "FrameLease",
    "FrameStamp",
    "FrameStatus",
    "FrameStatusCode",
    "FrameWriter",
    "Intrinsics",
    "ModelCamera",
    "Orthographic",
    "Pinhole",
    "PlaneKind",
    "PlaneLayout",
    "RenderBackend",
    "RenderConfiguration",
    "RenderCore",
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
