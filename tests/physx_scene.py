"""A USD scene in `ovphysx` on the CPU, for the tests of its backend."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _prepare() -> None:
    """Once per process, and before the first scene: the schemas, no CUDA, and no worker threads."""
    import ovphysx
    import ovstage
    from ovphysx.samples.python_samples.schema_support import physx_schema_paths
    from ovphysx.types import GlobalConfigKey

    schemas = [*map(str, physx_schema_paths()), str(ovphysx.newton_schema_root())]
    ovstage.population.register_usd_schemas(schemas)
    ovphysx.PhysX.set_cpu_mode(True)
    ovphysx.set_global_config(GlobalConfigKey.NUM_THREADS, 0)


def attach(scene: str | Path) -> tuple[Any, Callable[[], None]]:
    """Open a scene.

    Args:
        scene: USDA text, or the path of a file.

    Returns:
        The `ovphysx.PhysX` with the scene attached, and what closes it.
    """
    import ovphysx
    import ovstage

    _prepare()
    physx = ovphysx.PhysX()
    stage = ovstage.Stage("scene")
    open_usd = ovstage.population.open_usd if isinstance(scene, Path) else ovstage.population.open_usd_from_string
    open_usd(stage, str(scene), ordinal=1, domains=ovstage.PopulationDomain.ALL)
    stage.advance_write_floor(ordinal=1).wait()
    physx.wait_task(physx.attach_ovstage(stage, read_ordinal=1))

    def close() -> None:
        physx.wait_all()
        physx.wait_task(physx.detach_ovstage())
        stage.destroy()
        physx.destroy()

    return physx, close
