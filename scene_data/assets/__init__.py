"""Models that ship with the package."""

from importlib.resources import files
from pathlib import Path

__all__ = ["demo_model_path"]


def demo_model_path() -> Path:
    """Path of the demo scene's MJCF file, beside the textures and meshes that it names.

    The scene holds a legged robot with an arm (18 position actuators), a height field, a cloth, a cable, textured
    props, a mocap target (body `target`) and the cameras `front`, `overhead`, `track` and `wrist`. All joint angles are
    zero in its standing pose, which is also its keyframe `home`.

    Returns:
        A path in the file system. MuJoCo resolves the files that the scene includes against it, so the package must
        be installed unzipped.

    Raises:
        FileNotFoundError: If the package lies in an archive, where MuJoCo could not read it.
    """
    path = Path(str(files(__name__).joinpath("demo", "demo.xml")))
    if not path.is_file():
        raise FileNotFoundError(f"The demo model is not a file: {path}. Install scene-data unzipped.")
    return path
