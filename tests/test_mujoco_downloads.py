"""Models by name, from robot_descriptions itself. Its cache is filled beforehand: tests do not go online."""

import os
import subprocess
import sys

import mujoco
import pytest

from scene_data.backends.mujoco_model import load_mujoco_model
from scene_data.errors import MissingDependencyError, ModelLoadError, UnknownNameError

XML = "<mujoco model='stand-in'><worldbody><body name='torso'><geom size='0.1'/></body></worldbody></mujoco>"
DESCRIPTION = "g1_mj_description"


@pytest.fixture(autouse=True)
def forgets_descriptions():
    yield
    for name in [name for name in sys.modules if name.startswith("robot_descriptions")]:
        del sys.modules[name]


def git(folder, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache that holds one revision of a menagerie with one robot."""
    draft = tmp_path / "draft"
    (draft / "unitree_g1").mkdir(parents=True)
    (draft / "unitree_g1" / "g1.xml").write_text(XML)
    git(draft, "init", "-q")
    git(draft, "add", ".")
    git(draft, "commit", "-q", "-m", "one robot")
    revision = git(draft, "rev-parse", "HEAD")
    place = tmp_path / "cache" / f"mujoco_menagerie-{revision}" / "mujoco_menagerie"
    place.parent.mkdir(parents=True)
    draft.rename(place)
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ROBOT_DESCRIPTION_COMMIT", revision)
    return place


def test_a_description_is_loaded_by_its_name(cache):
    model = load_mujoco_model(DESCRIPTION)
    assert model.names.startswith(b"stand-in")
    assert model.body("torso").id == 1


def test_a_file_of_that_name_comes_first(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mujoco.mj_saveModel(mujoco.MjModel.from_xml_string("<mujoco model='mine'/>"), "model.mjb")
    os.rename("model.mjb", DESCRIPTION)
    with pytest.raises(ModelLoadError, match=DESCRIPTION):  # it is read as XML, and is none
        load_mujoco_model(DESCRIPTION)


def test_an_unknown_description_is_told_with_those_like_it():
    with pytest.raises(UnknownNameError, match="'g2_mj_description'.*g1_mj_description"):
        load_mujoco_model("g2_mj_description")


def test_a_download_that_fails_names_the_model(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBOT_DESCRIPTIONS_CACHE", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "url.file:///nowhere/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://")
    with pytest.raises(ModelLoadError, match=f"{DESCRIPTION}.*could not be downloaded"):
        load_mujoco_model(DESCRIPTION)


def test_the_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "robot_descriptions", None)
    with pytest.raises(MissingDependencyError, match=r"scene-data\[descriptions\]"):
        load_mujoco_model(DESCRIPTION)
