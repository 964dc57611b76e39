"""The scene that viewers are measured with: robots of 30 bodies, each body with a mesh of its own."""

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg

__all__ = ["Crowd", "robot"]

_LIMBS = 4
_SEGMENTS = 7
_MESH_POINTS = 300


def robot() -> mujoco.MjModel:
    """A robot of 30 bodies: a pelvis, a head, and four limbs of seven segments, each body with a mesh of its own."""
    random = np.random.default_rng(0)
    meshes, names = [], []

    def mesh(radius: float, half: float) -> str:
        name = f"part_{len(names)}"
        names.append(name)
        points = random.normal(size=(_MESH_POINTS, 3))
        points *= (radius, radius, half) / np.linalg.norm(points, axis=1, keepdims=True)
        meshes.append(f'<mesh name="{name}" vertex="{" ".join(f"{value:.4f}" for value in points.reshape(-1))}"/>')
        red = random.uniform(0.3, 0.9)
        return f'<geom type="mesh" mesh="{name}" rgba="{red:.2f} .5 .6 1" contype="0" conaffinity="0"/>'

    def limb(index: int) -> str:
        text = ""
        for segment in reversed(range(_SEGMENTS)):
            name, axis = f"limb_{index}_{segment}", ("1 0 0", "0 1 0")[segment % 2]
            place = f"{0.2 * (1 - 2 * (index % 2))} {0.15 * (1 - 2 * (index // 2))} -.1" if segment == 0 else "0 0 -.16"
            text = (
                f'<body name="{name}" pos="{place}"><joint name="{name}" axis="{axis}" range="-60 60" damping="1"/>'
                f'{mesh(0.05, 0.08)}<geom type="capsule" size=".04 .04" group="3" density="500"/>{text}</body>'
            )
        return text

    limbs = "".join(limb(index) for index in range(_LIMBS))
    motors = "".join(
        f'<position joint="limb_{limb}_{segment}" kp="20"/>' for limb in range(_LIMBS) for segment in range(_SEGMENTS)
    )
    torso = (
        f'<body name="pelvis" pos="0 0 1.3"><freejoint/>{mesh(0.25, 0.15)}<geom type="box" size=".2 .15 .1" group="3"/>'
        f'{limbs}<body name="head" pos="0 0 .3"><joint name="neck" axis="0 0 1" damping="1"/>{mesh(0.1, 0.12)}'
        '<geom size=".1" group="3"/></body></body>'
    )
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco model="robot"><option timestep="0.005"/><asset>{"".join(meshes)}</asset><worldbody>'
        f'<geom type="plane" size="0 0 .1" rgba=".2 .25 .3 1"/><light pos="0 0 4"/>{torso}</worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )
    assert model.nbody == 31  # the world is one of them
    return model


class Crowd:
    """Robots that move, and what viewers read of them."""

    def __init__(self, model: mujoco.MjModel, num_envs: int, visualizer_cfgs: Sequence[Any] = ()):
        physics = MujocoPhysicsCfg(model, "mujoco_batch", num_envs)
        self.sim = SimulationContext(SimulationCfg(physics, visualizer_cfgs=tuple(visualizer_cfgs)))
        self.model, self.num_envs = model, num_envs
        self._random = np.random.default_rng(1)
        self._control = np.zeros((num_envs, model.nu))

    def step(self) -> None:
        if self.sim.simulation_time_ns % 100_000_000 == 0:
            self._control = self._random.uniform(-0.8, 0.8, self._control.shape)
        self.sim.physics.set_control(self._control)
        self.sim.step()
