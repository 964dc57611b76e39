"""What viewers cost: an update in time and bytes, and the training that goes on beside them.

Ours and other viewers show one scene in one run: robots of 30 bodies, each with a mesh of its own. Every web viewer has
a client in another process that takes all that is sent. Updates are interleaved, one of each viewer in turn, in both
orders; what is printed are medians. Steps are measured as windows with and without the viewer, in turn.

    python benchmarks/viewers.py
    python benchmarks/viewers.py --envs 64 --viewers viser mjviser --seconds 2
"""

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Protocol

import mujoco
import numpy as np
import tyro
import warp as wp
from rich.console import Console
from rich.table import Table

from scene_data import SceneDataProvider, SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.formats import SceneDataFormat

RATE_HZ = 30.0
LIMIT = 0.9
_LIMBS = 4
_SEGMENTS = 7
_MESH_POINTS = 300
_SETTLE_S = 1.0


@dataclass
class Options:
    """Measure viewers."""

    envs: tuple[int, ...] = (1, 64, 1024)
    """Numbers of environments to update."""
    viewers: tuple[str, ...] = ()
    """Which viewers, by the names in the table; all that are installed by default."""
    updates: int = 40
    """Updates of each viewer and number of environments."""
    throughput_envs: int = 64
    """Environments beside which the steps are measured."""
    seconds: float = 1.5
    """Length of one window of steps."""
    windows: int = 8
    """Pairs of windows of each viewer."""


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


# Clients of web viewers, each in a process of its own


def _take_viser(url: str, received: Any, stop: Any) -> None:
    """Be a page of viser: say where the camera is, and take what comes."""
    import msgspec
    import viser
    from websockets.sync.client import connect

    address = url.replace("http", "ws")
    camera = {
        "type": "ViewerCameraMessage", "wxyz": (1.0, 0.0, 0.0, 0.0), "position": (0.0, 0.0, 4.0), "fov": 0.8,
        "near": 0.1, "far": 100.0, "image_height": 100, "image_width": 100, "look_at": (0.0, 0.0, 0.0),
        "up_direction": (0.0, 0.0, 1.0),
    }  # fmt: skip
    with connect(address, subprotocols=[f"viser-v{viser.__version__}"], max_size=None, compression=None) as socket:  # pyright: ignore[reportArgumentType]
        socket.send(msgspec.msgpack.encode(camera))
        while not stop.is_set():
            try:
                received.value += len(socket.recv(timeout=0.2))
            except TimeoutError:
                continue


@contextmanager
def client(take: Callable[..., None], url: str) -> Iterator[Callable[[], int]]:
    """A client in another process; gives what says how many bytes it has taken."""
    context = multiprocessing.get_context("spawn")
    received, stop = context.Value("q", 0), context.Event()
    process = context.Process(target=take, args=(url, received, stop), daemon=True)
    process.start()
    try:
        deadline = time.monotonic() + 30.0
        while not received.value:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing came from {url}")
            time.sleep(0.05)
        yield lambda: received.value
    finally:
        stop.set()
        process.join(5.0)
        if process.is_alive():
            process.kill()
            process.join()


# The viewers


class Subject(Protocol):
    """A viewer that is measured. Its `update` shows the present state of the crowd."""

    def update(self) -> None: ...
    def sent(self) -> int: ...


class OurViser:
    def __init__(self, crowd: Crowd, stack: ExitStack):
        from scene_data.visualizers import ViserVisualizer, ViserVisualizerCfg

        self._viewer = ViserVisualizer(ViserVisualizerCfg(port=0, enable_live_plots=False))
        self._viewer.initialize(crowd.sim.provider)
        stack.callback(self._viewer.close)
        assert self._viewer.url is not None
        self.sent = stack.enter_context(client(_take_viser, self._viewer.url))

    def update(self) -> None:
        self._viewer.step(1.0 / RATE_HZ)


