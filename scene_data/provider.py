"""The one place where renderers and viewers read a scene, whatever engine moves it."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from scene_data.backend import SceneDataBackend, publication_device
from scene_data.conversion import allocate_missing, bind
from scene_data.env_times import EnvTimes
from scene_data.formats import SceneDataFormat
from scene_data.geometry import GeometryReader
from scene_data.publication import PublicationReader
from scene_data.streams import enqueueing, enqueues

if TYPE_CHECKING:
    from pxr import Usd

    from scene_data.contacts import Contacts

__all__ = ["SceneDataProvider"]

_ENV_PATH = re.compile(r"^/World/envs/env_(\d+)(?=/|$)")


class SceneDataProvider:
    """Lends the arrays that a backend publishes, and converts them where a reader wants another layout.

    A matching format and order is the native array itself. Anything else is converted once per timestamp and layout,
    and shared by all who ask. Shared arrays are read-only by contract.

    Attributes:
        backend: The engine's publications.
        usd_stage: USD stage of the scene, if whoever owns the provider has one. Nothing here needs it.
    """

    def __init__(self, backend: SceneDataBackend):
        self.usd_stage: Usd.Stage | None = None
        self._interactive_scene: Any = None
        self.rebind(backend)

    def rebind(self, backend: SceneDataBackend) -> None:
        """Read another backend from now on. What was cached for the one before is dropped; its mappings are void."""
        self.backend = backend
        self._transforms = PublicationReader()
        self._cameras = PublicationReader()
        self._lights = PublicationReader()
        self._geometry = GeometryReader()
        self._mappings: dict[tuple[tuple[str, ...], tuple[str | None, ...]], wp.array | None] = {}
        self._inferred_num_envs = 0

    # Poses

    @enqueues
    def get_transforms(
        self,
        output: Any,
        mapping: Any = None,
        allow_passthrough: bool = True,
        *,
        count: int | None = None,
        scales: wp.array | None = None,
    ) -> bool:
        """Read the transforms in the format of `output`.

        Args:
            output: Instance of a pose format of `SceneDataFormat`. Its arrays are replaced by shared ones, unless
                `allow_passthrough` is False. The array of a `FabricMatrix44` is bound by its owner and written.
            mapping: Output index of each native transform from `create_mapping`, int32 of shape (transform_count,),
                where -1 skips a transform; None for the native order. For `FabricMatrix44` a Fabric array with the
                native index of each output. Mappings and scales stay as they are: for another layout, pass others.
            allow_passthrough: Bind native or shared arrays, which are read-only by contract and whose slots hold the
                identity where nothing maps to them. False writes into the arrays of `output`, makes those that are
                missing, and leaves slots that nothing maps to as they are.
            count: Length of the output, if a mapping makes it differ from the native one.
            scales: Scales that multiply the axes, vec3f, for `TransposedMatrix44d` (one per output, shape (count,))
                and `FabricMatrix44` (one per native transform, shape (transform_count,)).

        Returns:
            True if `output` holds the transforms; False if none are published or if there is no such conversion.

        Raises:
            ValueError: If count, mapping, scales or the arrays of `output` do not fit.
        """
        # In this order: finding the arrays can itself find that they were swapped.
        source = self.backend.get_transforms(output._cls)
        timestamp = self.backend.transforms_timestamp
        return self._transforms.read(output, source, timestamp, mapping, allow_passthrough, count, scales)

    @enqueues
    def get_camera_poses(self, output: Any, allow_passthrough: bool = True) -> bool:
        """Read the poses of the model's cameras, at index `env * camera_count + camera`.

        Args:
            output: Instance of a pose format, as in `get_transforms`. A camera looks along its -Z with +Y up.
            allow_passthrough: As in `get_transforms`.

        Returns:
            True if `output` holds the poses; False if there are none or if there is no such conversion.
        """
        source = self.backend.get_camera_poses()
        return self._cameras.read(output, source, self.backend.cameras_timestamp, None, allow_passthrough)

    @enqueues
    def get_light_poses(self, output: Any, allow_passthrough: bool = True) -> bool:
        """Read positions and directions of the model's lights, at index `env * light_count + light`.

        Args:
            output: Instance of `Vec3_Direction` or of the native format.
            allow_passthrough: As in `get_transforms`.

        Returns:
            True if `output` holds them; False if there are none or if there is no such conversion.
        """
        source = self.backend.get_light_poses()
        return self._lights.read(output, source, self.backend.lights_timestamp, None, allow_passthrough)

    @enqueues
    def init_output(self, output: Any) -> None:
        """Give `output` the arrays that it lacks: `transform_count` identities, on the publication's device."""
        allocate_missing(output, self.transform_count, publication_device(self.backend.transforms))

    def create_mapping(self, paths: list[str | None]) -> wp.array | None:
        """Map the native order of the transforms to another one.

        Args:
            paths: The path wanted at each output index, or None for an index that no transform goes to.

        Returns:
            Output index of each native transform, or -1 for those that are not wanted, int32 of shape
            (transform_count,); the same object for equal lists. None if the order is the native one.

        Raises:
            KeyError: If no transform has one of the paths.
            ValueError: If a path is repeated, among the wanted or the published ones.
        """
        native = tuple(self.backend.transform_paths)
        wanted = tuple(paths)
        key = (native, wanted)
        if key not in self._mappings:
            mapping = None
            indices = _output_indices(native, wanted)
            if wanted != native:
                device = publication_device(self.backend.transforms)
                mapping = wp.array(indices, dtype=wp.int32, device=device)
            self._mappings[key] = mapping
        return self._mappings[key]

    # Geometry

    @enqueues
    def get_geometry_points(self, *, output: Any = None, offsets: dict[str, int] | None = None) -> Any:
        """Read points in the world frame.

        Args:
            output: Array to write into, vec3f of shape (n,) [m], also on another device than the publication; or
                `FabricPoints`, whose storage its owner binds; omit it for shared views. It is held weakly.
            offsets: Where in `output` the points of each path begin; for `FabricPoints` the row that they fill. Leave
                the dictionary as it is while it is in use. Omitted with `FabricPoints`, the engine's own storage is
                bound, where it has one.

        Returns:
            Views of the points by path, read-only by contract, or `output`.

        Raises:
            KeyError: If nothing publishes one of the paths.
            ValueError: If only one of the arguments is given, or if points do not fit into `output`.
        """
        borrows = output is not None and offsets is None and not isinstance(output, wp.array)
        wanted = SceneDataFormat.FabricPoints if borrows else SceneDataFormat.Points
        batches = self.backend.get_geometry_batches(wanted)
        timestamp = self.backend.geometry_timestamp
        if output is None and offsets is None:
            return self._geometry.views(batches, timestamp)
        if borrows and [source._cls for source, _ in batches] == [wanted]:
            bind(output, batches[0][0])
            return output
        if output is None or offsets is None:
            raise ValueError("A destination for points and its offsets by path are given together.")
        return self._geometry.write(output, offsets, batches, timestamp)

    # What only some engines tell, on the host

    def get_height_field(self, index: int) -> np.ndarray | None:
        """The present heights of a height field of the scene, float32 `(rows, columns)` [m].

        None where the engine does not let them change: they are those of the scene's description then.
        """
        read = getattr(self.backend, "get_height_field", None)
        return None if read is None else read(index)

    def get_contacts(self, env_ids: np.ndarray) -> "Contacts | None":
        """The contacts of these environments, int64 `(E,)`; None where the engine does not tell them."""
        read = getattr(self.backend, "get_contacts", None)
        return None if read is None else read(env_ids)

    # Cameras and environments, with or without a USD stage

    def get_camera_transforms(self) -> dict[str, Any] | None:
        """World poses of the cameras by camera and environment, on the host.

        With a USD stage these are its visible cameras, and where the engine publishes one of them, the engine's
        present pose counts. Without one they are the engine's.

        Returns:
            `order`: path of each camera with `env_%d` for its environment; `positions` [m] and `orientations`
            (quaternions (x, y, z, w) of a frame that looks along -Z with +Y up): for each camera a list over the
            environments, with None where one lacks it; and `num_envs`. None if there is neither stage nor camera.
        """
        if self.usd_stage is None:
            return self._published_camera_transforms()
        from scene_data.stage_cameras import stage_camera_transforms

        cameras = stage_camera_transforms(self.usd_stage)
        # A backend need not know of cameras for those of the stage to be found.
        published = self._published_camera_transforms() if hasattr(self.backend, "get_camera_poses") else None
        if cameras is not None and published is not None:
            _refresh_cameras(cameras, published)
        return cameras

    def _published_camera_transforms(self) -> dict[str, Any] | None:
        poses = SceneDataFormat.Vec3_Quat()
        if not self.get_camera_poses(poses):
            return None
        camera_paths = self.backend.camera_paths
        num_envs = max(self.num_envs, _count_envs(camera_paths), 1)
        positions: dict[str, list[Any]] = {}
        orientations: dict[str, list[Any]] = {}
        rows = zip(camera_paths, poses.positions.numpy(), poses.orientations.numpy(), strict=True)
        for path, position, orientation in rows:
            match = _ENV_PATH.match(path)
            camera = "/World/envs/env_%d" + path[match.end() :] if match else path
            env = int(match[1]) if match else 0
            positions.setdefault(camera, [None] * num_envs)[env] = position.tolist()
            orientations.setdefault(camera, [None] * num_envs)[env] = orientation.tolist()
        return {
            "order": list(positions),
            "positions": list(positions.values()),
            "orientations": list(orientations.values()),
            "num_envs": num_envs,
        }

    @property
    def num_envs(self) -> int:
        """Number of environments, if need be inferred from paths under `/World/envs/env_<i>`; 0 if unknown."""
        if count := self.backend.num_envs:
            return count
        # Zero is not remembered: paths and stage may come later.
        if not self._inferred_num_envs:
            self._inferred_num_envs = _count_envs(self.backend.transform_paths) or self._count_stage_envs()
        return self._inferred_num_envs

    def _count_stage_envs(self) -> int:
        if self.usd_stage is None:
            return 0
        from scene_data.stage_cameras import stage_num_envs

        return stage_num_envs(self.usd_stage)

    @property
    def transform_count(self) -> int:
        """Number of transforms, over all environments."""
        return self.backend.transform_count

    def get_usd_stage(self) -> "Usd.Stage | None":
        """USD stage of the scene, or None."""
        return self.usd_stage

    # The engine's device and clock, and reads that belong together

    @property
    def device(self) -> wp.Device:
        """Device of the publications."""
        return self.backend.device

    @property
    def simulation_time_ns(self) -> int:
        """Simulation time [ns]."""
        return self.backend.simulation_time_ns

    @property
    def env_time_ns(self) -> np.ndarray | None:
        """Simulation time of each environment [ns], int64 of shape (num_envs,), or None if they share one."""
        return self.backend.env_time_ns

    @enqueues
    def capture_env_times(self) -> EnvTimes:
        """The present `env_time_ns` for whoever asks later, without waiting for the device now."""
        return self.backend.capture_env_times()

    @contextmanager
    def consistent_read(self, is_reconciled: bool = False) -> Iterator[None]:
        """Context in which all reads of this thread see one state: the engine reconciles on entry, and not again.

        Args:
            is_reconciled: The thread that steps has just brought poses up to date, and waits for what is read here, so
                that the engine need not compare them again.
        """
        with ExitStack() as read:
            with enqueueing():
                read.enter_context(self.backend.consistent_read(is_reconciled))
            yield

    # The scene object of an environment, and the sensors that it owns

    def set_interactive_scene(self, scene: Any) -> None:
        """Attach the scene object whose `sensors` mapping is searched for cameras and contact sensors."""
        self._interactive_scene = scene

    def get_interactive_scene(self) -> Any:
        """Return the attached scene object, or None."""
        return self._interactive_scene

    def get_camera_sensors(self) -> dict[str, Any]:
        """Camera sensors of the attached scene by name."""
        return self._sensors("Camera")

    def get_contact_sensors(self) -> dict[str, Any]:
        """Contact sensors of the attached scene by name."""
        return self._sensors("ContactSensor", "BaseContactSensor")

    def _sensors(self, *class_names: str) -> dict[str, Any]:
        # By the names of their classes: the core imports no adapter, and no other framework.
        sensors = getattr(self._interactive_scene, "sensors", None) or {}
        return {
            name: sensor
            for name, sensor in sensors.items()
            if any(base.__name__ in class_names for base in type(sensor).__mro__)
        }


