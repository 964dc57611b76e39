"""ROS 2's own definitions of the messages that cameras send, as files have to carry them."""

from .wire import MessageType

__all__ = ["QUEUE_DEPTHS", "ROS2_DEFINITIONS", "ROS2_TYPES"]

_SEPARATOR = "=" * 80

_TIME = "int32 sec\nuint32 nanosec"
_HEADER = "builtin_interfaces/Time stamp\nstring frame_id"
_REGION_OF_INTEREST = "uint32 x_offset\nuint32 y_offset\nuint32 height\nuint32 width\nbool do_rectify"
_VECTOR3 = "float64 x\nfloat64 y\nfloat64 z"
_QUATERNION = "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1"
_TRANSFORM = "geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation"
_TRANSFORM_STAMPED = "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform"
_PIXELS = "string encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data"
_IMAGE = f"std_msgs/Header header\nuint32 height\nuint32 width\n{_PIXELS}"
_CAMERA_INFO = (
    "std_msgs/Header header\nuint32 height\nuint32 width\nstring distortion_model\nfloat64[] d\nfloat64[9] k\n"
    "float64[9] r\nfloat64[12] p\nuint32 binning_x\nuint32 binning_y\nsensor_msgs/RegionOfInterest roi"
)


def _definition(text: str, **parts: str) -> str:
    """A definition with those that it is made of; a part is named `package__Type`."""
    blocks = [f"MSG: {name.replace('__', '/')}\n{part}" for name, part in parts.items()]
    return f"\n{_SEPARATOR}\n".join((text, *blocks)) + "\n"


ROS2_TYPES = {
    MessageType.IMAGE: "sensor_msgs/msg/Image",
    MessageType.CAMERA_INFO: "sensor_msgs/msg/CameraInfo",
    MessageType.TRANSFORMS: "tf2_msgs/msg/TFMessage",
    MessageType.CLOCK: "rosgraph_msgs/msg/Clock",
}
"""Their names in ROS 2."""

QUEUE_DEPTHS = {
    MessageType.IMAGE: 2,
    MessageType.CAMERA_INFO: 2,
    MessageType.TRANSFORMS: 100,
    MessageType.CLOCK: 1,
}
"""How many a writer keeps for readers that are behind."""

ROS2_DEFINITIONS = {
    MessageType.IMAGE: _definition(_IMAGE, std_msgs__Header=_HEADER, builtin_interfaces__Time=_TIME),
    MessageType.CAMERA_INFO: _definition(
        _CAMERA_INFO,
        std_msgs__Header=_HEADER,
        builtin_interfaces__Time=_TIME,
        sensor_msgs__RegionOfInterest=_REGION_OF_INTEREST,
    ),
    MessageType.TRANSFORMS: _definition(
        "geometry_msgs/TransformStamped[] transforms",
        geometry_msgs__TransformStamped=_TRANSFORM_STAMPED,
        std_msgs__Header=_HEADER,
        builtin_interfaces__Time=_TIME,
        geometry_msgs__Transform=_TRANSFORM,
        geometry_msgs__Vector3=_VECTOR3,
        geometry_msgs__Quaternion=_QUATERNION,
    ),
    MessageType.CLOCK: _definition("builtin_interfaces/Time clock", builtin_interfaces__Time=_TIME),
}
"""Each with all that it is made of."""