class Mjviser:
    """mjviser's scene, given the arrays of the engine."""

    def __init__(self, crowd: Crowd, stack: ExitStack):
        import viser
        from mjviser import ViserMujocoScene

        with redirect_stdout(StringIO()):
            server = viser.ViserServer("127.0.0.1", 0, verbose=False)
        stack.callback(_quietly(server.stop))
        self._scene = ViserMujocoScene(server, crowd.model, crowd.num_envs)
        batch = crowd.sim.physics.batch  # pyright: ignore[reportAttributeAccessIssue]
        self._positions, self._rotations = batch.bind("xpos"), batch.bind("xmat")
        self.sent = stack.enter_context(client(_take_viser, f"http://127.0.0.1:{server.get_port()}"))

    def update(self) -> None:
        envs, bodies, _ = self._positions.shape
        self._scene.update_from_arrays(self._positions, self._rotations.reshape(envs, bodies, 3, 3))


class NewtonViser:
    """Newton's viser viewer, on a Newton model of the scene whose state holds the poses."""

    def __init__(self, crowd: Crowd, stack: ExitStack):
        import newton.viewer

        self._model, self._state, self._read = _newton_scene(crowd)
        with redirect_stdout(StringIO()):
            self._viewer = newton.viewer.ViewerViser(host="127.0.0.1", port=_free_port(), verbose=False)
        stack.callback(_quietly(self._viewer.close))
        self._viewer.set_model(self._model)
        self._time = 0.0
        self.update()
        self.sent = stack.enter_context(client(_take_viser, self._viewer.url.replace("localhost", "127.0.0.1")))

    def update(self) -> None:
        self._read()
        self._time += 1.0 / RATE_HZ
        self._viewer.begin_frame(self._time)
        self._viewer.log_state(self._state)
        self._viewer.end_frame()


SUBJECTS: dict[str, Callable[[Crowd, ExitStack], Subject]] = {
    "viser": OurViser,
    "mjviser": Mjviser,
    "newton's viser": NewtonViser,
}


def _newton_scene(crowd: Crowd) -> tuple[Any, Any, Callable[[], None]]:
    """The crowd as a Newton model and state, and what brings the state up to the crowd's."""
    from scene_data.interop.newton import build_newton_look

    model = build_newton_look(crowd.sim.provider.backend.describe_scene(), "cpu").model
    state = model.state()
    poses = SceneDataFormat.Transform()
    poses.transforms = state.body_q
    provider = SceneDataProvider(crowd.sim.physics.backend)
    return model, state, lambda: provider.get_transforms(poses, allow_passthrough=False)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _quietly(call: Callable[[], None]) -> Callable[[], None]:
    def quiet() -> None:
        with redirect_stdout(StringIO()):
            call()

    return quiet


# Measurements


