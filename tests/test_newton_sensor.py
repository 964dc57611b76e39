"""A kept update of Newton's sensor draws what the sensor's own update draws."""

import threading
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import warp as wp
from film_set import HEIGHT, WIDTH, XML

newton = pytest.importorskip("newton", reason="newton is not installed")

from newton.sensors import SensorCamera  # noqa: E402

from scene_data.backends.mjcf_scene import describe_model  # noqa: E402
from scene_data.interop.newton import build_newton_look  # noqa: E402
from scene_data.renderers.newton_sensor import kept_update  # noqa: E402

CPU = wp.get_device("cpu")


@wp.kernel(module="unique", enable_backward=False)
def _add(values: wp.array[wp.int32], number: int):
    values[wp.tid()] += number


@pytest.fixture(scope="module")
def model():
    return build_newton_look(describe_model(mujoco.MjModel.from_xml_string(XML.format(option=""))), CPU).model


@pytest.fixture
def sensor(model) -> SensorCamera:
    return SensorCamera(model)


def request_for(sensor: SensorCamera, model, image: wp.array) -> dict:
    poses = wp.array([wp.transform((0.0, 0.0, 3.0), wp.quat_identity())], dtype=wp.transform, device=CPU)
    return {
        "state": model.state(),
        "camera_transforms": poses,
        "camera_rays": sensor.compute_camera_rays_pinhole(WIDTH, HEIGHT, camera_fov=1.0, device=CPU),
        "forward_depth_image": image,
        "sync_deformables": False,
    }


def test_it_follows_what_its_arrays_contain(sensor, model):
    kept_image, image = (wp.zeros((1, HEIGHT, WIDTH), dtype=wp.float32, device=CPU) for _ in range(2))
    request = request_for(sensor, model, kept_image)
    update = kept_update(sensor, request)
    assert not kept_image.numpy().any()
    pictures = []
    for height in (3.0, 5.0):
        request["camera_transforms"].assign(wp.transform((0.0, 0.0, height), wp.quat_identity()))
        update()
        sensor.update(**(request | {"forward_depth_image": image}))
        np.testing.assert_array_equal(kept_image.numpy(), image.numpy())
        pictures.append(kept_image.numpy().copy())
    assert (pictures[0] > 0).any()
    assert (pictures[0] != pictures[1]).any()


class Launching:
    """A sensor whose update is some launches from the module of Newton's."""

    def __init__(self, sensor: SensorCamera, *launches):
        self._render_context = sensor._render_context
        self._launches = launches

    def update(self) -> None:
        from newton._src.sensors.sensor_camera_render import render_context

        for launch in self._launches:
            launch(SimpleNamespace(wp=render_context.wp))


def add(values: wp.array, number: int):
    return lambda module: module.wp.launch(_add, values.size, [values, number], device=CPU)


def test_what_is_more_than_one_launch_stays_the_sensors_own(sensor):
    values = wp.zeros(3, dtype=wp.int32, device=CPU)
    update = kept_update(Launching(sensor, add(values, 1), add(values, 10)), {})
    assert not values.numpy().any()
    update()
    assert values.numpy().tolist() == [11, 11, 11]
    update()
    assert values.numpy().tolist() == [22, 22, 22]


def test_other_threads_launch_as_ever_meanwhile(sensor):
    mine, others = (wp.zeros(3, dtype=wp.int32, device=CPU) for _ in range(2))

    def elsewhere(module):
        thread = threading.Thread(target=add(others, 5), args=(module,))
        thread.start()
        thread.join()

    update = kept_update(Launching(sensor, add(mine, 1), elsewhere), {})
    assert others.numpy().tolist() == [5, 5, 5]
    assert not mine.numpy().any()
    update()
    assert mine.numpy().tolist() == [1, 1, 1]
    assert others.numpy().tolist() == [5, 5, 5]


def test_a_failure_leaves_the_sensors_module_as_it_was(sensor, model):
    from newton._src.sensors.sensor_camera_render import render_context

    request = request_for(sensor, model, wp.zeros((1, 3, 3), dtype=wp.float32, device=CPU))
    with pytest.raises(ValueError, match="forward_depth_image shape"):
        kept_update(sensor, request)
    assert render_context.wp is wp
