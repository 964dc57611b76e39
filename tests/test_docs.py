"""The Python in the documentation runs as it is printed."""

import re
from pathlib import Path

import pytest

from scene_data import SimulationContext

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

PAGES_WITH_EXAMPLES = [page for page in PAGES if EXAMPLE.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_their_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        for example in EXAMPLE.finditer(text):
            above = text.count("\n", 0, example.start(1))  # so that a traceback shows the line of the page
            exec(compile("\n" * above + example[1], page, "exec"), names)
    finally:
        while SimulationContext.instance() is not None:  # a notebook's cell leaves its simulation open
            SimulationContext.clear_instance()
