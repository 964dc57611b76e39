"""Models that other people made, from the packages of the `dev` extra: real input for the tests."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import mujoco
import pytest

__all__ = ["REAL_MODELS", "ROBOTS", "TEST_DATA", "load", "model_id"]

_ROBOTS = {
    "gymnasium_robotics": (
        "envs/assets/adroit_hand/adroit_door.xml",
        "envs/assets/adroit_hand/adroit_relocate.xml",
        "envs/assets/fetch/pick_and_place.xml",
        "envs/assets/fetch/push.xml",
        "envs/assets/hand/manipulate_block.xml",
        "envs/assets/hand/reach.xml",
        "envs/assets/kitchen_franka/kitchen_assets/kitchen_env_model.xml",
    ),
    "dm_control": (
        "locomotion/walkers/assets/dog_v2/dog.xml",
        "locomotion/walkers/assets/fruitfly_v2/floor.xml",
        "locomotion/walkers/assets/humanoid_CMU_V2020.xml",
        "locomotion/walkers/assets/rodent.xml",
        "suite/dog.xml",
        "suite/fish.xml",
        "suite/humanoid_CMU.xml",
        "suite/manipulator.xml",
        "suite/quadruped.xml",
        "suite/walker.xml",
        "third_party/kinova/jaco_arm.xml",
    ),
}


def _package(name: str) -> Path:
    # Found without an import, which would cost more than the tests.
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"The tests need {name}: pip install 'scene-data[dev]'")
    return Path(spec.submodule_search_locations[0])


TEST_DATA: tuple[Path, ...] = tuple(sorted((_package("mujoco_warp") / "test_data").rglob("*.xml")))
"""Every file under `mujoco_warp/test_data`; not all of them are models that compile."""

ROBOTS: tuple[Path, ...] = tuple(_package(package) / name for package, names in _ROBOTS.items() for name in names)
"""Hands, arms, legs and animals, with meshes, skins, tendons, mocap bodies and height fields."""

REAL_MODELS: tuple[Path, ...] = TEST_DATA + ROBOTS


def model_id(path: Path) -> str:
    """A short name for a parametrized test."""
    return "/".join(path.parts[-2:]).removesuffix(".xml")


@cache
def load(path: Path) -> mujoco.MjModel:
    """The compiled model, shared: not to be written to. A file that MuJoCo itself refuses skips the test."""
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        if path in ROBOTS:
            raise
        pytest.skip(f"MuJoCo does not compile it: {str(error).splitlines()[0]}")
