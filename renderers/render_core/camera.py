"""What a camera of a render core is: an id, an image layout, and where it sits, how it projects, what it draws."""

from dataclasses import dataclass, field

from scene_data.camera import (
    BodyMount,
    CameraMount,
    Intrinsics,
    ModelCamera,
    Orthographic,
    Pinhole,
    VisualOptions,
    WorldPose,
)

from .layout import PlaneKind, PlaneLayout

__all__ = [
    "BodyMount",
    "CameraDescriptor",
    "CameraMount",
    "Intrinsics",
    "ModelCamera",
    "Orthographic",
    "Pinhole",
    "VisualOptions",
    "WorldPose",
]


@dataclass(frozen=True)
class CameraDescriptor:
    """One camera of a render core.

    Attributes:
        id: Identifies the camera in its core; 0 is reserved for "any camera".
        name: Name for people and topics; with no `mount` it names a camera of the model.
        width: Image width [pixels].
        height: Image height [pixels].
        planes: The planes that it can deliver, in the order in which they are rendered.
        num_envs: Environments in one frame.
        mount: Where it sits; None is the model's camera called `name`.
        intrinsics: How it projects, in all environments or in each; None is the model camera's own projection, or 45
            degrees of vertical field of view for a camera that is not the model's.
        options: What it draws.

    Raises:
        ValueError: id 0, a size below 1, or no, repeated or unknown planes.
    """

    id: int
    name: str
    width: int
    height: int
    planes: tuple[PlaneKind, ...]
    num_envs: int = 1
    mount: CameraMount | None = None
    intrinsics: Intrinsics | None = None
    options: VisualOptions = field(default_factory=VisualOptions)

    def __post_init__(self):
        object.__setattr__(self, "planes", tuple(PlaneKind(plane) for plane in self.planes))
        if self.id < 1:
            raise ValueError(f"camera {self.name!r} has id {self.id}: ids start at 1, and 0 means any camera")
        for name in ("width", "height", "num_envs"):
            if getattr(self, name) < 1:
                raise ValueError(f"camera {self.name!r} has {name}={getattr(self, name)}, which must be at least 1")
        if not self.planes:
            raise ValueError(f"camera {self.name!r} has no planes")
        if len(set(self.planes)) < len(self.planes):
            raise ValueError(f"camera {self.name!r} names a plane twice: {[plane.value for plane in self.planes]}")

    def layout(self, plane: PlaneKind) -> PlaneLayout:
        """Layout of one of its planes.

        Raises:
            ValueError: The camera does not have this plane.
        """
        if plane not in self.planes:
            raise ValueError(f"camera {self.name!r} has no plane {PlaneKind(plane).value!r}")
        return PlaneLayout.of(plane, self.width, self.height, self.num_envs)
