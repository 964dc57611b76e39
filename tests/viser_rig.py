"""A scene in a viser viewer, and clients that look at it without a page."""

import time

import msgspec
import viser
import zstandard
from websockets.sync.client import connect

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.visualizers import ViserVisualizer, ViserVisualizerCfg

# Seen from above: a red slab at the left, a green ball at the right, a blue post in the middle, on a dark floor.
XML = """
<mujoco model="table">
  <option timestep="0.01" gravity="0 0 0"/>
  <statistic center="0 0 0" extent="2"/>
  <visual><global azimuth="90" elevation="-89.9" fovy="45"/></visual>
  <asset>
    <texture name="chess" type="2d" builtin="checker" width="64" height="64" rgb1="1 1 0" rgb2="0 1 1"/>
    <material name="chess" texture="chess" texrepeat="1 1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 .1" rgba=".1 .1 .15 1"/>
    <body name="slab" pos="-1 0 .2"><joint name="slide" type="slide" axis="0 1 0"/>
      <geom name="slab" type="box" size=".3 .3 .1" rgba="1 0 0 1"/></body>
    <body name="ball" pos="1 0 .3"><joint type="slide" axis="0 1 0"/>
      <geom name="ball" type="sphere" size=".3" rgba="0 1 0 1"/>
      <geom name="egg" type="ellipsoid" size=".1 .2 .1" pos="0 0 .4" rgba="0 .8 0 1"/></body>
    <geom name="post" type="cylinder" size=".1 .2" pos="0 0 .2" rgba="0 0 1 1"/>
    <geom name="rod" type="capsule" size=".1 .2" pos="0 1 .2" rgba="1 0 1 1"/>
    <geom name="hidden" type="box" size=".2 .2 .2" pos="0 -1 .2" group="3" rgba="1 1 1 1"/>
    <body name="tile" pos="0 -.7 .2"><joint type="slide" axis="0 1 0"/>
      <geom name="tile" type="box" size=".3 .3 .05" material="chess"/></body>
    <camera name="top" pos="0 0 4"/>
  </worldbody>
</mujoco>
"""


def open_context(model, num_envs=1, cameras=(), **settings) -> SimulationContext:
    settings = {"port": 0, "update_frequency": None, **settings}
    physics = MujocoPhysicsCfg(model, "mujoco_batch", num_envs)
    return SimulationContext(SimulationCfg(physics, cameras=cameras, visualizer_cfgs=[ViserVisualizerCfg(**settings)]))


class Client:
    """What a page receives, without a page."""

    def __init__(self, url: str):
        self._socket = connect(
            url.replace("http", "ws"), subprotocols=[f"viser-v{viser.__version__}"], max_size=None, compression=None
        )
        self.nbytes = 0
        self.messages: list[dict] = []
        # A page is a client once it has told where it looks from.
        camera = {
            "type": "ViewerCameraMessage", "wxyz": (1.0, 0.0, 0.0, 0.0), "position": (0.0, 0.0, 4.0), "fov": 0.8,
            "near": 0.1, "far": 100.0, "image_height": 100, "image_width": 100, "look_at": (0.0, 0.0, 0.0),
            "up_direction": (0.0, 0.0, 1.0),
        }  # fmt: skip
        self._socket.send(msgspec.msgpack.encode(camera))

    def receive(self, seconds: float = 0.5) -> None:
        """Take what comes, until nothing has come for so long [s]."""
        while True:
            try:
                data = self._socket.recv(timeout=seconds)
            except TimeoutError:
                return
            assert isinstance(data, bytes)
            self.nbytes += len(data)
            self.messages += _decoded(data)

    def scene_updates(self) -> list[dict]:
        """New values of things in the scene, as they came."""
        return [message for message in self.messages if message["type"] == "SceneNodeUpdateMessage"]

    def close(self) -> None:
        self._socket.close()


def _decoded(data: bytes) -> list[dict]:
    """The messages of one transmission; arrays are placeholders."""
    size, compressed = (int.from_bytes(data[start : start + 8], "little") for start in (0, 8))
    inner = zstandard.ZstdDecompressor().decompress(data[16 : 16 + compressed], max_output_size=size)
    return msgspec.msgpack.decode(inner)["messages"]


def viewer_of(sim) -> ViserVisualizer:
    (viewer,) = sim.visualizers
    return viewer


def wait_for_clients(viewer, count: int) -> None:
    deadline = time.monotonic() + 10.0
    while len(viewer.server.get_clients()) != count:
        assert time.monotonic() < deadline, f"{len(viewer.server.get_clients())} clients, not {count}"
        time.sleep(0.01)


def nodes(viewer) -> dict:
    """Handles of the scene by the last part of their names, without what numbers them."""
    handles = viewer.server.scene._handle_from_node_name
    return {name: handle for name, handle in handles.items() if name.startswith("/scene/")}


def batched(viewer, kind: str):
    (found,) = (handle for name, handle in nodes(viewer).items() if name.endswith(kind) and "moving" in name)
    return found
