"""Where a clone plan puts its prototypes."""

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from scene_data.scene import ClonePlan

__all__ = ["CloneRoute", "ancestors", "clone_routes", "env_template", "match_template", "rebase"]

_ANY_NAME = re.compile(r"\[\^/\][*+]")


@dataclass(frozen=True)
class CloneRoute:
    """A prototype, and where it goes.

    Attributes:
        source: Path under which the prototype is authored.
        target: Path of its copies, with `{}` for the environment; without, of the one that all environments share.
        envs: Positions of these environments in the plan, ascending, or None if it is shared.
    """

    source: str
    target: str
    envs: tuple[int, ...] | None


def clone_routes(clone_plan: Any) -> tuple[CloneRoute, ...]:
    """Routes of a plan, those of shared prototypes first; what no environment uses has none.

    Args:
        clone_plan: Our `ClonePlan`, whose environment 0 is the prototype, or one with the fields of Isaac Lab's:
            `asset_cfgs` (each with `prim_path` and perhaps `spawn.spawn_path`), `env_template`, and `topology` with
            `world_prototypes`, `world_prototype_starts` and `world_prototype_layout`.
    """
    if isinstance(clone_plan, ClonePlan):
        return (CloneRoute(clone_plan.root.format(0), clone_plan.root, tuple(range(clone_plan.num_envs))),)
    topology = clone_plan.topology
    layout = np.asarray(topology.world_prototype_layout)
    starts = [int(start) for start in topology.world_prototype_starts]
    sources: dict[int, str] = {}
    routes = []
    for group, (start, end) in enumerate(pairwise(starts)):
        # Group 0 is what all share, and each later one a composition that the layout gives to environments.
        envs = None if group == 0 else tuple(int(env) for env in np.flatnonzero(layout == group - 1))
        if envs == ():
            continue
        assets = [int(asset) for asset in topology.world_prototypes[start:end]]
        for asset, target in zip(assets, _targets(clone_plan, assets, envs is None), strict=True):
            source = sources.setdefault(asset, _source(clone_plan.asset_cfgs[asset], target, envs))
            routes.append(CloneRoute(source, target, envs))
    return tuple(routes)


def env_template(clone_plan: Any) -> str:
    """Path of an environment of the plan, with `{}` for its index."""
    return clone_plan.root if isinstance(clone_plan, ClonePlan) else clone_plan.env_template


def match_template(path: str, template: str) -> tuple[str, str] | None:
    """What stands for `{}` in a path at or below a template, and the rest of the path; None if it is elsewhere.

    A pattern for any name, `.*` or `[^/]+`, counts as a name.
    """
    before, after = template.split("{}")
    pattern = f"{re.escape(before)}([^/]+){re.escape(after)}(/.*)?"
    match = re.fullmatch(pattern, _ANY_NAME.sub("*", path))
    return (match[1], match[2] or "") if match else None


def ancestors(path: str) -> list[str]:
    """Paths of the prims from below the root down to `path` itself."""
    names = path.strip("/").split("/")
    return ["/" + "/".join(names[: count + 1]) for count in range(len(names))]


def rebase(path: str, source: str, target: str) -> str:
    """`path`, which is at or below `source`, moved to the same place at or below `target`."""
    return target + path.removeprefix(source)


def _targets(clone_plan: Any, assets: list[int], shared: bool) -> list[str]:
    """Where each asset of one composition goes; what would collide gets a number."""
    taken: defaultdict[str, int] = defaultdict(int)
    targets: list[str] = []
    for asset in assets:
        path = target = _target(clone_plan.asset_cfgs[asset].prim_path, clone_plan.env_template, shared)
        while target in targets:
            taken[path] += 1
            target = f"{path}_{taken[path]}"
        targets.append(target)
    return targets


def _target(prim_path: str, template: str, shared: bool) -> str:
    match = match_template(prim_path, template)
    path = template + match[1] if match else prim_path
    if shared:
        return path.replace("{}", "shared")
    return path if match else f"{template}/{prim_path.rpartition('/')[2]}"


def _source(asset_cfg: Any, target: str, envs: tuple[int, ...] | None) -> str:
    spawned = getattr(getattr(asset_cfg, "spawn", None), "spawn_path", None)
    if spawned is not None:
        return spawned
    return target if envs is None else target.format(envs[0])
