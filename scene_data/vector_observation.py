"""VectorObservation: the spaces of what an environment observes, and its reading."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import warp as wp

from scene_data.errors import UnknownNameError
from scene_data.optional import optional_libraries
from scene_data.simulation import SimulationContext

with optional_libraries("A vector environment"):
    from gymnasium.spaces import Box, Dict

__all__ = ["ARRAYS", "STATE", "VectorObservation", "of_kind", "on_host"]

ARRAYS = ("numpy", "torch")
STATE = "state"

_DISTANCES = ("depth", "distance_to_image_plane", "distance_to_camera")


class VectorObservation:
    """What all environments observe: images by `"<camera>/<data type>"`, and the task's `"state"`.

    As NumPy arrays, images are copied out of their frames and belong to the caller. As torch tensors they are the
    frames themselves, on the device: they must not be written to, and count as held for as long as they live. The state
    is always a float32 copy, in which 0 stands for what is not finite.

    Args:
        sim: The simulation, in the synchronous render mode where images are observed.
        state_size: Length of the task's state.
        keys: What to observe; None is all there is.
        arrays: `"numpy"` or `"torch"`.

    Attributes:
        space: The space of one environment's observation; its shapes and dtypes are those of the first frames.

    Raises:
        UnknownNameError: A key or `arrays` is not known.
        MissingDependencyError: torch is asked for and not installed.
        ValueError: `keys` is empty, or the simulation's images lag its state.
    """

    def __init__(self, sim: SimulationContext, state_size: int, keys: Sequence[str] | None, arrays: str):
        if arrays not in ARRAYS:
            raise UnknownNameError("kind of arrays", arrays, ARRAYS)
        cameras = sim.cameras.values()
        known = (*(f"{camera.name}/{data_type}" for camera in cameras for data_type in camera.cfg.data_types), STATE)
        keys = known if keys is None else tuple(keys)
        if not keys:
            raise ValueError(f"nothing is observed; there are {', '.join(known)}")
        for key in keys:
            if key not in known:
                raise UnknownNameError("observation", key, known)
        if set(keys) != {STATE} and sim.cfg.render_mode != "synchronous":
            mode = sim.cfg.render_mode
            raise ValueError(f"images would lag the state in render mode {mode!r}; observing them takes 'synchronous'")
        self._sim = sim
        self._sources = {key: key.rpartition("/") for key in keys}
        self._torch: Any = _import_torch() if arrays == "torch" else None
        self._device: Any = self._torch and wp.device_to_torch(wp.get_device(sim.cfg.device))
        first = self.read(np.zeros((sim.num_envs, state_size)))
        self.space = Dict({key: _space_of(key, on_host(values)[0]) for key, values in first.items()})

    def read(self, state: Any) -> dict[str, Any]:
        """What the environments observe now.

        Args:
            state: The task's state at present, shape (N, k).

        Returns:
            By key, arrays of shape (N, ...).
        """
        frames = {camera: self._sim.cameras[camera].data for camera, _, _ in self._sources.values() if camera}
        return {
            key: self._image(frames[camera], data_type) if camera else self._copy_of_state(state)
            for key, (camera, _, data_type) in self._sources.items()
        }

    def rows(self, observation: Mapping[str, Any], env: int) -> dict[str, Any]:
        """A copy of what one environment observed."""
        copy = self._torch.clone if self._torch else np.copy
        return {key: copy(values[env]) for key, values in observation.items()}

    def returned(self, values: np.ndarray) -> Any:
        """Values of the environments, shape (N,), as the kind of arrays that was asked for."""
        return self._torch.as_tensor(values, device=self._device) if self._torch else values

    def _image(self, frames: Any, data_type: str) -> Any:
        image = frames[data_type]
        return image if self._torch else on_host(image).copy()

    def _copy_of_state(self, state: Any) -> Any:
        if not self._torch:
            return np.nan_to_num(on_host(state).astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
        tensor = self._torch.as_tensor(state).to(self._device, self._torch.float32)
        return self._torch.nan_to_num(tensor, nan=0.0, posinf=0.0, neginf=0.0)


def on_host(values: Any) -> np.ndarray:
    """A NumPy array of an array or tensor, without a copy where it lies in host memory."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)


def of_kind(example: Any, values: Any) -> Any:
    """`values` as a tensor beside `example`, where that is one, and else as a NumPy array."""
    if not hasattr(example, "detach"):
        return on_host(values)
    return _import_torch().as_tensor(values, device=example.device)


def _space_of(key: str, example: np.ndarray) -> Box:
    low, high = -np.inf, np.inf
    if example.dtype.kind in "iu":
        low, high = np.iinfo(example.dtype).min, np.iinfo(example.dtype).max
    elif key.rpartition("/")[2] in _DISTANCES:
        low = 0.0
    return Box(low, high, example.shape, example.dtype.type)


def _import_torch() -> Any:
    with optional_libraries("Observing torch tensors"):
        import torch
    return torch
