"""Controls that a script of the user's computes: `--policy script.py`."""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from scene_data.errors import SceneDataError
from scene_data.simulation import SimulationContext

__all__ = ["PolicyControl", "PolicyError", "load_policy"]

_MODULE = "scene_data_policy"


class PolicyError(SceneDataError, ValueError):
    """A policy script that cannot be used, or that failed.

    Attributes:
        path: The script.
        line: The line of it that failed, None where it is not one line.
        reason: What went wrong.
    """

    def __init__(self, path: Path, reason: str, line: int | None = None):
        self.path = path
        self.line = line
        self.reason = reason
        where = str(path) if line is None else f"{path}, line {line}"
        super().__init__(f"The policy {where}: {reason}")


class PolicyControl:
    """The controls that a script's `policy(sim)` returns.

    Args:
        path: The script. It defines `policy(sim)`, which returns the controls of all environments, an array or tensor
            of shape `(num_envs, nu)`, or `(nu,)` for all alike; and, if it likes, `setup(sim)`, which is called once
            before the first step. `sim` is the `SimulationContext`.
        sim: The simulation to be controlled.

    Raises:
        PolicyError: The script is missing, does not run, defines no `policy`, or its `setup` failed.
    """

    def __init__(self, path: Path, sim: SimulationContext):
        self._path = path
        self._sim = sim
        module = load_policy(path)
        self._policy = module.policy
        if (setup := getattr(module, "setup", None)) is not None:
            self._call(setup)

    def __call__(self, step: int) -> np.ndarray:
        """The controls of all environments, shape (N, nu).

        Raises:
            PolicyError: The policy failed, or returned something else.
        """
        shape = (self._sim.num_envs, len(self._sim.physics.control_range))
        returned = _on_host(self._call(self._policy))
        try:
            if returned is None:  # which NumPy takes for a NaN
                raise TypeError
            return np.broadcast_to(np.asarray(returned, dtype=float), shape)
        except (TypeError, ValueError):
            got = f"shape {np.shape(returned)}" if isinstance(returned, np.ndarray) else repr(returned)
            raise PolicyError(self._path, f"policy() must return controls of shape {shape}, got {got}") from None

    def _call(self, function: Callable[[SimulationContext], Any]) -> Any:
        try:
            return function(self._sim)
        except Exception as error:  # whatever a user's script raises is told with the place where it did
            raise _failure(self._path, error) from error


def load_policy(path: Path) -> ModuleType:
    """Run a policy script.

    Raises:
        PolicyError: It is missing, does not run, or defines no function `policy`.
    """
    if not path.is_file():
        raise PolicyError(path, "there is no such file")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise PolicyError(path, "it is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    # As `python script.py` has it, what lies beside the script can be imported.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # as above
        raise _failure(path, error) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    if not callable(getattr(module, "policy", None)):
        raise PolicyError(path, "it defines no function `policy(sim)` that returns the controls")
    return module


def _failure(path: Path, error: Exception) -> PolicyError:
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and _is_same(error.filename, path):
        return PolicyError(path, f"SyntaxError: {error.msg}", error.lineno)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_same(frame.filename, path)]
    if not frames:
        return PolicyError(path, reason)
    return PolicyError(path, f"in {frames[-1].name}: {reason}", frames[-1].lineno)


def _is_same(filename: str | None, path: Path) -> bool:
    return filename is not None and Path(filename).resolve() == path.resolve()


def _on_host(values: Any) -> Any:
    """Tensors and Warp arrays as NumPy arrays."""
    for method in ("detach", "cpu", "numpy"):
        if hasattr(values, method):
            values = getattr(values, method)()
    return values
