"""Draws sixteen environments of the demo scene that differ in looks alone, as one picture.

Run it from the repository: `python examples/randomized_looks.py docs/images/randomized_looks.png`.
"""

import colorsys
import sys

import numpy as np
from PIL import Image

from scene_data import SimulationCfg, SimulationContext
from scene_data.appearance import Appearance
from scene_data.assets import demo_model_path
from scene_data.backends import MujocoPhysicsCfg
from scene_data.renderers import CameraCfg

NUM_ENVS = 16
COLUMNS = 4
WIDTH, HEIGHT = 240, 180
PAINTED = ("shell", "accent", "slab", "wood", "plum", "teal")
COVERED = ("crate", "ball", "can", "floor")
TEXTURES = ("crate", "stripes", "can", "target", "vase")


def randomize(looks: Appearance, rng: np.random.Generator, env_ids: np.ndarray) -> None:
    """Give environments new colours, textures, light and sizes."""
    count = len(env_ids)
    hues = rng.uniform(size=(count, len(PAINTED)))
    colors = [[colorsys.hsv_to_rgb(hue, 0.65, 0.85) for hue in row] for row in hues]
    looks.set_material_colors(colors, PAINTED, env_ids)
    looks.set_textures(rng.choice(TEXTURES, size=(count, len(COVERED))), COVERED, env_ids)

    azimuth, elevation = rng.uniform(-np.pi, np.pi, count), rng.uniform(0.5, 1.2, count)
    towards = [np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), -np.sin(elevation)]
    looks.set_light_directions(np.stack(towards, axis=-1), "sun", env_ids)
    looks.set_light_colors(rng.uniform((0.5, 0.45, 0.4), (0.75, 0.7, 0.65), (count, 3)), "sun", env_ids)
    looks.set_lights_active(rng.uniform(size=count) < 0.5, "lamp", env_ids)


def main(path: str) -> None:
    """Write the picture; the first environment is left as the model has it."""
    camera = CameraCfg("front", WIDTH, HEIGHT, ("rgb",))
    physics = MujocoPhysicsCfg(str(demo_model_path()), "mujoco_batch", NUM_ENVS)
    with SimulationContext(SimulationCfg(physics, cameras=[camera])) as sim:
        randomize(sim.appearance, np.random.default_rng(0), np.arange(1, NUM_ENVS))
        images = sim.cameras["front"].data["rgb"].numpy()
        rows = [np.concatenate(images[first : first + COLUMNS], axis=1) for first in range(0, NUM_ENVS, COLUMNS)]
        picture = Image.fromarray(np.concatenate(rows))
    picture.quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "randomized_looks.png")
