"""What a cell of a notebook shows: run by a real kernel, and looked at in a browser."""

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ipykernel")
nbclient = pytest.importorskip("nbclient")

import nbformat  # noqa: E402
from browser import CHROMIUM, Browser  # noqa: E402

from scene_data.visualizers import BaseVisualizer, VisualizerCfg  # noqa: E402

SET_UP = """
import mujoco
from scene_data import SimulationCfg, SimulationContext
from scene_data.backends import MujocoPhysicsCfg
from scene_data.visualizers import {cfg}

model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><geom type='sphere' size='1' rgba='0 1 0 1'/></worldbody></mujoco>"
)
viewer_cfg = {cfg}({ports}, eye=(0.0, -4.0, 1.0), lookat=(0.0, 0.0, 0.0))
sim = SimulationContext(SimulationCfg(MujocoPhysicsCfg(model), visualizer_cfgs=[viewer_cfg]))
sim.step()
"""


class Address(BaseVisualizer):
    """Shows nothing, and says where."""

    url: str | None = None

    @property
    def address(self) -> str | None:
        return self.url

    def step(self, dt: float) -> None:
        pass


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, None),
        ("run.rrd", None),
        ("rerun+http://127.0.0.1:9876/proxy", None),
        ("http://127.0.0.1:1/?a=1&b=2", 'src="http://127.0.0.1:1/?a=1&amp;b=2"'),
    ],
)
def test_a_cell_shows_pages_alone_and_those_that_are_open(url, shown):
    viewer = Address(VisualizerCfg())
    viewer.url = url
    html = viewer._repr_html_()
    assert html is None if shown is None else html is not None and shown in html
    viewer.close()
    assert viewer._repr_html_() is None


@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
@pytest.mark.parametrize(
    ("cfg", "library", "ports"),
    [("ViserVisualizerCfg", "viser", "port=0"), ("RerunVisualizerCfg", "rerun", "web_port=0, grpc_port=0")],
)
def test_a_cell_shows_the_scene(cfg, library, ports, tmp_path):
    pytest.importorskip(library)
    cells = [SET_UP.format(cfg=cfg, ports=ports), "sim.visualizers[0]", "sim.step()", "sim.close()"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        client.execute_cell(notebook.cells[0], 0)
        client.execute_cell(notebook.cells[1], 1)
        (output,) = notebook.cells[1].outputs
        page = tmp_path / "cell.html"
        page.write_text(f"<!doctype html><title>cell</title><body>{output.data['text/html']}</body>")
        client.execute_cell(notebook.cells[2], 2)
        picture = _opened(page)
        client.execute_cell(notebook.cells[3], 3)
    assert _green(picture).sum() > 2000, "the ball is not seen"


def _opened(page: Path) -> np.ndarray:
    """A picture of a page once there is something green on it."""
    browser = Browser(800, 640)
    try:
        shown = browser.page(page.as_uri())
        deadline = time.monotonic() + 60.0
        while True:
            time.sleep(0.5)
            try:
                picture = shown.picture()
            except RuntimeError:  # it is on the way to the address
                continue
            if _green(picture).sum() > 2000 or time.monotonic() > deadline:
                shown.close()
                return picture
    finally:
        browser.close()


def _green(picture: np.ndarray) -> np.ndarray:
    red, green, blue = np.moveaxis(picture.astype(int), -1, 0)
    return (green > 100) & (red < green - 60) & (blue < green - 60)
