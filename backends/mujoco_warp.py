"""`mujoco_warp`: many environments on one device, borrowed from the caller's own `Data`."""

from functools import cached_property
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import warp as wp
from numpy.typing import NDArray

from scene_data.backends.model_backend import ModelBackend
from scene_data.backends.mujoco_contacts import warp_contacts
from scene_data.backends.mujoco_warp_geometry import WarpGeometry
from scene_data.contacts import Contacts
from scene_data.env_times import EnvTimes
from scene_data.formats import SceneDataFormat
from scene_data.streams import WorkOrder, work_order_of

__all__ = ["MujocoWarpSceneDataBackend"]

# What poses are computed from, and what they are written to.
_WATCHED_ARRAYS = (
    *("qpos", "mocap_pos", "mocap_quat", "xpos", "xmat"),
    *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "flexvert_xpos"),
)

# What pictures show of a model besides poses. What the renderers' kernels are built for is not among it.
_LOOKS = (
    *("geom_rgba", "geom_size", "mat_rgba", "mat_texid", "mat_texrepeat", "mat_emission", "mat_specular"),
    *("mat_shininess", "light_active", "light_castshadow", "light_ambient", "light_diffuse", "light_specular"),
    *("light_cutoff", "light_exponent"),
)


class MujocoWarpSceneDataBackend(ModelBackend):
    """Publishes a `mujoco_warp.Data`, in single precision, without a copy.

    A write on a device cannot be seen without waiting for the device. So every read brings the poses up to the present
    state, unless the owner of the data promises to announce each write by `mark_transforms_written`; then only the
    first read after a write does. A write announced while a graph is captured will be repeated by replays that run no
    Python: from then on every read brings the poses up to date again.

    Reads bring the derived fields of `data` up to the present state and leave its trajectory as it is.

    Args:
        mj_model: The model that `model` was put on the device from.
        model: The model on the device. Its fields may differ between environments.
        data: The data of `model`.
        announces_writes: Whether every step, reset and write will be followed by `mark_transforms_written`.

    Raises:
        TypeError: An argument is of another type.
        ValueError: The arguments do not belong together.
    """

    def __init__(self, mj_model: mujoco.MjModel, model: mjw.Model, data: mjw.Data, announces_writes: bool = False):
        _check_arguments(mj_model, model, data)
        super().__init__(mj_model, num_envs=data.nworld)
        self.model = model
        self.data = data
        self.device = data.xpos.device
        self.native_transform_formats = (SceneDataFormat.Vec3_Matrix33,)
        self.native_geometry_formats = (
            SceneDataFormat.Points,
            SceneDataFormat.SkinnedPoints,
            SceneDataFormat.CapsuleEndpoints,
        )
        self.transforms_timestamp = 0
        self.cameras_timestamp = 0
        self.lights_timestamp = 0
        self.geometry_timestamp = 0
        self._announces_writes = announces_writes
        self._replayed = False
        self._written = True
        self._borrow_arrays()

    # Transforms

    @property
    def transforms(self) -> Any:
        """Poses of all bodies, `Vec3_Matrix33` at index `env * nbody + body`, borrowed from the data."""
        return self._transforms

    def get_transforms(self, output_format: Any) -> Any:
        """Publish the poses of the present state; see `SceneDataBackend.get_transforms`."""
        self.update_kinematics()
        return self._transforms

    def mark_transforms_written(self) -> None:
        """Announce a write to the data or to the model. Within a graph's capture, it also holds for every replay."""
        self._written = True
        self._replayed |= self.device.is_capturing
        self._advance_timestamps()

    # Cameras and lights

    def get_camera_poses(self) -> Any:
        """Publish the camera poses of the present state, `Vec3_Matrix33`, or None without cameras."""
        self.update_kinematics()
        return self._cameras

    def get_light_poses(self) -> Any:
        """Publish the light poses of the present state, `Vec3_Direction`, or None without lights."""
        self.update_kinematics()
        return self._lights

    # Looks

    def get_model_looks(self) -> dict[str, wp.array]:
        """Fields of the model that were given an entry for each environment, as `expand_model_fields` of mjlab does."""
        if self.num_envs == 1:
            return {}
        looks = {name: getattr(self.model, name) for name in _LOOKS}
        return {name: array for name, array in looks.items() if array.shape[0] == self.num_envs and array.size}

    # Geometry

    def get_geometry_batches(self, output_format: Any = SceneDataFormat.Points) -> list[tuple[Any, dict]]:
        """Publish what points follow from in the present state: flexes, skins, cables and tendons, in this order.

        Flex vertices are `Points` at index `env * nflexvert + vertex`, borrowed; skins are `SkinnedPoints`, cables
        `CapsuleEndpoints`, and spatial tendons `Points`. What the last three follow from is launched once per
        timestamp, and nothing before somebody asks.
        """
        self.update_kinematics()
        self._derived.refresh(self.model, self.data, self.geometry_timestamp)
        flexes = [(self._points, self._point_ranges)] if self._points is not None else []
        return flexes + self._derived.batches

    def mark_geometry_written(self) -> None:
        """Announce a write that moves flex vertices; the same as `mark_transforms_written`."""
        self.mark_transforms_written()

    def get_contacts(self, env_ids: NDArray[np.int64]) -> Contacts:
        """The contacts of these environments, as the last step left them; waits for the device."""
        return warp_contacts(self.model, self.data, env_ids)

    def _height_field_data(self) -> NDArray[np.float32]:
        return self.model.hfield_data.numpy()

    @cached_property
    def _derived(self) -> WarpGeometry:
        return WarpGeometry(self.describe_scene(), self.device)

    # Environments and time

    @property
    def env_time_ns(self) -> NDArray[np.int64]:
        """Simulation time of each environment [ns], `(N,)`, a copy. Waits for the device."""
        return _nanoseconds(self.data.time)

    def capture_env_times(self) -> EnvTimes:
        """Note the present `env_time_ns` for whoever asks later; only that waits for the device."""
        order, seconds = self._work_order, wp.clone(self.data.time)
        noted = order.new_event()
        order.complete(noted)

        def read() -> NDArray[np.int64]:
            # Whoever asks later may do so while another stream is the current one.
            with order.enqueueing():
                order.wait((noted,))
                return _nanoseconds(seconds)

        return EnvTimes(read)

    @cached_property
    def _work_order(self) -> WorkOrder:
        return work_order_of(self.device)

    # Never stale

    @property
    def kinematics_dirty(self) -> bool:
        """Whether poses may lag the state."""
        if self._is_reconciled:
            return False
        cached = self._announces_writes and not self._replayed
        return not cached or self._written or self.device.is_capturing or self._swapped()

    def update_kinematics(self) -> None:
        """Launch what brings body, geom, camera, light and flex poses up to the present state, where it may lag."""
        if not self.kinematics_dirty:
            return
        if self._swapped():
            self._borrow_arrays()
        with wp.ScopedDevice(self.device):
            mjw.kinematics(self.model, self.data)
            mjw.com_pos(self.model, self.data)
            mjw.camlight(self.model, self.data)
            mjw.flex(self.model, self.data)
        # What is only recorded into a graph has not happened yet.
        self._written = self.device.is_capturing
        self._advance_timestamps()

    def _advance_timestamps(self) -> None:
        self.transforms_timestamp += 1
        self.cameras_timestamp += 1
        self.lights_timestamp += 1
        self.geometry_timestamp += 1

    def _swapped(self) -> bool:
        # Objects, not addresses: the old array is kept, so its address cannot come back as another's.
        return any(getattr(self.data, name) is not array for name, array in self._watched.items())

    def _borrow_arrays(self) -> None:
        data = self.data
        self._watched = {name: getattr(data, name) for name in _WATCHED_ARRAYS}
        self._transforms = SceneDataFormat.Vec3_Matrix33()
        self._transforms.positions = data.xpos.flatten()
        self._transforms.orientations = data.xmat.flatten()
        self._cameras = self._lights = self._points = None
        if self.mj_model.ncam:
            self._cameras = SceneDataFormat.Vec3_Matrix33()
            self._cameras.positions = data.cam_xpos.flatten()
            self._cameras.orientations = data.cam_xmat.flatten()
        if self.mj_model.nlight:
            self._lights = SceneDataFormat.Vec3_Direction()
            self._lights.positions = data.light_xpos.flatten()
            self._lights.directions = data.light_xdir.flatten()
        if self.mj_model.nflexvert:
            self._points = SceneDataFormat.Points()
            self._points.points = data.flexvert_xpos.flatten()


def _nanoseconds(seconds: wp.array) -> NDArray[np.int64]:
    return np.rint(seconds.numpy().astype(np.float64) * 1e9).astype(np.int64)


def _check_arguments(mj_model: Any, model: Any, data: Any) -> None:
    expected = (("mj_model", mj_model, mujoco.MjModel), ("model", model, mjw.Model), ("data", data, mjw.Data))
    for name, value, kind in expected:
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} must be a {kind.__module__.split('.')[0]}.{kind.__name__}, got {type(value).__name__}"
            )
    sizes = (
        ("bodies", mj_model.nbody, model.nbody, data.xpos.shape[1]),
        ("coordinates", mj_model.nq, model.nq, data.qpos.shape[1]),
        ("cameras", mj_model.ncam, model.ncam, data.cam_xpos.shape[1]),
        ("lights", mj_model.nlight, model.nlight, data.light_xpos.shape[1]),
        ("flex vertices", mj_model.nflexvert, model.nflexvert, data.flexvert_xpos.shape[1]),
    )
    for what, *counts in sizes:
        if len(set(counts)) > 1:
            raise ValueError("mj_model, model and data differ in their {}: {}, {} and {}".format(what, *counts))
