"""What holds for every test."""

import pytest

from scene_data import SimulationContext


@pytest.fixture(autouse=True)
def _leaves_no_simulation_open():
    """A simulation that a test leaves open would be the one that `instance()` names in those after it."""
    before = SimulationContext.instance()
    yield
    left = SimulationContext.instance()
    if left is not before:
        SimulationContext.clear_instance()
        pytest.fail("the test left a simulation open" if left else "the test closed the simulation of a fixture")