@dataclass
class Updates:
    """Of one viewer: how long the caller waits, what all threads compute, and what is sent."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    nbytes: float = 0.0
    first: int = 0


def measure_updates(options: Options, num_envs: int, names: Sequence[str], model: mujoco.MjModel) -> dict[str, Updates]:
    """Updates of each viewer, one after the other, in both orders."""
    with ExitStack() as stack:
        crowd = Crowd(model, num_envs)
        stack.callback(crowd.sim.close)
        crowd.step()
        subjects = {name: SUBJECTS[name](crowd, stack) for name in names}
        results = {name: Updates() for name in names}
        for name, subject in subjects.items():
            subject.update()
            time.sleep(_SETTLE_S)
            results[name].first = subject.sent()
        for number in range(-3, options.updates):
            for name in names if number % 2 else reversed(names):
                for _ in range(4):
                    crowd.step()
                crowd.sim.provider.backend.update_kinematics()
                subject, result = subjects[name], results[name]
                cpu, start = time.process_time(), time.perf_counter()
                subject.update()
                wall = time.perf_counter() - start
                time.sleep(max(0.5 / RATE_HZ, 3.0 * wall))
                if number >= 0:  # the first ones warm up
                    result.wall.append(wall)
                    result.cpu.append(time.process_time() - cpu)
            if number < 0:
                time.sleep(_SETTLE_S)
                for name, subject in subjects.items():
                    results[name].nbytes = -subject.sent()
        time.sleep(_SETTLE_S)
        for name, subject in subjects.items():
            results[name].nbytes = (results[name].nbytes + subject.sent()) / options.updates
        return results


def measure_throughput(options: Options, name: str, model: mujoco.MjModel) -> tuple[float, float]:
    """Steps per second without the viewer, and the ratio with it, medians of pairs in both orders."""
    with ExitStack() as stack:
        plain = Crowd(model, options.throughput_envs)
        stack.callback(plain.sim.close)
        watched, look = WATCHED[name](model, options.throughput_envs, stack)
        alone, ratios = [], []
        for number in range(-1, options.windows):
            rates = {}
            for is_watched in (True, False) if number % 2 else (False, True):
                rates[is_watched] = _rate(*((watched, look) if is_watched else (plain, None)), options.seconds)
            if number >= 0:
                alone.append(rates[False])
                ratios.append(rates[True] / rates[False])
        return statistics.median(alone), statistics.median(ratios)


def _with_ours(make_cfg: Callable[[], Any], take: Callable[..., None] | None) -> Callable[..., tuple[Crowd, None]]:
    """A crowd whose simulation runs one of our viewers by itself."""

    def open_it(model: mujoco.MjModel, num_envs: int, stack: ExitStack) -> tuple[Crowd, None]:
        crowd = Crowd(model, num_envs, [make_cfg()])
        stack.callback(crowd.sim.close)
        if take is not None:
            stack.enter_context(client(take, crowd.sim.visualizers[0].address))
        return crowd, None

    return open_it


def _with_peer(name: str) -> Callable[..., tuple[Crowd, Callable[[], None]]]:
    """A crowd, and what updates a viewer of it when it is due."""

    def open_it(model: mujoco.MjModel, num_envs: int, stack: ExitStack) -> tuple[Crowd, Callable[[], None]]:
        crowd = Crowd(model, num_envs)
        stack.callback(crowd.sim.close)
        subject = SUBJECTS[name](crowd, stack)
        due = 0.0

        def look() -> None:
            nonlocal due
            if (now := time.perf_counter()) >= due:
                due = max(due + 1.0 / RATE_HZ, now)
                crowd.sim.provider.backend.update_kinematics()
                subject.update()

        return crowd, look

    return open_it


def _viser_cfg() -> Any:
    from scene_data.visualizers import ViserVisualizerCfg

    return ViserVisualizerCfg(port=0, update_frequency=RATE_HZ)


WATCHED: dict[str, Callable[..., tuple[Crowd, Callable[[], None] | None]]] = {
    "viser": _with_ours(_viser_cfg, _take_viser),
    "mjviser": _with_peer("mjviser"),
    "newton's viser": _with_peer("newton's viser"),
}


def _rate(crowd: Crowd, look: Callable[[], None] | None, seconds: float) -> float:
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        crowd.step()
        if look is not None:
            look()
        steps += 1
    return steps / elapsed


def main() -> None:
    options = tyro.cli(Options)
    wp.config.quiet = True
    console, model = Console(), robot()
    names = options.viewers or tuple(SUBJECTS)
    if unknown := set(names) - set(SUBJECTS):
        sys.exit(f"no viewer {sorted(unknown)[0]!r}; there are {', '.join(SUBJECTS)}")
    table = Table(title="One update")
    for column in ("environments", "viewer", "ms", "CPU ms", "kB sent", "first kB"):
        table.add_column(column, justify="left" if column == "viewer" else "right")
    for num_envs in options.envs:
        for name, result in measure_updates(options, num_envs, names, model).items():
            table.add_row(
                f"{num_envs:,}",
                name,
                f"{statistics.median(result.wall) * 1e3:.2f}",
                f"{statistics.median(result.cpu) * 1e3:.2f}",
                f"{result.nbytes / 1e3:.1f}",
                f"{result.first / 1e3:.0f}",
            )
        table.add_section()
    console.print(table)
    table = Table(title=f"Steps of {options.throughput_envs} environments, viewer at {RATE_HZ:g} Hz (limit {LIMIT})")
    for column in ("viewer", "steps/s without", "with / without"):
        table.add_column(column, justify="left" if column == "viewer" else "right")
    for name in names:
        plain, ratio = measure_throughput(options, name, model)
        table.add_row(name, f"{plain:.0f}", f"{ratio:.3f}")
    console.print(table)


if __name__ == "__main__":
    main()