def _output_indices(native: tuple[str, ...], wanted: tuple[str | None, ...]) -> list[int]:
    outputs = _index_by_path(wanted, "wanted")
    if unknown := outputs.keys() - _index_by_path(native, "published").keys():
        raise KeyError(f"No transform has the path {sorted(unknown)[0]!r}; {len(unknown)} of the paths are unknown.")
    return [outputs.get(path, -1) for path in native]


def _index_by_path(paths: tuple[str | None, ...], kind: str) -> dict[str, int]:
    indices: dict[str, int] = {}
    for index, path in enumerate(paths):
        if path is None:
            continue
        if path in indices:
            raise ValueError(f"The {kind} paths are not unique: {path!r} is at {indices[path]} and {index}.")
        indices[path] = index
    return indices


def _count_envs(paths: list[str]) -> int:
    return max((int(match[1]) + 1 for path in paths if (match := _ENV_PATH.match(path))), default=0)


def _refresh_cameras(cameras: dict[str, Any], published: dict[str, Any]) -> None:
    """Replace the poses of those cameras that are published too, in the environments that have them."""
    rows = {camera: row for row, camera in enumerate(published["order"])}
    for key in ("positions", "orientations"):
        for camera, values in zip(cameras["order"], cameras[key], strict=True):
            present = published[key][rows[camera]] if camera in rows else []
            for env, value in enumerate(present[: len(values)]):
                if value is not None and values[env] is not None:
                    values[env] = value
