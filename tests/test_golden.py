"""The demo scene looks as it did when its golden pictures were last approved. `make golden` writes them anew."""

from dataclasses import replace
from pathlib import Path

import pytest
from gl_drivers import DRIVERS
from golden_demo import FOLDER, GEOMETRY, TOLERANCES, write_pictures

from scene_data.cli.compare import compare_files
from scene_data.cli.difference_sheet import SheetRow, draw_difference_sheet

ROOT = Path(__file__).parent.parent


def check(render_backend: str, rows: list[SheetRow]) -> None:
    """Fail with a picture of the differences, if they are beyond the tolerance."""
    beyond = [row.title for row in rows if not row.difference.is_within]
    if beyond:
        path = ROOT / "out" / f"golden_{render_backend}.png"
        path.parent.mkdir(exist_ok=True)
        draw_difference_sheet("golden", render_backend, rows).save(path)
        pytest.fail(f"{', '.join(beyond)}: not as in the golden pictures. {path} shows the differences.")


@pytest.mark.parametrize("render_backend", TOLERANCES)
def test_the_demo_looks_as_it_did(render_backend, tmp_path):
    if render_backend == "newton":
        pytest.importorskip("newton")
    if render_backend == "mujoco_gl" and not DRIVERS["egl"]:
        pytest.skip("needs libegl1 and libegl-mesa0")
    colours, geometry, tolerance = tmp_path / "colours", tmp_path / "geometry", TOLERANCES[render_backend]
    write_pictures(render_backend, colours, geometry)
    rows = compare_files(FOLDER / render_backend, colours, tolerance)
    assert len(rows) == 4
    # Newton draws no ropes, and of a cloth the middle surface alone: less than a centimetre of difference.
    rows += compare_files(FOLDER / GEOMETRY, geometry, replace(tolerance, share=0.005))
    assert len(rows) == 12
    check(render_backend, rows)


def test_a_difference_fails_and_shows_where_to_look(tmp_path, monkeypatch):
    monkeypatch.setattr("test_golden.ROOT", tmp_path)
    rows = compare_files(FOLDER / "mujoco_warp", FOLDER / "mujoco_gl", TOLERANCES["mujoco_gl"])
    with pytest.raises(pytest.fail.Exception, match=r"front\.rgb\.png.*golden_mujoco_gl\.png shows the differences"):
        check("mujoco_gl", rows)
    assert (tmp_path / "out" / "golden_mujoco_gl.png").stat().st_size > 10_000


def test_the_pictures_are_small():
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".png"}
    assert sum(path.stat().st_size for path in files) < 400_000
