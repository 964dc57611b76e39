"""`scene-data view --policy`: controls from a script of the user's, and what is said when it fails."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.cli import main
from scene_data.cli.policy import PolicyControl, PolicyError, load_policy

CART = """
<mujoco model="cart">
  <option timestep="0.01"/>
  <worldbody><body name="cart"><joint name="x" type="slide" axis="1 0 0"/><geom size=".1" mass="1"/></body></worldbody>
  <actuator><motor joint="x"/><motor joint="x"/></actuator>
</mujoco>
"""


@pytest.fixture
def cart(tmp_path) -> Path:
    path = tmp_path / "cart.xml"
    path.write_text(CART)
    return path


@pytest.fixture
def sim(cart):
    with SimulationContext(SimulationCfg(MujocoPhysicsCfg(cart, "mujoco_batch", num_envs=3))) as context:
        yield context


def script(tmp_path, text: str) -> Path:
    path = tmp_path / "walk.py"
    path.write_text(text)
    return path


class TestControls:
    def test_they_are_what_the_script_returns(self, sim, tmp_path):
        path = script(
            tmp_path,
            "import numpy as np\n"
            "def setup(sim):\n    sim.gain = 2.0\n"
            "def policy(sim):\n"
            "    return sim.gain * np.arange(6.0).reshape(sim.num_envs, 2) + sim.simulation_time_ns\n",
        )
        control = PolicyControl(path, sim)
        np.testing.assert_array_equal(control(0), 2.0 * np.arange(6.0).reshape(3, 2))
        sim.step()
        np.testing.assert_array_equal(control(1), 2.0 * np.arange(6.0).reshape(3, 2) + 10_000_000)

    @pytest.mark.parametrize("returned", ["[1.0, 2.0]", "np.array([1.0, 2.0])", "torch.tensor([1.0, 2.0])"])
    def test_one_row_is_for_all_environments(self, sim, tmp_path, returned):
        if "torch" in returned:
            pytest.importorskip("torch")
        library = "torch" if "torch" in returned else "numpy as np"
        path = script(tmp_path, f"import {library}\ndef policy(sim):\n    return {returned}\n")
        np.testing.assert_array_equal(PolicyControl(path, sim)(0), [[1.0, 2.0]] * 3)

    def test_what_lies_beside_the_script_can_be_imported(self, sim, tmp_path):
        (tmp_path / "gains_of_walk.py").write_text("GAINS = (3.0, 4.0)\n")
        path = script(tmp_path, "from gains_of_walk import GAINS\ndef policy(sim):\n    return GAINS\n")
        np.testing.assert_array_equal(PolicyControl(path, sim)(0)[0], (3.0, 4.0))


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "line", "reason"),
        [
            ("def policy(sim:\n    return 0\n", 1, "SyntaxError: "),
            ("x = 1\nimport nowhere_at_all\n", 2, "ModuleNotFoundError: No module named 'nowhere_at_all'"),
            ("def act(sim):\n    return 0\n", None, "defines no function `policy"),
        ],
    )
    def test_a_script_that_does_not_run_is_told_by_file_and_line(self, tmp_path, text, line, reason):
        path = script(tmp_path, text)
        with pytest.raises(PolicyError) as error:
            load_policy(path)
        assert error.value.line == line
        assert reason in str(error.value)
        assert str(path) in str(error.value)

    def test_the_line_of_the_script_counts_and_not_that_of_a_library(self, sim, tmp_path):
        path = script(tmp_path, "import numpy as np\n\ndef policy(sim):\n    return np.linalg.inv(np.zeros((2, 2)))\n")
        with pytest.raises(PolicyError, match=r"walk\.py, line 4: in policy: LinAlgError: Singular matrix"):
            PolicyControl(path, sim)(0)

    def test_setup_fails_before_the_first_step(self, sim, tmp_path):
        path = script(tmp_path, "def policy(sim): return 0\ndef setup(sim):\n    raise RuntimeError('no weights')\n")
        with pytest.raises(PolicyError, match=r"line 3: in setup: RuntimeError: no weights"):
            PolicyControl(path, sim)

    @pytest.mark.parametrize(("returned", "got"), [("np.zeros(3)", r"shape \(3,\)"), ("None", "None"), ("'a'", "'a'")])
    def test_controls_of_another_shape_are_told_with_the_right_one(self, sim, tmp_path, returned, got):
        path = script(tmp_path, f"import numpy as np\ndef policy(sim):\n    return {returned}\n")
        with pytest.raises(PolicyError, match=rf"shape \(3, 2\), got {got}"):
            PolicyControl(path, sim)(0)

    def test_a_file_that_is_not_there(self, cart, capsys):
        with pytest.raises(SystemExit) as stop:
            main(["view", str(cart), "--policy", "nowhere.py", "--headless", "--steps", "1"])
        assert stop.value.code == 2
        assert "nowhere.py: there is no such file" in " ".join(capsys.readouterr().err.split())
        with pytest.raises(SystemExit):
            main(["view", str(cart), "--policy", "nowhere.py", "--control", "random", "--headless", "--steps", "1"])
        assert "leave out one" in capsys.readouterr().err


def test_the_command_runs_it_and_saves_what_was_recorded_when_it_fails(cart, tmp_path, capsys):
    pytest.importorskip("viser")
    path = script(
        tmp_path,
        "def policy(sim):\n"
        "    if sim.simulation_time_ns >= 500_000_000:\n"
        "        raise ValueError('fell over')\n"
        "    return [[1.0, 0.0]] * sim.num_envs\n",
    )
    recording = tmp_path / "run.viser"
    arguments = ["view", str(cart), "--policy", str(path), "--headless", "--port", "0", "--num-envs", "2"]
    main([*arguments, "--engine", "mujoco_batch", "--steps", "20"])
    assert "40 (" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--steps", "100", "--record", str(recording)])
    assert stop.value.code == 2
    assert "walk.py, line 3: in policy: ValueError: fell over" in capsys.readouterr().err
    assert recording.stat().st_size > 1000
    assert SimulationContext.instance() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_end_the_command_cleanly_and_keep_the_recording(cart, tmp_path, number):
    pytest.importorskip("viser")
    recording = tmp_path / "run.viser"
    path = script(tmp_path, "def policy(sim):\n    return (1.0, 0.0)\n")
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from scene_data.cli import main\n"
        f"main(['view', {str(cart)!r}, '--port', '0', '--record', {str(recording)!r}, '--policy', {str(path)!r}])"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = " "
        while line and "Ctrl-C ends it" not in line:
            line = process.stdout.readline()
        assert line, "it ended by itself"
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(30) == 0
    assert "steps" in rest
    assert "run.viser" in rest
    assert recording.stat().st_size > 1000
