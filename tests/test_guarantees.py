"""The page of guarantees names tests that exist; and who the core knows."""

import ast
import re
from pathlib import Path

import pytest
from test_house import ROOT, imported_modules

PAGE = ROOT / "docs" / "guarantees.md"
TEST_ID = re.compile(r"`([\w/]+\.py)::([\w:]+)`")
ROW = re.compile(r"^\| (?!guarantee)(?!---)(.+?) \| (.+) \|$", re.MULTILINE)
TEST_IDS = sorted({match.groups() for match in TEST_ID.finditer(PAGE.read_text())})


def names_in(path: Path) -> set[str]:
    """Names of the tests of a file: functions, `Class::method`, and what assigns a class of tests."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize(("file", "name"), TEST_IDS, ids=[f"{file}-{name}" for file, name in TEST_IDS])
def test_what_the_page_names_exists(file, name):
    assert name.rsplit("::", 1)[-1].startswith(("test_", "Test"))
    assert name in names_in(ROOT / "tests" / file)


def test_every_guarantee_names_a_test():
    guarantees, _ = PAGE.read_text().split("\n## What it costs\n")
    rows = ROW.findall(guarantees)
    assert len(rows) > 60
    assert [guarantee for guarantee, tests in rows if not TEST_ID.search(tests)] == []


CORE = ("core", "frames", "leases", "slots", "arena", "writers", "turn_queue", "turns", "backend_host", "demand")


@pytest.mark.parametrize("module", CORE)
def test_the_core_knows_no_engine_and_no_transport(module):
    others = ("mujoco", "newton", "ovphysx", "rclpy", "rospy", "cyclonedds", "mcap")
    names = set(imported_modules(ROOT / "renderers" / "render_core" / f"{module}.py"))
    assert not {name for name in names if name.split(".")[0] in others}
    assert not {name for name in names if "backends" in name or "transports" in name or ".physics" in name}
