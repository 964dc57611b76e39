"""The render backend of a build without rendering: everything works but the pictures."""

from collections.abc import Sequence
from typing import Any

from scene_data.renderers.render_core.backend import RenderBackend, RenderConfiguration
from scene_data.renderers.render_core.demand import RenderPlan
from scene_data.renderers.render_core.frames import FrameBoundary
from scene_data.renderers.render_core.status import RenderStatus, RenderStatusCode

__all__ = ["DisabledRenderBackend"]

_UNAVAILABLE = RenderStatus(RenderStatusCode.BACKEND_UNAVAILABLE, "rendering is disabled")


class DisabledRenderBackend(RenderBackend):
    """Answers every call with BACKEND_UNAVAILABLE."""

    def initialize(self, scene: Any, configuration: RenderConfiguration) -> RenderStatus:
        """BACKEND_UNAVAILABLE."""
        return _UNAVAILABLE

    def resize(self, configuration: RenderConfiguration) -> RenderStatus:
        """BACKEND_UNAVAILABLE."""
        return _UNAVAILABLE

    def render(self, snapshot: Any, plans: Sequence[RenderPlan], boundary: FrameBoundary) -> RenderStatus:
        """BACKEND_UNAVAILABLE."""
        return _UNAVAILABLE

    def shutdown_on_render_thread(self) -> None:
        """There is nothing to end."""
