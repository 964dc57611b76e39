"""Publishes an mjlab simulation."""

from typing import Any

from scene_data.backend import SceneDataBackend
from scene_data.registry import backends

__all__ = ["backend_of"]


def backend_of(simulation: Any, announces_writes: bool = False) -> SceneDataBackend:
    """Publish the environments of an mjlab simulation, without a copy.

    Args:
        simulation: An `mjlab.sim.Simulation`, or anything that has its `mj_model`, `wp_model` and `wp_data`. It goes on
            stepping itself, through its own CUDA graphs where it has them.
        announces_writes: Whether every step, reset and write will be followed by the backend's
            `mark_transforms_written`; without that promise, every read brings poses up to date.

    Returns:
        A `MujocoWarpSceneDataBackend`. Where environments show different meshes, its description has those of the
        simulation's `mj_model`.

    Raises:
        TypeError: `simulation` lacks one of them.
        MissingDependencyError: `mujoco_warp` is not installed.
    """
    missing = [name for name in ("mj_model", "wp_model", "wp_data") if not hasattr(simulation, name)]
    if missing:
        raise TypeError(f"{type(simulation).__name__} is no mjlab simulation: it has no {' and no '.join(missing)}")
    backend = backends.get("mujoco_warp")
    return backend(simulation.mj_model, simulation.wp_model, simulation.wp_data, announces_writes)
