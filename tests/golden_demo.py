"""The golden pictures of the demo scene: what they show, where they are, and `make golden`, which writes them anew."""

import shutil
from pathlib import Path

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.camera import CameraCfg
from scene_data.picture_difference import Tolerance
from scene_data.picture_files import write_planes

__all__ = ["FOLDER", "GEOMETRY", "TOLERANCES", "write_pictures"]

FOLDER = Path(__file__).parent / "golden"

GEOMETRY = "geometry"
"""The folder of depth and segmentation, in which the render backends agree; each has one of its own for colours."""

CAMERAS = {"front": (224, 168), "overhead": (128, 128), "track": (160, 120), "wrist": (96, 72)}

# The ray tracers compute the same everywhere, but for the last bit of a float: a ray past an edge may fall on its other
# side. What OpenGL leaves open is decided by each version of Mesa and by each driver: where in a pixel the samples lie,
# how textures are filtered, which pixels an edge covers and how rough a shadow's edge is. Along edges and in fine
# textures, pixels may therefore differ by more, while lost lights, shadows or textures change far more of them.
TRACED = Tolerance(mean_levels=0.5, levels=8.0, metres=0.01, share=0.005)
TOLERANCES = {
    "mujoco_warp": TRACED,
    "newton": TRACED,
    "mujoco_gl": Tolerance(mean_levels=2.0, levels=24.0, metres=0.01, share=0.02),
}


def write_pictures(render_backend: str, colours: Path, geometry: Path) -> None:
    """Write what the cameras see of the demo at the start: RGB into one folder, depth and segmentation into another."""
    planes = ("rgb", "depth", "segmentation")
    cameras = [CameraCfg(name, *size, planes) for name, size in CAMERAS.items()]
    cfg = SimulationCfg(MujocoPhysicsCfg("demo"), cameras=cameras, render_backend=render_backend)
    with SimulationContext(cfg) as sim:
        for name, camera in sim.cameras.items():
            rgb, depth, segmentation = (camera.data[plane].numpy()[0] for plane in planes)
            write_planes(colours, name, {"rgb": rgb})
            write_planes(geometry, name, {"depth": depth, "segmentation": segmentation})


def main() -> None:
    """Write all of them anew, and say how large they are."""
    unused = FOLDER / "unused"
    for backend in TOLERANCES:
        write_pictures(backend, FOLDER / backend, FOLDER / GEOMETRY if backend == "mujoco_warp" else unused)
    shutil.rmtree(unused)
    for folder in sorted(path for path in FOLDER.iterdir() if path.is_dir()):
        print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
