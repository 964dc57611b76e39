"""The example in examples/ learns, from pixels alone."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("gymnasium")
pytest.importorskip("torch")

SCRIPT = Path(__file__).parent.parent / "examples" / "cartpole_from_pixels.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[SCRIPT.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_pupil_rises_above_random_pushes(example, tmp_path):
    settings = example.Settings(rounds=6, num_envs=8)
    random, teacher, *pupil = example.learn(settings)
    assert teacher.mean == example.EPISODE_STEPS
    assert random.mean < 30.0
    assert max(outcome.mean for outcome in pupil) > 3.0 * random.mean
    assert pupil[-1].frames > pupil[0].frames > 0
    example.draw_curve([random, teacher, *pupil], tmp_path / "curve.png")
    colours = np.asarray(Image.open(tmp_path / "curve.png")).reshape(-1, 3)
    assert (colours == (0x1F, 0x5F, 0xB4)).all(axis=1).sum() > 200


def test_the_pupil_sees_where_the_cart_and_the_pole_are(example):
    """Depth alone: what stands before the wall is the cart-pole, and it is where the state says."""
    env = example.make_env(4)
    observation, _ = env.reset(seed=1)
    image, state = example.look(observation), observation["state"].numpy()
    assert image.shape == (4, 1, 48, 48)
    rows = slice(15, 21)  # which only the pole reaches
    pole = (image[:, 0].numpy() > 0.3)[:, rows].astype(float)
    where = (pole * (np.arange(48) + 0.5)).sum(axis=(1, 2)) / pole.sum(axis=(1, 2))
    pixels_per_metre = 24.0 / np.tan(np.radians(25.0)) / 2.4
    height = 0.4 + (24.0 - 18.0) / pixels_per_metre
    expected = 24.0 + pixels_per_metre * (state[:, 0] + np.tan(state[:, 1]) * height)
    np.testing.assert_allclose(where, expected, atol=0.6)
    env.close()
