"""Small MuJoCo models that the tests of the backends share."""

import mujoco

ROBOT = """
<mujoco model="rig">
  <option timestep="0.004" integrator="{integrator}"/>
  <worldbody>
    <light name="sun" directional="true" pos="0 0 3" dir="0.1 0 -1"/>
    <geom name="floor" type="plane" size="2 2 .1"/>
    <camera name="overview" pos="0 -3 1.5" xyaxes="1 0 0 0 .5 1" mode="targetbody" target="torso"/>
    <body name="torso" pos="0 0 .6">
      <freejoint/>
      <geom name="trunk" type="box" size=".1 .15 .08"/>
      <camera name="head" pos=".1 0 .1" quat=".5 .5 -.5 -.5"/>
      <camera name="chase" pos="-1 0 .5" mode="trackcom"/>
      <light name="lamp" pos=".1 0 .1" dir="1 0 -.2" mode="fixed"/>
      <light name="follow" pos="0 0 2" dir="0 0 -1" mode="targetbodycom" target="torso"/>
      <body name="upper" pos="0 .15 0">
        <joint name="shoulder" axis="0 1 0" damping=".05"/>
        <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
        <site name="shoulder_site" pos=".05 0 .04"/>
        <body name="lower" pos=".3 0 0">
          <joint name="elbow" type="ball" damping=".05"/>
          <geom type="capsule" fromto="0 0 0 .25 0 0" size=".025"/>
          <site name="wrist_site" pos=".2 0 .04"/>
          <camera name="wrist" pos=".25 0 0" quat=".7 .1 .7 .1"/>
        </body>
      </body>
    </body>
    <body name="target" mocap="true" pos=".5 .5 .5">
      <geom type="sphere" size=".04" contype="0" conaffinity="0"/>
      <camera name="on_target" pos="0 0 .2"/>
    </body>
    {cloth}
  </worldbody>
  <tendon>
    <spatial name="cord" width=".004"><site site="shoulder_site"/><site site="wrist_site"/></spatial>
  </tendon>
  <actuator>
    <motor name="shoulder" joint="shoulder" gear="2"/>
  </actuator>
  <sensor>
    <accelerometer site="wrist_site"/>
    <velocimeter site="wrist_site"/>
    <framepos objtype="site" objname="wrist_site"/>
    <actuatorfrc actuator="shoulder"/>
  </sensor>
</mujoco>
"""

CLOTH = """
    <flexcomp name="cloth" type="grid" count="4 4 1" spacing=".1 .1 .1" pos="0 0 1.2" dim="2" mass=".2" radius=".01">
      <edge equality="true"/>
      <contact selfcollide="none"/>
    </flexcomp>
"""


def robot(integrator: str = "implicitfast", cloth: bool = True) -> mujoco.MjModel:
    """A free body with an arm, a mocap target, tracking cameras, lights, a tendon, and a cloth falling on it."""
    return mujoco.MjModel.from_xml_string(ROBOT.format(integrator=integrator, cloth=CLOTH if cloth else ""))
