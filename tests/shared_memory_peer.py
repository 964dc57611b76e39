"""Another process at shared memory: `python shared_memory_peer.py ROLE NAME ...`."""

import sys
import time

from listening import digest

from scene_data.renderers.transports import SharedMemoryReader

WAIT_S = 20.0


def tell(*words: object) -> None:
    print(*words, flush=True)


def read(name: str, camera: str, plane: str) -> None:
    """Say what each frame is."""
    reader = SharedMemoryReader(name, WAIT_S)
    tell("modules", *({"mujoco", "torch"} & set(sys.modules)))
    last = 0
    while (lease := reader.wait(camera, plane, last, WAIT_S)) is not None:
        last = lease.sequence
        tell("frame", lease.stamp.simulation_time_ns, digest(lease.numpy()))


def hold(name: str, camera: str, plane: str, count: str) -> None:
    """Keep so many frames for ever."""
    reader, held = SharedMemoryReader(name, WAIT_S), []
    while len(held) < int(count):
        lease = reader.wait(camera, plane, held[-1].sequence if held else 0, WAIT_S)
        assert lease is not None
        held.append(lease)
        tell("held", lease.stamp.simulation_time_ns)
    time.sleep(1e6)


def check(name: str, camera: str, plane: str, seconds: str) -> None:
    """Look at frames, all pixels of which are to be their capture id, at once and again after later ones."""
    reader = SharedMemoryReader(name, WAIT_S)
    held, frames, wrong = [], 0, 0
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        lease = reader.wait(camera, plane, held[-1][1] if held else 0, WAIT_S)
        assert lease is not None
        held.append((lease.stamp.capture_id, lease.sequence, lease.numpy()))
        del lease
        frames += 1
        for capture_id, _, pixels in held:
            wrong += int((pixels != capture_id % 251).any())
        if len(held) == 3:
            del held[0]
    tell("checked", frames, wrong)


def produce(name: str) -> None:
    """Publish a simulation for ever."""
    import mujoco
    from test_simulation import TOP, XML, open_context

    from scene_data.renderers.transports import SharedMemoryTransport

    with open_context(mujoco.MjModel.from_xml_string(XML), cameras=(TOP,)) as sim:
        sim.add_transport(SharedMemoryTransport(name))
        while True:
            sim.step()
            time.sleep(0.001)


if __name__ == "__main__":
    {"read": read, "hold": hold, "check": check, "produce": produce}[sys.argv[1]](*sys.argv[2:])
