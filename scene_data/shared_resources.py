"""What several consumers of one simulation share: built once per configuration, closed with the simulation."""

from typing import Any

__all__ = ["SharedResources"]


class SharedResources:
    """Resources by the configuration that they were built from. Equal configurations share one."""

    def __init__(self) -> None:
        self._entries: list[tuple[Any, Any]] = []

    def get_or_create(self, cfg: Any) -> Any:
        """The resource of this configuration, built with `cfg.create()` where there is none yet.

        Raises:
            TypeError: The configuration has no `create()`.
        """
        for known, resource in self._entries:
            if type(known) is type(cfg) and known == cfg:
                return resource
        create = getattr(cfg, "create", None)
        if not callable(create):
            raise TypeError(f"a configuration of a shared resource has a create(); {type(cfg).__name__} has none")
        resource = create()
        self._entries.append((cfg, resource))
        return resource

    def release(self, resource: Any) -> None:
        """Close one resource and forget it; one that fails to close stays known.

        Raises:
            KeyError: It is none of these.
        """
        for index, (_, known) in enumerate(self._entries):
            if known is resource:
                _close(resource)
                del self._entries[index]
                return
        raise KeyError(resource)

    def close(self) -> None:
        """Close every resource, the last one first.

        Raises:
            ExceptionGroup: Resources that failed to close; the others were closed all the same.
        """
        failures: list[Exception] = []
        while self._entries:
            _, resource = self._entries.pop()
            try:
                _close(resource)
            except Exception as failure:  # the others have to be closed too
                failures.append(failure)
        if failures:
            raise ExceptionGroup("closing shared resources failed", failures)


def _close(resource: Any) -> None:
    if close := getattr(resource, "close", None):
        close()
