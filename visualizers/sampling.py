"""When it is time for the next picture or sample of a recording."""

__all__ = ["SampleClock"]

_ROUNDING = 1e-7  # [s]


class SampleClock:
    """Counts simulation time, and tells when a sample is due: at the rate on average, and never twice in one moment.

    Args:
        rate: Samples per second of simulation time [Hz].

    Attributes:
        seconds: The time that has been counted [s].
    """

    def __init__(self, rate: float):
        self.seconds = 0.0
        self._period = 1.0 / rate
        self._due = 0.0

    def advance(self, dt: float) -> bool:
        """Count `dt` [s]; whether a sample is due now. The first one is at once."""
        is_due = self.is_due_after(dt)
        self.seconds += dt
        if not is_due:
            return False
        self._due = max(self._due + self._period, self.seconds + 2.0 * _ROUNDING)
        return True

    def is_due_after(self, dt: float) -> bool:
        """Whether a sample is due when `dt` [s] more have passed."""
        return self.seconds + dt >= self._due - _ROUNDING
