"""A stage read back with plain USD."""

import numpy as np
from pxr import Usd, UsdGeom, UsdValidation


def validation_errors(stage: Usd.Stage) -> list[str]:
    validators = UsdValidation.ValidationRegistry().GetOrLoadAllValidators()
    assert len(validators) > 20
    errors = UsdValidation.ValidationContext(validators).Validate(stage)
    return [f"{error.GetName()}: {error.GetMessage()}" for error in errors]


def world_matrix(stage: Usd.Stage, path: str, time: float | None = None) -> np.ndarray:
    """The pose of a prim as a matrix for column vectors."""
    prim = stage.GetPrimAtPath(path)
    assert prim, path
    when = Usd.TimeCode.Default() if time is None else Usd.TimeCode(time)
    return np.array(UsdGeom.Xformable(prim).ComputeLocalToWorldTransform(when)).T
