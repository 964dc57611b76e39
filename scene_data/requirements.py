"""What consumers need of an engine beyond the scene description, checked before they are built."""

from collections.abc import Iterable

from scene_data.errors import UnmetRequirementError
from scene_data.provider import SceneDataProvider
from scene_data.registry import backends

__all__ = ["check_requirements"]


def check_requirements(consumer: str, needs: Iterable[str], provider: SceneDataProvider) -> None:
    """Compare what a consumer needs with what the provider's engine offers.

    Args:
        consumer: Who needs it, to begin the message with, for example `"viewer 'newton'"`.
        needs: Among `"usd_stage"`, `"newton_model"` and `"mujoco_model"`.
        provider: What the consumer would read.

    Raises:
        UnmetRequirementError: One of them is not offered; the message names the backends that do.
    """
    needs = [need for need in needs if need != "usd_stage" or provider.usd_stage is None]
    if not needs:
        return
    scene = provider.backend.describe_scene()
    for need in needs:
        if scene.native(need) is None:
            able = [name for name, backend in backends.installed() if need in getattr(backend, "provides", ())]
            raise UnmetRequirementError(consumer, need, able)
