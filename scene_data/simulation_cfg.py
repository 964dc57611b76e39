"""What to simulate and who looks at it, and what came of it: a SimulationContext's configuration and statistics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from scene_data.camera import CameraCfg
from scene_data.errors import UnknownNameError
from scene_data.extra_geometry import DEFAULT_CAPACITY, Capacity, geometry_capacity
from scene_data.physics import PhysicsCfg
from scene_data.scene import SceneDescription

__all__ = ["RENDER_MODES", "CameraChoice", "SimulationCfg", "SimulationStats"]

RENDER_MODES = ("synchronous", "pipelined", "free_running")

CameraChoice = Sequence[CameraCfg] | Callable[[SceneDescription], Sequence[CameraCfg]]


@dataclass
class SimulationCfg:
    """What to simulate, and who looks at it.

    Attributes:
        physics: The engine's configuration, for example `scene_data.backends.MujocoPhysicsCfg(...)`.
        device: Warp device of the engine and of the frames.
        dt: Physics timestep [s]; None is the model's own.
        render_interval: Physics steps between two looks at who is due for a frame.
        render_mode: `"synchronous"`: reading `camera.data` captures if the state has moved since its frame.
            `"pipelined"`: a step starts a turn and waits for the one before, so frames lag by one turn.
            `"free_running"`: physics never waits; a turn that finds the core busy is dropped and counted.
        cameras: `scene_data.renderers.CameraCfg`s, or a function that chooses them once it is given the scene.
        visualizer_cfgs: Configurations of viewers.
        render_backend: Name of the render backend.
        render_threads: CPU threads that drawing may use; None is one for each core, but for one core that is left to
            the physics in the free-running mode.
        max_frame_bytes: Budget of the frame store; None is what the cameras need for `held_frames`.
        held_frames: Frames of each plane that readers and transports can hold beside the latest and the next one.
        extra_geometry_capacity: Room for extra geometry in each environment: a number for every primitive type, or
            numbers by type, `{"sphere": 100, "capsule": 20}`. What is not used costs nothing.
    """

    physics: PhysicsCfg
    device: str = "cpu"
    dt: float | None = None
    render_interval: int = 1
    render_mode: str = "synchronous"
    cameras: CameraChoice = ()
    visualizer_cfgs: Sequence[Any] = ()
    render_backend: str = "mujoco_warp"
    render_threads: int | None = None
    max_frame_bytes: int | None = None
    held_frames: int = 2
    extra_geometry_capacity: Capacity = DEFAULT_CAPACITY

    def __post_init__(self):
        if not isinstance(self.physics, PhysicsCfg):
            raise ValueError(f"physics must be a physics configuration such as MujocoPhysicsCfg, not {self.physics!r}")
        if self.dt is not None and not self.dt > 0.0:
            raise ValueError(f"dt must be above 0 s, got {self.dt}")
        if self.render_interval < 1:
            raise ValueError(f"render_interval must be at least 1 physics step, got {self.render_interval}")
        if self.render_threads is not None and self.render_threads < 1:
            raise ValueError(f"render_threads must be at least 1, got {self.render_threads}")
        if self.held_frames < 0:
            raise ValueError(f"held_frames must not be negative, got {self.held_frames}")
        if self.render_mode not in RENDER_MODES:
            raise UnknownNameError("render mode", self.render_mode, RENDER_MODES)
        geometry_capacity(self.extra_geometry_capacity)


class SimulationStats(TypedDict):
    """What a simulation has done.

    Attributes:
        steps: Physics steps since the last full reset.
        simulation_time_ns: Simulation time [ns].
        divergences: How often an environment diverged and was reset by its engine without a word, by environment.
            Engines that let a diverged environment be are not in it: see the blank environments of `render`.
        dropped_turns: Turns that found the core busy, in the free-running mode.
        dropped_snapshots: Turns that found both snapshot slots in use.
        render: `stats()` of the render core; None without cameras.
    """

    steps: int
    simulation_time_ns: int
    divergences: dict[int, int]
    dropped_turns: int
    dropped_snapshots: int
    render: Any
