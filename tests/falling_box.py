"""A box of 0.2 m that falls from 1 m onto the ground, in each engine."""

from collections.abc import Callable
from dataclasses import dataclass

from scene_data import SceneDataBackend

HALF_SIZE = 0.1
START_HEIGHT = 1.0
GRAVITY = 9.81
TIMESTEP = 1 / 480

MJCF = f"""
<mujoco>
  <option timestep="{TIMESTEP}" gravity="0 0 -{GRAVITY}"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body name="box" pos="0 0 {START_HEIGHT}">
      <freejoint/>
      <geom type="box" size="{HALF_SIZE} {HALF_SIZE} {HALF_SIZE}" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""

USDA = f"""#usda 1.0
(
    defaultPrim = "World"
    metersPerUnit = 1
    upAxis = "Z"
)
def Xform "World"
{{
    def PhysicsScene "physics"
    {{
        vector3f physics:gravityDirection = (0, 0, -1)
        float physics:gravityMagnitude = {GRAVITY}
    }}
    def Plane "ground" (prepend apiSchemas = ["PhysicsCollisionAPI"])
    {{
        uniform token axis = "Z"
    }}
    def Scope "envs"
    {{
        def Xform "env_0"
        {{
            def Cube "box" (prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsCollisionAPI"])
            {{
                double size = {2 * HALF_SIZE}
                double3 xformOp:translate = (0, 0, {START_HEIGHT})
                uniform token[] xformOpOrder = ["xformOp:translate"]
            }}
        }}
        def Xform "env_1"
        {{
            double3 xformOp:translate = (5, 0, 0)
            uniform token[] xformOpOrder = ["xformOp:translate"]
            def Cube "box" (prepend apiSchemas = ["PhysicsRigidBodyAPI", "PhysicsCollisionAPI"])
            {{
                double size = {2 * HALF_SIZE}
                double3 xformOp:translate = (0, 0, {START_HEIGHT})
                uniform token[] xformOpOrder = ["xformOp:translate"]
            }}
        }}
    }}
}}
"""


@dataclass
class FallingBoxes:
    """An engine with the box in one environment or two, named `box` in each."""

    backend: SceneDataBackend
    step: Callable[[], None]
    close: Callable[[], None] = lambda: None


def in_mujoco() -> FallingBoxes:
    import mujoco

    from scene_data.backends import MujocoSceneDataBackend

    model = mujoco.MjModel.from_xml_string(MJCF)
    data = mujoco.MjData(model)
    return FallingBoxes(MujocoSceneDataBackend(model, data), lambda: mujoco.mj_step(model, data))


def in_mujoco_batch() -> FallingBoxes:
    import mujoco.batch

    from scene_data.backends import MujocoBatchSceneDataBackend

    batch = mujoco.batch.Batch(mujoco.MjModel.from_xml_string(MJCF), 2, 1)
    return FallingBoxes(MujocoBatchSceneDataBackend(batch), batch.step)


def in_mujoco_warp() -> FallingBoxes:
    import mujoco
    import mujoco_warp as mjw
    import warp as wp

    from scene_data.backends import MujocoWarpSceneDataBackend

    host_model = mujoco.MjModel.from_xml_string(MJCF)
    with wp.ScopedDevice("cpu"):
        model, data = mjw.put_model(host_model), mjw.make_data(host_model, nworld=2)
        mjw.reset_data(model, data)
    return FallingBoxes(MujocoWarpSceneDataBackend(host_model, model, data), lambda: mjw.step(model, data))


def in_newton() -> FallingBoxes:
    import newton

    from scene_data.backends import NewtonSceneDataBackend

    model = newton_model()
    states = [model.state(), model.state()]
    pipeline = newton.CollisionPipeline(model)
    contacts = pipeline.contacts()
    solver = newton.solvers.SolverXPBD(model)
    backend = NewtonSceneDataBackend(model, lambda: states[0])

    def step() -> None:
        states[0].clear_forces()
        pipeline.collide(states[0], contacts)
        solver.step(states[0], states[1], None, contacts, TIMESTEP)
        states.reverse()

    return FallingBoxes(backend, step)


def newton_model():
    """The box in two worlds, on ground that belongs to none."""
    import newton
    import warp as wp

    prototype = newton.ModelBuilder(gravity=(0, 0, -GRAVITY))
    box = prototype.add_body(xform=wp.transform((0, 0, START_HEIGHT), wp.quat_identity()), label="box")
    prototype.add_shape_box(box, hx=HALF_SIZE, hy=HALF_SIZE, hz=HALF_SIZE)
    builder = newton.ModelBuilder()
    builder.add_ground_plane()
    builder.replicate(prototype, 2)
    return builder.finalize(device="cpu")


def in_ovphysx() -> FallingBoxes:
    from physx_scene import attach

    from scene_data.backends import OvPhysxSceneDataBackend

    physx, close = attach(USDA)
    return FallingBoxes(OvPhysxSceneDataBackend(physx), lambda: physx.step_sync(TIMESTEP), close)


ENGINES = {
    "mujoco": in_mujoco,
    "mujoco_batch": in_mujoco_batch,
    "mujoco_warp": in_mujoco_warp,
    "newton": in_newton,
    "ovphysx": in_ovphysx,
}
