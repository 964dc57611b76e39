"""One scene, three states of it and many cameras, for the tests of what render backends draw."""

from dataclasses import replace

import mujoco

from scene_data.renderers.render_core.camera import (
    BodyMount,
    CameraDescriptor,
    ModelCamera,
    Orthographic,
    Pinhole,
    VisualOptions,
    WorldPose,
)
from scene_data.renderers.render_core.layout import PlaneKind

RGB, DEPTH, DISTANCE, SEG = (
    PlaneKind.RGB,
    PlaneKind.DEPTH,
    PlaneKind.DISTANCE_TO_CAMERA,
    PlaneKind.SEGMENTATION,
)
NUM_ENVS = 3
WIDTH, HEIGHT = 48, 36
FAR = 12.0
GEOM = int(mujoco.mjtObj.mjOBJ_GEOM)

# Ambient light alone makes every colour the geom's own, except where the lamp reaches: on what faces upwards.
XML = """
<mujoco>
  <option {option}/>
  <statistic center="0 0 0" extent="1"/>
  <visual>
    <map znear="0.01" zfar="12"/>
    <headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/>
  </visual>
  <asset>
    <texture name="sky" type="skybox" builtin="flat" rgb1="0.2 0.4 0.8" width="8" height="8"/>
    <texture name="stripes" type="2d" builtin="flat" rgb1="1 0.5 0" width="8" height="8"/>
    <material name="stripes" texture="stripes" specular="0"/>
    <material name="green" rgba="0 0.6 0 1" specular="0"/>
  </asset>
  <worldbody>
    <light type="directional" dir="0.5 0 -1" ambient="0 0 0" diffuse="0.4 0.4 0.4" specular="0 0 0"/>
    <camera name="front" pos="0 -3 1" xyaxes="1 0 0 0 0.2 1"/>
    <camera name="sensor" pos="0 -3 1" xyaxes="1 0 0 0 0.2 1" sensorsize="0.04 0.03" focal="0.05 0.04"
            principal="0.004 -0.003" resolution="48 36"/>
    <geom name="slope" type="plane" size="0 0 1" pos="0 1 -0.5" euler="20 10 0" rgba="0.5 0.4 0.3 1"/>
    <geom name="wall" type="box" size="0.3 0.02 0.3" pos="-0.7 0 0.7" material="green"/>
    <geom name="poster" type="box" size="0.3 0.02 0.3" pos="0.9 0.5 0.9" material="stripes"/>
    <geom name="hidden" type="sphere" size="0.2" pos="0 0 1.2" rgba="1 0 1 1" group="4"/>
    <geom name="invisible" type="sphere" size="0.2" pos="0 0 1.2" rgba="1 0 1 0"/>
    <body name="rover" pos="0 0 0.5">
      <freejoint name="rover"/>
      <geom name="ball" type="sphere" size="0.25" rgba="0.8 0.1 0.1 1"/>
      <geom name="crate" type="box" size="0.15 0.15 0.15" pos="0.4 0.1 0.2" euler="10 20 30" rgba="0.1 0.1 0.8 1"/>
      <camera name="eye" pos="0.1 -1.5 0.6" xyaxes="1 0.1 0 0 0.4 1"/>
    </body>
  </worldbody>
</mujoco>
"""


INTRINSICS: dict[str, Pinhole | Orthographic] = {
    "front": Pinhole.from_fovy(45, WIDTH, HEIGHT),
    # 1200 pixels per metre of sensor; a principal point to the right and below moves the image left and up.
    "sensor": Pinhole(60.0, 48.0, 24.0 - 4.8, 18.0 + 3.6),
    "off centre": Pinhole(60.0, 35.0, 15.5, 28.0),
    "parallel": Orthographic(2.5),
}
"""How cameras that stand at one place, that of "free front", project."""


def quaternion(model: mujoco.MjModel, camera: str) -> tuple[float, ...]:
    return tuple(model.camera(camera).quat[[1, 2, 3, 0]])


def all_cameras(model: mujoco.MjModel) -> dict[str, CameraDescriptor]:
    """One configuration for all tests, so that few kernels are compiled."""
    front = WorldPose(tuple(model.camera("front").pos), quaternion(model, "front"))
    eye = model.camera("eye")
    lanes = WorldPose([(0.2 * env, -3.0, 1.0) for env in range(NUM_ENVS)], quaternion(model, "front"))
    every = (RGB, DEPTH, SEG, DISTANCE)
    options = VisualOptions()
    cameras = {
        "front": {"planes": every},
        "sensor": {"planes": (DEPTH, SEG)},
        "eye": {"planes": (RGB, DEPTH, SEG)},
        "free front": {"mount": front, "intrinsics": INTRINSICS["front"], "planes": (RGB, DEPTH, SEG)},
        "index": {"mount": ModelCamera(0), "planes": (RGB,)},
        "mounted eye": {
            "mount": BodyMount("rover", tuple(eye.pos), quaternion(model, "eye")),
            "planes": (RGB, DEPTH, SEG),
        },
        "off centre": {"mount": front, "intrinsics": INTRINSICS["off centre"], "planes": every},
        "parallel": {"mount": front, "intrinsics": INTRINSICS["parallel"], "planes": (DEPTH, SEG, DISTANCE)},
        "lanes": {"mount": lanes, "planes": (DEPTH, SEG)},
        "zenith": {"mount": WorldPose((0, 0, 3)), "intrinsics": Orthographic(3.0), "planes": (RGB, SEG)},
        "revealed": {"mount": front, "planes": (RGB, SEG), "options": VisualOptions(geom_groups=(0, 4))},
        "plain": {"mount": front, "planes": (RGB, SEG), "options": replace(options, textures=False)},
        "blank sky": {
            "mount": front,
            "planes": (RGB, SEG),
            "options": replace(options, skybox=False, background=(1.0, 0.2, 0.0)),
        },
        "unshadowed": {
            "mount": WorldPose((0, 0, 3)),
            "intrinsics": Orthographic(3.0),
            "planes": (RGB, SEG),
            "options": replace(options, shadows=False),
        },
        "nothing": {"mount": front, "planes": every, "options": VisualOptions(geom_groups=())},
    }
    return {
        name: CameraDescriptor(id=index, name=name, width=WIDTH, height=HEIGHT, num_envs=NUM_ENVS, **parts)
        for index, (name, parts) in enumerate(cameras.items(), start=1)
    }


def few(cameras: dict[str, CameraDescriptor], *names: str) -> list[CameraDescriptor]:
    """Some cameras, and one that is orthographic: the kernel is then the one that the other tests use."""
    return [cameras[name] for name in (*names, "parallel")]
