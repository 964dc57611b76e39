"""The publication queue: bounded, latest wins, nothing superseded goes out, and an end that rejects and drains."""

import gc
import threading
import weakref

import pytest

from scene_data.renderers.transports import BoundedPublicationQueue, PublicationWorker

WAIT_S = 5.0


class Frame:
    """Something whose end can be watched."""


class Gate:
    """A publication that waits until it is let through."""

    def __init__(self):
        self.entered = threading.Semaphore(0)
        self.open = threading.Semaphore(0)
        self.published: list = []

    def __call__(self, content) -> None:
        self.entered.release()
        assert self.open.acquire(timeout=WAIT_S)
        self.published.append(content)


def content_of(queue: BoundedPublicationQueue) -> list:
    items = []
    while (item := queue.take(timeout=0)) is not None:
        items.append(item.content)
    return items


def test_the_latest_win_and_the_displaced_are_counted():
    queue = BoundedPublicationQueue()
    assert queue.depth == 2
    assert all(queue.put(number) for number in range(5))
    assert len(queue) == 2
    assert queue.dropped == 3
    assert content_of(queue) == [3, 4]


@pytest.mark.parametrize("depth", [0, -1])
def test_a_depth_below_one_is_refused(depth):
    with pytest.raises(ValueError, match=f"depth of at least 1, not {depth}"):
        BoundedPublicationQueue(depth)


def test_what_was_made_for_an_earlier_demand_does_not_go_out():
    queue = BoundedPublicationQueue()
    queue.put("early")
    taken = queue.take(timeout=0)
    queue.put("waiting")
    assert queue.admits(taken)
    with queue.superseding():
        assert queue.sequence & 1
        assert not queue.admits(taken)
        assert not queue.put("between")
    assert queue.sequence == 2
    assert not queue.admits(taken)
    assert queue.dropped == 3
    queue.put("new")
    item = queue.take(timeout=0)
    assert item.content == "new"
    assert queue.admits(item)


def test_a_closed_queue_rejects_and_hands_out_what_is_left():
    queue = BoundedPublicationQueue()
    queue.put(1)
    queue.close()
    assert not queue.put(2)
    assert content_of(queue) == [1]
    assert queue.take() is None  # without a timeout: does not wait


def test_close_may_drop_what_is_left():
    queue = BoundedPublicationQueue()
    queue.put(1)
    queue.close(drain=False)
    assert queue.take() is None
    assert queue.dropped == 1


def test_a_publisher_that_hangs_keeps_nobody_waiting_and_gets_the_latest():
    gate = Gate()
    worker = PublicationWorker("test", gate)
    worker.queue.put(0)
    assert gate.entered.acquire(timeout=WAIT_S)
    for number in range(1, 100):
        assert worker.queue.put(number)
    for _ in range(3):
        gate.open.release()
    assert worker.close(timeout=WAIT_S)
    assert gate.published == [0, 98, 99]
    assert (worker.published, worker.queue.dropped) == (3, 97)


def test_demand_that_changes_while_an_item_waits_for_its_turn_drops_it():
    gate = Gate()
    worker = PublicationWorker("test", gate)
    worker.queue.put("under way")
    assert gate.entered.acquire(timeout=WAIT_S)
    worker.queue.put("superseded")
    with worker.queue.superseding():
        pass
    worker.queue.put("new")
    gate.open.release()
    gate.open.release()
    assert worker.close(timeout=WAIT_S)
    assert gate.published == ["under way", "new"]


def test_an_end_that_is_not_waited_for_any_longer_drops_what_is_left():
    gate = Gate()
    worker = PublicationWorker("test", gate)
    worker.queue.put("hanging")
    assert gate.entered.acquire(timeout=WAIT_S)
    worker.queue.put("left")
    assert not worker.close(timeout=0.05)
    gate.open.release()
    assert worker.close(timeout=WAIT_S)
    assert gate.published == ["hanging"]


def test_a_failed_publication_is_not_the_last_one(caplog):
    published = []

    def publish(content) -> None:
        if content == "bad":
            raise OSError("nobody there")
        published.append(content)

    worker = PublicationWorker("front", publish)
    worker.queue.put("bad")
    worker.queue.put("good")
    assert worker.close(timeout=WAIT_S)
    assert published == ["good"]
    assert "front failed to publish" in caplog.text


def test_an_idle_worker_holds_nothing():
    done = threading.Event()
    worker = PublicationWorker("test", lambda content: done.set())
    frame = Frame()
    gone = weakref.ref(frame)
    worker.queue.put(frame)
    assert done.wait(WAIT_S)
    del frame
    for _ in range(100):
        gc.collect()
        if gone() is None:
            break
        done.wait(0.01)
    assert gone() is None
    worker.close(timeout=WAIT_S)
