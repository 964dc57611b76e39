"""Lights of a USD stage."""

import math

import numpy as np
from pxr import Gf, Usd, UsdGeom, UsdLux

from scene_data.scene_parts import LightDescription

__all__ = ["define_ambient_light", "define_light"]

_POINT_RADIUS = 0.01


def define_light(stage: Usd.Stage, path: str, light: LightDescription, reach: float) -> Usd.Prim:
    """Write a light; its pose is the caller's. It shines along its -Z.

    The model's classic lights know neither units nor falloff: theirs is the strength that shows a white surface white
    where it faces the light, at the distance `reach` if the light has a place. The image of an image light is left out.

    Args:
        stage: Where to define it.
        path: Its path.
        light: What it is like.
        reach: How far from the light the scene is [m].
    """
    if light.type == "image":
        defined = UsdLux.DomeLight.Define(stage, path)
        strength = 1.0
    elif light.type == "directional":
        defined = UsdLux.DistantLight.Define(stage, path)
        strength = math.pi
    else:
        defined = UsdLux.SphereLight.Define(stage, path)
        defined.CreateRadiusAttr(max(light.bulb_radius, _POINT_RADIUS))
        # A sphere of power P, which is what a normalized intensity means, gives P / (4 d^2).
        strength = 4.0 * (light.intensity or math.pi * reach**2)
    if light.type == "spot":
        shaping = UsdLux.ShapingAPI.Apply(defined.GetPrim())
        shaping.CreateShapingConeAngleAttr(light.cutoff)
        shaping.CreateShapingConeSoftnessAttr(light.softness)
    shadow = UsdLux.ShadowAPI.Apply(defined.GetPrim())
    shadow.CreateShadowEnableAttr(light.casts_shadow)
    defined.CreateNormalizeAttr(light.type != "image")
    defined.CreateIntensityAttr(strength)
    defined.CreateColorAttr(Gf.Vec3f(*light.diffuse.tolist()))
    if not light.active:
        UsdGeom.Imageable(defined.GetPrim()).CreateVisibilityAttr(UsdGeom.Tokens.invisible)
    return defined.GetPrim()


def define_ambient_light(stage: Usd.Stage, path: str, colour: np.ndarray) -> None:
    """Write a light that comes from everywhere, in the colour `(3,)`: a white surface shows that colour."""
    dome = UsdLux.DomeLight.Define(stage, path)
    dome.CreateIntensityAttr(1.0)
    dome.CreateColorAttr(Gf.Vec3f(*colour.tolist()))
