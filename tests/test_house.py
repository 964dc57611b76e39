"""The layout holds: one namespace, one direction of imports, nothing heavy before it is needed."""

import ast
import configparser
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).parent.parent
INSTALLED_AS = {
    "scene_data": "scene_data",
    "backends": "scene_data/backends",
    "renderers": "scene_data/renderers",
    "visualizers": "scene_data/visualizers",
}
NOT_AT_IMPORT = {
    "PIL",
    "av",
    "imageio",
    "mujoco",
    "mujoco_warp",
    "newton",
    "pxr",
    "rerun",
    "rich",
    "torch",
    "tyro",
    "viser",
}


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


ALL_SOURCES = [path for folder in INSTALLED_AS for path in sources(folder)]


def installed_name(path: Path) -> str:
    folder, *rest = path.relative_to(ROOT).parts
    return "/".join([INSTALLED_AS[folder], *rest])


def imported_modules(path: Path) -> Iterator[str]:
    """Absolute names of all modules that a file imports anywhere, inside functions too."""
    package = installed_name(path).split("/")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def is_public(path: Path) -> bool:
    return not any(part.startswith("_") for part in path.relative_to(ROOT).with_suffix("").parts)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_importing_the_core_loads_no_optional_library():
    script = f"import sys, scene_data; print(*sorted({NOT_AT_IMPORT} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


@pytest.mark.parametrize("package", ["scene_data.backends", "scene_data.renderers", "scene_data.visualizers"])
def test_importing_an_adapter_package_loads_no_adapter(package: str):
    script = f"import sys, {package}; print(*sorted({NOT_AT_IMPORT} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


@pytest.mark.parametrize("path", sources("scene_data"), ids=name_of)
def test_the_core_imports_no_adapter(path: Path):
    adapters = ("scene_data.backends", "scene_data.renderers", "scene_data.visualizers")
    assert [name for name in imported_modules(path) if name.startswith(adapters)] == []


@pytest.mark.parametrize(
    ("folder", "others"),
    [
        ("backends", ("scene_data.renderers", "scene_data.visualizers")),
        ("renderers", ("scene_data.backends", "scene_data.visualizers")),
        ("visualizers", ("scene_data.backends", "scene_data.renderers")),
    ],
)
def test_adapters_of_one_kind_import_none_of_another(folder: str, others: tuple[str, ...]):
    crossing = {name_of(path): [n for n in imported_modules(path) if n.startswith(others)] for path in sources(folder)}
    assert {path: names for path, names in crossing.items() if names} == {}


@pytest.mark.parametrize("path", [path for path in ALL_SOURCES if is_public(path)], ids=name_of)
def test_a_public_module_says_what_it_exports(path: Path):
    tree = ast.parse(path.read_text())
    assert "__all__" in set(_assigned_names(tree))
    assert ast.get_docstring(tree), "a module says in its first line what it is for"


def _assigned_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_no_module_is_a_drawer_for_everything():
    assert [name_of(path) for path in ALL_SOURCES if path.stem in {"utils", "util", "helpers", "misc", "common"}] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The built wheel, from a copy so that no earlier build can leave files in it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ["pyproject.toml", "README.md", "LICENSE"]:
        (tree / name).write_bytes((ROOT / name).read_bytes())
    for folder in INSTALLED_AS:
        copytree(ROOT / folder, tree / folder, ignore=ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-q", "-w", str(out)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(tree)], check=True)
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_one_namespace(wheel: zipfile.ZipFile):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert "scene_data" in tops
    assert {top for top in tops - {"scene_data"} if not top.endswith(".dist-info")} == set()


def test_the_wheel_holds_every_file_of_the_four_folders(wheel: zipfile.ZipFile):
    files = [path for folder in INSTALLED_AS for path in (ROOT / folder).rglob("*") if path.is_file()]
    expected = {installed_name(path) for path in files if "__pycache__" not in path.parts}
    assert {"scene_data/py.typed", "scene_data/renderers/render_core/__init__.py"} <= expected
    assert expected - set(wheel.namelist()) == set()


def test_every_entry_point_names_a_module_in_the_wheel(wheel: zipfile.ZipFile):
    (declared,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    groups = configparser.ConfigParser(delimiters="=")
    groups.read_string(wheel.read(declared).decode())
    modules = {target.split(":")[0] for group in groups.sections() for target in groups[group].values()}
    files = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in wheel.namelist()}
    assert {"scene_data.backends.mujoco", "scene_data.cli"} <= modules
    assert modules - files == set()


@pytest.mark.parametrize(
    "package",
    ["scene_data", "scene_data.backends", "scene_data.renderers", "scene_data.renderers.transports",
     "scene_data.visualizers"],
)  # fmt: skip
def test_everything_is_imported_where_no_optional_library_is_installed(package):
    code = f"""
import sys
from scene_data.optional import EXTRA_OF_LIBRARY
sys.modules.update(dict.fromkeys(EXTRA_OF_LIBRARY))
from {package} import *
import {package}
assert set(dir({package})) >= set({package}.__all__)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
