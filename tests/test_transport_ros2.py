"""What only ROS 2 has: domains, and rclpy where there is one."""

import sys
import threading
import types

import mujoco
import pytest
from listening import WAIT_S, wait_until
from ros_rigs import open_ros2
from test_simulation import TOP, XML, open_context

from scene_data.errors import MissingDependencyError
from scene_data.renderers.transports import Ros2Transport, TransportStatusCode


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def domain():
    with open_ros2() as rig:
        yield rig.domain


def captures(sim) -> int:
    return sim.render_core.stats()["captures"]


def test_nothing_is_left_of_a_closed_transport(model, domain):
    with open_context(model, cameras=(TOP,)) as sim:
        before = set(threading.enumerate())
        ros = sim.add_transport(Ros2Transport("/short"))
        sim.remove_transport(ros)
        assert set(threading.enumerate()) == before
        assert ros.status.code is TransportStatusCode.STOPPED


def test_others_discover_the_types_and_qualities_of_service_that_ros2_has(model, domain):
    from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.qos import Policy

    participant = DomainParticipant(domain)
    found: dict[str, tuple[str, ...]] = {}
    with open_context(model, cameras=(TOP,)) as sim:
        sim.add_transport(Ros2Transport("/robot"))
        discovery = BuiltinDataReader(participant, BuiltinTopicDcpsPublication)

        def discover() -> None:
            for offer in discovery.take(100):
                if offer.sample_info.valid_data:
                    policies = (Policy.Reliability, Policy.Durability, Policy.History)
                    name, *words = offer.type_name, *(str(offer.qos[policy]).split(".", 2)[2] for policy in policies)
                    found[offer.topic_name] = (name, words[0].partition("(")[0], *words[1:])

        wait_until(lambda: len(found) >= 9, "all topics are discovered", meanwhile=discover)
    image = ("sensor_msgs::msg::dds_::Image_", "Reliable", "Volatile", "KeepLast(depth=2)")
    info = ("sensor_msgs::msg::dds_::CameraInfo_", *image[1:])
    assert found == {
        "rt/robot/top/image_raw": image,
        "rt/robot/top/camera_info": info,
        "rt/robot/top/depth/image": image,
        "rt/robot/top/depth/image_raw": image,
        "rt/robot/top/depth/camera_info": info,
        "rt/robot/top/segmentation/image": image,
        "rt/robot/top/segmentation/camera_info": info,
        "rt/tf": ("tf2_msgs::msg::dds_::TFMessage_", "Reliable", "Volatile", "KeepLast(depth=100)"),
        "rt/clock": ("rosgraph_msgs::msg::dds_::Clock_", "BestEffort", "Volatile", "KeepLast(depth=1)"),
    }


@pytest.mark.parametrize("domain", [-1, 233])
def test_domains_that_do_not_exist(domain):
    with pytest.raises(ValueError, match=f"from 0 to 232, not {domain}"):
        Ros2Transport(domain_id=domain)


def test_a_domain_in_the_environment_that_is_no_number(monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", "seven")
    with pytest.raises(ValueError, match="not 'seven'"):
        Ros2Transport()


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setattr("scene_data.renderers.transports.ros2.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "scene_data.renderers.transports.ros2_cyclonedds", raising=False)
    monkeypatch.setitem(sys.modules, "cyclonedds.core", None)
    with pytest.raises(MissingDependencyError, match=r"scene-data\[ros2\]"):
        Ros2Transport()


class FakeRclpy(types.ModuleType):
    """As much of rclpy as is called, by its documentation."""

    def __init__(self):
        super().__init__("rclpy")
        self.published: list[tuple[str, bytes]] = []
        self.log: list[tuple] = []
        self.subscribers: set[str] = set()
        rclpy = self

        class Context:
            def __init__(self):
                self.up = False

            def ok(self):
                return self.up

            def shutdown(self):
                self.up = False

        class Publisher:
            def __init__(self, topic):
                self.topic = topic

            def get_subscription_count(self):
                return int(self.topic in rclpy.subscribers)

            def publish(self, message):
                assert isinstance(message, bytes)
                rclpy.published.append((self.topic, message))

        class Node:
            def create_publisher(self, message_class, topic, qos):
                rclpy.log.append((topic, message_class, qos["reliability"], qos["depth"]))
                return Publisher(topic)

            def destroy_publisher(self, publisher):
                rclpy.log.append(("destroyed", publisher.topic))

            def destroy_node(self):
                rclpy.log.append(("destroyed", "node"))

        def init(context, domain_id):
            context.up = True
            rclpy.log.append(("domain", domain_id))

        self.init = init
        self.create_node = lambda name, context: Node()
        self.context = types.SimpleNamespace(Context=Context)
        policy = types.SimpleNamespace(KEEP_LAST="keep", RELIABLE="reliable", BEST_EFFORT="best", VOLATILE="volatile")
        self.qos = types.SimpleNamespace(
            QoSProfile=dict, HistoryPolicy=policy, ReliabilityPolicy=policy, DurabilityPolicy=policy
        )

    def install(self, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "rclpy", self)
        for name in ("context", "qos"):
            module = types.ModuleType(f"rclpy.{name}")
            module.__dict__.update(vars(getattr(self, name)))
            monkeypatch.setitem(sys.modules, f"rclpy.{name}", module)
        for package, name in (
            ("sensor_msgs", "Image"),
            ("sensor_msgs", "CameraInfo"),
            ("tf2_msgs", "TFMessage"),
            ("rosgraph_msgs", "Clock"),
        ):
            module = sys.modules.get(f"fake {package}") or types.ModuleType(f"{package}.msg")
            monkeypatch.setitem(sys.modules, f"fake {package}", module)
            setattr(module, name, f"{package}/{name}")
            monkeypatch.setitem(sys.modules, f"{package}.msg", module)
            monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        monkeypatch.setattr("scene_data.renderers.transports.ros2.find_spec", lambda name: name == "rclpy")
        monkeypatch.delitem(sys.modules, "scene_data.renderers.transports.ros2_rclpy", raising=False)


def test_rclpy_is_used_where_it_is(model, monkeypatch):
    rclpy = FakeRclpy()
    rclpy.install(monkeypatch)
    with open_context(model, cameras=(TOP,)) as sim:
        ros = sim.add_transport(Ros2Transport("/robot", domain_id=5))
        assert ("domain", 5) in rclpy.log
        assert ("/robot/top/image_raw", "sensor_msgs/Image", "reliable", 2) in rclpy.log
        assert ("/clock", "rosgraph_msgs/Clock", "best", 1) in rclpy.log
        sim.step()
        assert captures(sim) == 0
        rclpy.subscribers.add("/robot/top/image_raw")
        sim.step()
        assert ros.flush(WAIT_S)
        assert ros.status.ok
        rgb = sim.cameras["top"].data.lease("rgb").numpy()[0]
        ((topic, message),) = rclpy.published
        assert topic == "/robot/top/image_raw"
        assert message[:4] == b"\x00\x01\x00\x00"
        assert message.rstrip(b"\x00").endswith(rgb.tobytes().rstrip(b"\x00"))
    assert rclpy.log[-1] == ("destroyed", "node")
