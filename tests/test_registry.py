"""Adapters are found by name, lazily, from entry points and from `register`."""

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from scene_data import optional, registry
from scene_data.errors import AdapterLoadError, MissingDependencyError, UnknownNameError
from scene_data.registry import Registry

GROUP = "scene_data.backends"

InstallPlugin = Callable[..., None]


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterable[InstallPlugin]:
    """Return a function that puts a third party's distribution on the import path."""
    loaded = set(sys.modules)

    def install(distribution: str, entries: dict[str, str], modules: dict[str, str]) -> None:
        site = tmp_path / distribution
        info = site / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {target}" for name, target in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]))
        for module, source in modules.items():
            (site / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(str(site))

    yield install
    for module in set(sys.modules) - loaded:
        del sys.modules[module]


def fresh_registry() -> Registry:
    return Registry(GROUP, "physics backend")


def test_built_in_names_are_known_without_importing_them():
    assert {"mujoco", "mujoco_batch", "mujoco_warp"} <= set(registry.backends.names())
    assert {"mujoco_warp", "disabled"} <= set(registry.renderers.names())
    assert list(registry.renderers.names()) == sorted(registry.renderers.names())


@pytest.mark.parametrize("adapters", [registry.backends, registry.renderers, registry.visualizers])
def test_every_declared_adapter_loads_or_names_its_extra(adapters: Registry):
    for name in adapters.names():
        try:
            assert isinstance(adapters.get(name), type)
        except MissingDependencyError:
            continue


def test_a_plugin_adds_a_backend_without_a_patch(install_plugin: InstallPlugin):
    source = "class Engine: pass\n"
    install_plugin("other-engine", {"other": "other_engine_plugin:Engine"}, {"other_engine_plugin": source})
    found = fresh_registry()
    assert "other" in found.names()
    assert "mujoco" in found.names()
    assert "other_engine_plugin" not in sys.modules, "listing names must not import them"
    engine = found.get("other")
    assert engine.__name__ == "Engine"
    assert found.get("other") is engine


def test_an_unknown_name_lists_the_known_ones(install_plugin: InstallPlugin):
    install_plugin("listed", {"listed_engine": "listed_plugin:Engine"}, {})
    with pytest.raises(
        UnknownNameError, match=r"Unknown physics backend 'mujocco'\. Known: .*listed_engine.*mujoco"
    ) as e:
        fresh_registry().get("mujocco")
    assert e.value.name == "mujocco"
    assert "mujoco_batch" in e.value.known


def test_a_missing_optional_library_names_the_extra(install_plugin: InstallPlugin, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(optional.EXTRA_OF_LIBRARY, "absent_library", "special")
    source = "from absent_library.inner import thing\nclass Engine: pass\n"
    install_plugin("needy", {"needy": "needy_plugin:Engine"}, {"needy_plugin": source})
    with pytest.raises(MissingDependencyError, match=r"physics backend 'needy' needs 'absent_library'.*\[special\]"):
        fresh_registry().get("needy")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import library_of_theirs\n", "No module named 'library_of_theirs'"),
        ("raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
        ("class Renamed: pass\n", "has no attribute 'Engine'"),
    ],
    ids=["unknown library", "raises", "no such class"],
)
def test_a_broken_plugin_is_named_and_leaves_the_others_alone(install_plugin: InstallPlugin, source: str, reason: str):
    install_plugin(
        "half-broken",
        {"broken": "broken_plugin:Engine", "sound": "sound_plugin:Engine"},
        {"broken_plugin": source, "sound_plugin": "class Engine: pass\n"},
    )
    found = fresh_registry()
    with pytest.raises(AdapterLoadError, match=reason) as raised:
        found.get("broken")
    assert (raised.value.adapter, raised.value.target) == ("broken", "broken_plugin:Engine")
    assert found.get("sound").__name__ == "Engine"


def test_a_plugin_cannot_take_a_built_in_name(install_plugin: InstallPlugin, caplog: pytest.LogCaptureFixture):
    install_plugin("usurper", {"mujoco": "usurper_plugin:Engine"}, {"usurper_plugin": "class Engine: pass\n"})
    with caplog.at_level(logging.WARNING):
        assert "mujoco" in fresh_registry().names()
    assert "usurper_plugin:Engine" in caplog.text
    assert fresh_registry().get("mujoco").__module__ == "scene_data.backends.mujoco"


def test_register_takes_a_class_or_a_path():
    found = fresh_registry()
    found.register("a_class", Path)
    found.register("a_path", "pathlib:PurePath")
    assert found.get("a_class") is Path
    assert found.get("a_path").__name__ == "PurePath"


def test_register_refuses_a_name_that_is_taken():
    found = fresh_registry()
    found.register("mine", Path)
    found.register("mine", Path)
    with pytest.raises(ValueError, match=r"'mine' is taken by 'pathlib:Path'"):
        found.register("mine", "pathlib:PurePath")
    with pytest.raises(ValueError, match=r"'mujoco' is taken by 'scene_data\.backends\.mujoco:"):
        found.register("mujoco", Path)


@pytest.mark.parametrize("target", ["pathlib", "pathlib:", ":Path", ""])
def test_register_refuses_a_target_of_another_form(target: str):
    with pytest.raises(ValueError, match=r"'mine' needs a target 'module:attribute', not"):
        fresh_registry().register("mine", target)


def test_installed_passes_over_what_cannot_be_imported(install_plugin: InstallPlugin, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(optional.EXTRA_OF_LIBRARY, "absent_library", "special")
    install_plugin(
        "mixed",
        {"absent": "mixed_absent:Engine", "broken": "mixed_broken:Engine", "whole": "mixed_whole:Engine"},
        {
            "mixed_absent": "import absent_library\nclass Engine: pass\n",
            "mixed_broken": "raise RuntimeError('broken')\n",
            "mixed_whole": "class Engine: pass\n",
        },
    )
    installed = dict(fresh_registry().installed())
    assert installed["whole"].__name__ == "Engine"
    assert {"absent", "broken"}.isdisjoint(installed)


def test_a_lazy_export_names_the_extra_too(monkeypatch: pytest.MonkeyPatch):
    from scene_data import backends

    monkeypatch.setitem(sys.modules, "ovphysx", None)
    monkeypatch.delitem(sys.modules, "scene_data.backends.ovphysx", raising=False)
    with pytest.raises(MissingDependencyError, match=r"OvPhysxSceneDataBackend needs 'ovphysx'.*\[physx\]"):
        backends.OvPhysxSceneDataBackend  # noqa: B018
