"""Teach a network to balance a pole from depth images of 48x48 pixels.

The method is DAgger, a form of imitation (Ross, Gordon and Bagnell, 2011), and not reinforcement learning. A teacher
that knows the exact state (a linear-quadratic regulator) says what it would do in each state that the pupil gets itself
into; the pupil sees two depth images, the present one and the one before, and learns to do the same. Each round rolls
out the pupil alone, so a round's return is what the pixels alone were worth.

    python examples/cartpole_from_pixels.py --plot curve.png
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import torch
import tyro
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.renderers import CameraCfg
from scene_data.vector_env import SimulationVectorEnv, VectorTask

MODEL = Path(__file__).with_name("cartpole.xml")
FRAME_SKIP = 4  # 25 decisions a second
EPISODE_STEPS = 200  # so the best return is 200: one for each step in which the pole is up and the cart on its rail
SIZE = 48  # [pixels]
NEAR, WALL = 2.3, 2.8  # distances of the nearest part and of the wall behind it all from the camera [m]


@dataclass(frozen=True)
class Settings:
    """How long to learn, and from how much.

    Attributes:
        rounds: Rounds of rolling out the pupil and teaching it.
        num_envs: Environments that are simulated and rendered together.
        updates: Gradient steps per round.
        batch_size: Images per gradient step.
        seed: Seeds the initial states, the network and the batches.
        plot: Where to draw the returns to, as a PNG.
    """

    rounds: int = 12
    num_envs: int = 16
    updates: int = 40
    batch_size: int = 128
    seed: int = 0
    plot: Path | None = None


@dataclass(frozen=True)
class Round:
    """What came of a round.

    Attributes:
        name: Who played.
        frames: Images that it had learned from by then.
        mean: Mean of the returns.
        spread: Their standard deviation.
        seconds: Time since the start [s].
    """

    name: str
    frames: int
    mean: float
    spread: float
    seconds: float


# -- the task


def read_state(sim: SimulationContext) -> np.ndarray:
    """Cart position [m], pole angle [rad], and their velocities, (N, 4)."""
    batch = sim.physics.batch
    return np.concatenate([batch.qpos, batch.qvel], axis=1)


def is_lost(state: np.ndarray) -> np.ndarray:
    """Whether the cart left its rail, or the pole leans by more than 23 degrees."""
    return (np.abs(state[:, 0]) > 0.8) | (np.abs(state[:, 1]) > 0.4)


def scatter(sim: SimulationContext, env_ids: np.ndarray, rng: np.random.Generator) -> None:
    """Start near the middle, not quite upright, and moving."""
    count = len(env_ids)
    sim.physics.batch.qpos[env_ids] = rng.uniform((-0.3, -0.1), (0.3, 0.1), (count, 2))
    sim.physics.batch.qvel[env_ids] = rng.uniform(-0.2, 0.2, (count, 2))


TASK = VectorTask(
    state=read_state,
    reward=lambda state, action: 1.0 - is_lost(state),
    terminated=is_lost,
    randomize=scatter,
    frame_skip=FRAME_SKIP,
    max_episode_steps=EPISODE_STEPS,
)


def make_env(num_envs: int) -> SimulationVectorEnv:
    """Cart-poles, each seen from the side by a depth camera."""
    physics = MujocoPhysicsCfg(MODEL, engine="mujoco_batch", num_envs=num_envs)
    sim = SimulationContext(SimulationCfg(physics, cameras=[CameraCfg("side", SIZE, SIZE, ("depth",))]))
    return SimulationVectorEnv(sim, TASK, arrays="torch")


# -- the teacher


def regulator_gain(model: mujoco.MjModel) -> Tensor:
    """The gain K of the linear-quadratic regulator u = -K x about the upright pole, (nu, 4)."""
    data = mujoco.MjData(model)
    step, push = np.zeros((4, 4)), np.zeros((4, model.nu))
    mujoco.mjd_transitionFD(model, data, 1e-6, True, step, push, None, None)
    a, b = np.eye(4), np.zeros_like(push)
    for _ in range(FRAME_SKIP):
        a, b = step @ a, step @ b + push
    cost = np.diag([1.0, 10.0, 0.1, 0.1])
    value = cost
    for _ in range(1000):  # to the fixed point of the Riccati equation
        gain = np.linalg.solve(np.eye(model.nu) + b.T @ value @ b, b.T @ value @ a)
        value = cost + a.T @ value @ (a - b @ gain)
    return torch.as_tensor(gain, dtype=torch.float32)


# -- the pupil


class Pupil(nn.Sequential):
    """From two images, float (N, 2, 48, 48), to a push in [-1, 1], (N, 1)."""

    def __init__(self):
        super().__init__(
            *(nn.Conv2d(2, 16, 5, stride=2, padding=2), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(32 * 6 * 6, 128), nn.ReLU(), nn.Linear(128, 1), nn.Tanh()),
        )


class Lessons:
    """All that was seen so far, and what the teacher would have done."""

    def __init__(self):
        self._images: list[Tensor] = []
        self._pushes: list[Tensor] = []

    def __len__(self) -> int:
        return sum(map(len, self._pushes))

    def add(self, images: Tensor, pushes: Tensor) -> None:
        """Remember images (N, 2, H, W), in half precision, and pushes (N, 1)."""
        self._images.append(images.half())
        self._pushes.append(pushes)

    def teach(self, pupil: Pupil, optimizer: torch.optim.Optimizer, updates: int, batch_size: int) -> None:
        """Bring the pupil's pushes nearer to the teacher's."""
        images, pushes = torch.cat(self._images), torch.cat(self._pushes)
        for _ in range(updates):
            batch = torch.randint(len(pushes), (batch_size,))
            loss = nn.functional.mse_loss(pupil(images[batch].float()), pushes[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


# -- learning

Act = Callable[[Tensor, Tensor], Tensor]
"""From images (N, 2, H, W) and states (N, 4) to pushes (N, 1)."""


class Classroom:
    """The environments, the teacher who comments on every step, and what was learned from it so far."""

    def __init__(self, settings: Settings):
        self.env = make_env(settings.num_envs)
        self.gain = regulator_gain(mujoco.MjModel.from_xml_path(str(MODEL)))
        self.lessons = Lessons()
        self.rounds: list[Round] = []
        self._seed: int | None = settings.seed
        self._start = time.perf_counter()

    def teacher(self, images: Tensor, state: Tensor) -> Tensor:
        """What the regulator does."""
        return (-state @ self.gain.T).clamp(-1.0, 1.0)

    def play(self, name: str, act: Act, frames: int = 0) -> Round:
        """Play an episode in each environment, comment on every step, and note the returns."""
        returns = self._roll_out(act)
        seconds = time.perf_counter() - self._start
        self.rounds.append(Round(name, frames, returns.mean().item(), returns.std().item(), seconds))
        return self.rounds[-1]

    @torch.no_grad()
    def _roll_out(self, act: Act) -> Tensor:
        observation, _ = self.env.reset(seed=self._seed)
        self._seed = None  # from here on the generator goes on
        before = present = look(observation)
        first = torch.ones(len(present), dtype=torch.bool)
        ended, playing, returns = ~first, first, torch.zeros(len(present))
        while playing.any():
            before = torch.where(first[:, None, None, None], present, before)  # an episode begins with a still
            images, state = torch.cat([before, present], dim=1), observation["state"]
            self.lessons.add(images, self.teacher(images, state))
            observation, reward, terminated, truncated, _ = self.env.step(act(images, state))
            returns += playing * reward
            first, ended = ended, terminated | truncated  # the step after an end brings the first observation
            playing = playing & ~ended
            before, present = present, look(observation)
        return returns


def look(observation: dict[str, Tensor]) -> Tensor:
    """The depth image, float (N, 1, H, W): 0 at the wall and 1 at what is nearest."""
    return ((WALL - observation["side/depth"]) / (WALL - NEAR)).clamp(0.0, 1.0).permute(0, 3, 1, 2)


def learn(settings: Settings, report: Callable[[Round], None] = lambda outcome: None) -> list[Round]:
    """Teach a pupil from scratch.

    Args:
        settings: How long, and from how much.
        report: Is told of each round when it is over.

    Returns:
        The rounds: random pushes, the teacher's own, and then the pupil's, one after each lesson.
    """
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)  # the network is small, and where the CPU is shared, threads that wait busily cost a lot
    classroom, pupil = Classroom(settings), Pupil()
    optimizer = torch.optim.Adam(pupil.parameters(), lr=1e-3)
    report(classroom.play("random", lambda images, state: 2.0 * torch.rand(len(state), 1) - 1.0))
    report(classroom.play("teacher", classroom.teacher))
    for number in range(1, settings.rounds + 1):
        classroom.lessons.teach(pupil, optimizer, settings.updates, settings.batch_size)
        report(classroom.play(f"pupil {number}", lambda images, state: pupil(images), len(classroom.lessons)))
    classroom.env.close()
    return classroom.rounds


# -- what it shows


def draw_curve(rounds: list[Round], path: Path) -> None:
    """Draw the pupil's returns over the images it had learned from, between random pushes and the teacher."""
    width, height, left, right, top, bottom = 720, 400, 70, 30, 30, 60
    image = Image.new("RGB", (width, height), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    random, teacher, *pupil = rounds
    end = pupil[-1].frames

    def place(frames: float, value: float) -> tuple[float, float]:
        x = left + frames / end * (width - left - right)
        return x, height - bottom - value / EPISODE_STEPS * (height - top - bottom)

    for value in range(0, EPISODE_STEPS + 1, 50):
        draw.line([place(0, value), place(end, value)], "#dddddd")
        draw.text((left - 8, place(0, value)[1]), str(value), "black", font, "rm")
    for frames in range(0, end + 1, 10_000 if end > 20_000 else 2_000):
        draw.text((place(frames, 0)[0], height - bottom + 8), f"{frames:,}", "black", font, "mt")
    for outcome, colour in ((random, "#999999"), (teacher, "#2a7f3f")):
        draw.line([place(0, outcome.mean), place(end, outcome.mean)], colour, 2)
        draw.text(np.add(place(end, outcome.mean), (0, 4)).tolist(), outcome.name, colour, font, "rt")
    low, high = (
        [place(each.frames, np.clip(each.mean + sign * each.spread, 0, EPISODE_STEPS)) for each in pupil]
        for sign in (-1, 1)
    )
    draw.polygon([*low, *reversed(high)], "#d6e4f5")
    points = [place(each.frames, each.mean) for each in pupil]
    draw.line(points, "#1f5fb4", 3, "curve")
    for x, y in points:
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), "#1f5fb4")
    draw.text((left, 6), "return of the pupil: mean, and one standard deviation", "#1f5fb4", font)
    draw.text(((left + width - right) / 2, height - 24), "images learned from", "black", font, "mt")
    image.save(path)


def main(settings: Settings) -> None:
    """Learn, and tell how it went."""
    console = Console()

    def report(outcome: Round) -> None:
        console.print(f"{outcome.seconds:6.1f} s  {outcome.name:9}  return {outcome.mean:5.1f} of {EPISODE_STEPS}")

    rounds = learn(settings, report)
    table = Table("policy", "images", "return", "standard deviation", "seconds", title="48x48 depth to pushes")
    for outcome in rounds:
        row = (f"{outcome.frames:,}", f"{outcome.mean:.1f}", f"{outcome.spread:.1f}", f"{outcome.seconds:.0f}")
        table.add_row(outcome.name, *row)
    console.print(table)
    if settings.plot is not None:
        draw_curve(rounds, settings.plot)
        console.print(f"The curve is in {settings.plot}.")


if __name__ == "__main__":
    main(tyro.cli(Settings))
