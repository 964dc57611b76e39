"""What holds for every test."""

import pytest
from hypothesis import HealthCheck, settings

from scene_data import SimulationContext

# How long an example takes says something about the machine, not about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _leaves_no_simulation_open():
    """A simulation that a test leaves open would be the one that `instance()` names in those after it."""
    before = SimulationContext.instance()
    yield
    left = SimulationContext.instance()
    if left is not before:
        SimulationContext.clear_instance()
        pytest.fail("the test left a simulation open" if left else "the test closed the simulation of a fixture")
