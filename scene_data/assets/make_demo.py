"""Draws the files that `demo/demo.xml` includes: the terrain, the vase, and the textures painted on them.

Run it from the repository after a change of shape or colour: `python scene_data/assets/make_demo.py`.
"""

from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["terrain_height", "write_crate", "write_floor", "write_terrain", "write_vase"]

DEMO = Path(__file__).parent / "demo"

# The hills are caps of ellipsoids: (x, y, z) of the centre and semi-axes, metres in the terrain's frame.
# The same numbers stand in demo.xml, where the ellipsoids carry what rolls on the hills.
HILLS = (
    ((-0.62, 0.10, -0.42), (0.88, 0.84, 0.98)),
    ((0.50, 0.26, -0.40), (0.80, 0.66, 0.78)),
    ((0.02, -0.22, -0.52), (0.86, 0.62, 0.76)),
)
HALF_EXTENT = (1.5, 0.85)
PEAK = 0.6
GRID = (61, 105)
BANDS = ((0.33, 0.55, 0.47), (0.49, 0.66, 0.49), (0.72, 0.75, 0.52), (0.87, 0.76, 0.54), (0.90, 0.64, 0.45))


def terrain_height(rows: int, columns: int) -> np.ndarray:
    """Height of the hills over a grid, metres, (rows, columns), rows from -y to +y."""
    y, x = np.meshgrid(
        np.linspace(-HALF_EXTENT[1], HALF_EXTENT[1], rows),
        np.linspace(-HALF_EXTENT[0], HALF_EXTENT[0], columns),
        indexing="ij",
    )
    height = np.zeros((rows, columns))
    for (cx, cy, cz), (a, b, c) in HILLS:
        inside = np.clip(1 - ((x - cx) / a) ** 2 - ((y - cy) / b) ** 2, 0, None)
        hill = cz + c * np.sqrt(inside)
        # A maximum that is rounded off: a grid cannot draw the sharp foot of a hill.
        height = (height + hill + np.sqrt((height - hill) ** 2 + 0.03**2)) / 2
    return height


def write_terrain() -> None:
    """The height field, as an include, and its map colouring with contour lines."""
    height = terrain_height(*GRID)
    height -= height.min()
    # MJCF lists the rows from +y down, as in a picture, and scales them to the highest.
    values = " ".join(f"{value:.4g}" for value in (height[::-1] / height.max()).round(4).ravel())
    size = f"{HALF_EXTENT[0]} {HALF_EXTENT[1]} {height.max():.4f} 0.02"
    (DEMO / "terrain.xml").write_text(
        f'<mujoco>\n  <asset>\n    <hfield name="terrain" nrow="{GRID[0]}" ncol="{GRID[1]}" size="{size}"\n'
        f'            elevation="{values}"/>\n  </asset>\n</mujoco>\n'
    )
    fine = terrain_height(4 * GRID[0], 4 * GRID[1])
    level = fine / PEAK * len(BANDS)
    image = np.array(BANDS)[np.clip(level.astype(int), 0, len(BANDS) - 1)]
    rise, run = np.gradient(level)
    slope = np.hypot(rise, run) + 1e-6
    distance = np.abs(2 * level - np.round(2 * level)) / (2 * slope)  # pixels to the nearest contour
    line = np.clip(1.2 - distance, 0, 1) * (fine > 0.03)
    image = image * (1 - 0.55 * line[..., None])
    save_image("terrain.png", image[::-1])


def write_vase(sides: int = 24) -> None:
    """A turned vase with normals left to the compiler and texture coordinates around its axis."""
    profile = np.array([
        (0.000, 0.000), (0.034, 0.000), (0.047, 0.022), (0.055, 0.052), (0.052, 0.082), (0.039, 0.110),
        (0.025, 0.132), (0.021, 0.150), (0.026, 0.166), (0.036, 0.178), (0.028, 0.178), (0.000, 0.160),
    ])  # fmt: skip
    lines = ["# A vase turned from a profile."]
    along = np.linspace(1, 0, len(profile))
    for (radius, z), v in zip(profile, along, strict=True):
        for side in range(sides + 1):
            angle = 2 * np.pi * side / sides
            lines.append(f"v {radius * np.cos(angle):.4f} {radius * np.sin(angle):.4f} {z:.4f}")
            lines.append(f"vt {side / sides:.4f} {v:.4f}")
    for ring in range(len(profile) - 1):
        for side in range(sides):
            a = ring * (sides + 1) + side + 1
            b, c, d = a + 1, a + sides + 2, a + sides + 1
            corners = [(a, b, c), (a, c, d)]
            if ring == 0:
                corners = [(a, c, d)]
            elif ring == len(profile) - 2:
                corners = [(a, b, d)]
            lines += ["f " + " ".join(f"{i}/{i}" for i in corner) for corner in corners]
    (DEMO / "vase.obj").write_text("\n".join(lines) + "\n")

    rows, columns = np.mgrid[0:128, 0:256]
    glaze = np.full((128, 256, 3), (0.93, 0.90, 0.84))
    wave = rows - 52 - 7 * np.sin(columns * 2 * np.pi / 32)
    glaze[np.abs(wave) < 5] = (0.16, 0.33, 0.50)
    for top, bottom in ((30, 34), (72, 76), (82, 128)):
        glaze[top:bottom] = (0.16, 0.33, 0.50)
    save_image("vase.png", glaze)


def write_crate(size: int = 192) -> None:
    """One side of a wooden crate: planks in a frame."""
    rng = np.random.default_rng(7)
    rows, columns = np.mgrid[0:size, 0:size]
    plank = rows * 5 // size
    grain = np.sin(columns / 23 + 1.7 * np.sin(rows / 3.1) + 5 * plank) * 0.03 + rng.normal(0, 0.008, (size, size))
    shade = 0.92 + np.array([0.03, -0.04, 0.05, -0.02, 0.02])[plank] + grain
    shade[(rows * 5) % size < 9] *= 0.55
    border = size // 8
    frame = np.minimum.reduce([rows, columns, size - 1 - rows, size - 1 - columns])
    shade[frame < border] = 1.08 + grain[frame < border]
    shade[(frame >= border) & (frame < border + 4)] *= 0.5
    shade[frame < 2] *= 0.7
    corner = (np.abs(np.minimum(rows, size - 1 - rows) - border / 2) ** 2
              + np.abs(np.minimum(columns, size - 1 - columns) - border / 2) ** 2)  # fmt: skip
    shade[corner < 16] = 0.45
    save_image("crate.png", shade[..., None] * (0.80, 0.60, 0.38))


def write_floor(size: int = 256) -> None:
    """Four tiles with joints between them, one of them a shade darker."""
    rng = np.random.default_rng(3)
    rows, columns = np.mgrid[0:size, 0:size]
    half = size // 2
    shade = np.array([[0.98, 0.93], [0.94, 0.99]])[rows // half, columns // half] + rng.normal(0, 0.006, (size, size))
    joint = np.minimum(rows % half, columns % half)
    shade[(joint < 2)] = 0.72
    save_image("floor.png", shade[..., None] * (0.70, 0.72, 0.75))


def save_image(name: str, colour: np.ndarray) -> None:
    """Writes colours in [0, 1], (height, width, 3), as PNG."""
    pixels = np.round(np.clip(colour, 0, 1) * 255).astype(np.uint8)
    Image.fromarray(pixels).quantize(64, dither=Image.Dither.NONE).convert("RGB").save(DEMO / name, optimize=True)


if __name__ == "__main__":
    write_terrain()
    write_vase()
    write_crate()
    write_floor()
