"""What consumers need of an engine beyond the scene description, checked before they are built."""

from collections.abc import Iterable

from scene_data.errors import UnmetRequirementError
from scene_data.provider import SceneDataProvider
from scene_data.registry import backends
from scene_data.scene import SceneDescription

__all__ = ["check_requirements", "require_natives"]


def require_natives(consumer: str, needs: Iterable[str], scene: SceneDescription | None) -> None:
    """Compare the engine's own models that a consumer needs with those that a scene was described from.

    Args:
        consumer: Who needs them, to begin the message with, for example `"viewer 'newton'"`.
        needs: Keys of `SceneDescription.native`.
        scene: What the consumer would show; None has nothing.

    Raises:
        UnmetRequirementError: One of them is not there; the message names the backends that have it.
    """
    for need in needs:
        if scene is None or scene.native(need) is None:
            able = [name for name, backend in backends.installed() if need in getattr(backend, "provides", ())]
            raise UnmetRequirementError(consumer, need, able)


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
    if needs:
        require_natives(consumer, needs, provider.backend.describe_scene())
