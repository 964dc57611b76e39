"""What our adapter calls of `ovrtx` and `ovstage`, as documented, with pictures that are easily foretold.

A picture's colour is the camera's place in its environment, in tenths of a metre. Its distances are the camera's
height, but for the first pixel, which is a miss.
"""

import sys
from contextlib import contextmanager
from enum import Enum
from types import ModuleType, SimpleNamespace

import numpy as np
from pxr import Usd, UsdGeom, UsdRender

__all__ = ["Stage", "installed"]


class Done:
    def wait(self) -> None:
        pass


class Stage:
    """Records what is written, and makes it visible up to the write floor."""

    made: "list[Stage]" = []  # noqa: RUF012

    def __init__(self, name: str):
        self.name, self.floor, self.values, self.destroyed = name, 0, {}, False
        Stage.made.append(self)

    def advance_write_floor(self, ordinal: int, scope: object) -> Done:
        assert ordinal > self.floor
        self.floor = ordinal
        return Done()

    @contextmanager
    def query_from_path_list(self, paths: list[str]):
        for path in paths:
            assert self.usd.GetPrimAtPath(path), path
        yield paths

    def write_attribute(self, query, attribute, *, ordinal, tensors, is_array, semantic) -> Done:
        assert (attribute, is_array, semantic) == ("omni:xform", False, "matrix")
        assert ordinal > self.floor
        matrices, kind, shape, ndim = tensors
        assert (kind, shape, ndim) == ((np.dtype("float64"), 16), [len(query)], 1)
        self.values = dict(zip(query, np.array(matrices).reshape(-1, 4, 4), strict=True))
        return Done()

    def destroy(self) -> None:
        self.destroyed = True


class PathDictionary:
    def __init__(self, stage: Stage):
        self.stage = stage

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def create_path_list_from_strings(self, paths):
        return list(paths)

    def intern_token(self, name):
        return name


class Mapped:
    """A mapped render variable: its memory is wiped when it is given back."""

    def __init__(self, pixels: np.ndarray):
        self._pixels = pixels

    def __dlpack__(self, **options):
        return self._pixels.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._pixels.__dlpack_device__()

    def unmap(self) -> None:
        self._pixels[...] = 99


class Renderer:
    def __init__(self):
        self.stage = None

    def attach_ovstage(self, stage: Stage) -> None:
        self.stage = stage

    def detach_ovstage(self) -> None:
        assert not self.stage.destroyed
        self.stage = None

    def step(self, *, render_products: set[str], delta_time: float, ordinal: int):
        assert delta_time > 0
        assert ordinal == self.stage.floor
        return {path: SimpleNamespace(frames=[self._frame(path)]) for path in render_products}

    def destroy(self) -> None:
        assert self.stage is None

    def _frame(self, path: str):
        product = UsdRender.Product(self.stage.usd.GetPrimAtPath(path))
        width, height = product.GetResolutionAttr().Get()
        (camera,) = product.GetCameraRel().GetTargets()
        assert UsdGeom.Camera(self.stage.usd.GetPrimAtPath(camera))
        x, y, z = self.stage.values.get(str(camera), np.eye(4))[3, :3]
        variables = {}
        for var in product.GetOrderedVarsRel().GetTargets():
            name = UsdRender.Var(self.stage.usd.GetPrimAtPath(var)).GetSourceNameAttr().Get()
            if name.startswith("Distance"):
                pixels = np.full((height, width, 1), z, np.float32)
                pixels[0, 0] = 0.0
            else:
                dtype = {"HdrColor": np.float16, "NormalSD": np.float32}.get(name, np.uint8)
                pixels = np.empty((height, width, 4), dtype)
                pixels[:] = np.round([10 * x, 10 * y, 10 * z, 255])
            variables[str(var)] = SimpleNamespace(map=lambda device, pixels=pixels: Mapped(pixels.copy()))
        return SimpleNamespace(render_vars=variables)


def _open_usd(stage: Stage, path: str, *, ordinal: int) -> None:
    stage.usd = Usd.Stage.Open(path)


def installed(monkeypatch) -> None:
    """Let `import ovrtx` and `import ovstage` find these."""
    ovrtx, ovstage = ModuleType("ovrtx"), ModuleType("ovstage")
    vars(ovrtx).update(Renderer=Renderer, Device=Enum("Device", ["CPU", "CUDA"]))
    vars(ovstage).update(
        Stage=Stage,
        Scope=Enum("Scope", ["ALL"]),
        AttributeSemantic=SimpleNamespace(MATRIX="matrix"),
        PathDictionary=PathDictionary,
        population=SimpleNamespace(open_usd=_open_usd),
        numpy_to_dldatatype=lambda dtype, lanes: (dtype, lanes),
        make_dltensor=lambda array, *, dtype, shape, ndim: (array, dtype, shape, ndim),
    )
    monkeypatch.setitem(sys.modules, "ovrtx", ovrtx)
    monkeypatch.setitem(sys.modules, "ovstage", ovstage)
    monkeypatch.delitem(sys.modules, "scene_data.renderers.ovrtx", raising=False)
