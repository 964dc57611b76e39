"""Who is due, and what alone changes that."""

import pytest

from scene_data.renderers import CameraDescriptor, DemandScheduler, PlaneKind

RGB, DEPTH, SEGMENTATION = PlaneKind.RGB, PlaneKind.DEPTH, PlaneKind.SEGMENTATION
FRONT = CameraDescriptor(1, "front", 8, 4, (SEGMENTATION, RGB, DEPTH))
WRIST = CameraDescriptor(2, "wrist", 8, 4, (RGB,))


@pytest.fixture
def scheduler():
    return DemandScheduler()


def serve(scheduler, now, camera_id=1):
    """Deliver to all who are due, and say who that was."""
    plan = scheduler.evaluate(now, camera_id)
    for consumer in plan.consumers:
        scheduler.mark_delivered(plan, consumer)
    return plan.consumers


def test_nobody_is_a_valid_outcome(scheduler):
    plan = scheduler.evaluate(0, 7)
    assert (plan.camera, plan.consumers, plan.planes, plan.frame_generation) == (None, (), (), 0)
    assert (plan.camera_id, plan.simulation_time_ns) == (7, 0)


def test_a_cadence_counts_from_time_zero_and_then_from_the_last_delivery(scheduler):
    consumer = scheduler.register_cadenced("ros", 100)
    due = [now for now in range(0, 501, 30) if serve(scheduler, now)]
    assert due == [120, 240, 360, 480]  # the first times at least 100 after the one before
    assert scheduler.evaluate(579, 1).consumers == ()
    assert scheduler.evaluate(580, 1).consumers == (consumer,)


def test_who_is_never_served_stays_due(scheduler):
    consumer = scheduler.register_cadenced("ros", 100)
    assert all(scheduler.evaluate(now, 1).consumers == (consumer,) for now in (100, 101, 150, 1000))


def test_time_that_runs_backwards_makes_a_cadence_due_at_once(scheduler):
    consumer = scheduler.register_cadenced("ros", 100)
    assert serve(scheduler, 1000) == (consumer,)
    assert serve(scheduler, 1050) == ()
    assert serve(scheduler, 0) == (consumer,)
    assert serve(scheduler, 99) == ()
    assert serve(scheduler, 100) == (consumer,)


def test_a_short_way_back_counts_too_and_waits_for_its_delivery(scheduler):
    consumer = scheduler.register_cadenced("ros", 100)
    serve(scheduler, 1000)
    scheduler.evaluate(1060, 1)
    assert scheduler.evaluate(1020, 1).consumers == (consumer,)  # back, but not before the last delivery
    assert scheduler.evaluate(1030, 1).consumers == (consumer,)
    serve(scheduler, 1030)
    assert scheduler.evaluate(1031, 1).consumers == ()


def test_cameras_have_clocks_of_their_own(scheduler):
    scheduler.register_cadenced("ros", 100)
    scheduler.evaluate(90, 1)
    assert scheduler.evaluate(10, 2).consumers == ()


def test_a_one_shot_is_due_after_each_request(scheduler):
    consumer = scheduler.register_one_shot("python")
    assert serve(scheduler, 0) == ()
    scheduler.request_one_shot(consumer)
    assert scheduler.evaluate(5, 1).consumers == (consumer,)
    assert serve(scheduler, 6) == (consumer,)
    assert serve(scheduler, 7) == ()
    scheduler.request_one_shot(consumer)
    assert serve(scheduler, 7) == (consumer,)


def test_a_continuous_consumer_is_always_due_while_enabled(scheduler):
    consumer = scheduler.register_continuous("viewer")
    assert [serve(scheduler, now) for now in (0, 0, 1)] == [(consumer,)] * 3
    scheduler.set_enabled(consumer, False)
    assert serve(scheduler, 2) == ()
    scheduler.set_enabled(consumer, True)
    assert serve(scheduler, 2) == (consumer,)


def test_only_a_delivery_answers_a_request_also_one_made_while_disabled(scheduler):
    consumer = scheduler.register_one_shot("python")
    scheduler.set_enabled(consumer, False)
    scheduler.request_one_shot(consumer)
    assert serve(scheduler, 0) == ()
    scheduler.set_enabled(consumer, True)
    assert serve(scheduler, 0) == (consumer,)


def test_consumers_are_in_the_order_of_their_growing_ids(scheduler):
    ids = [scheduler.register_continuous(name) for name in "cab"]
    assert ids == sorted(ids)
    assert scheduler.evaluate(0, 1).consumers == tuple(ids)
    scheduler.unregister(ids[0])
    assert scheduler.register_continuous("a") > ids[-1]


def test_a_consumer_of_one_camera_is_due_there_alone_and_of_camera_0_everywhere(scheduler):
    front = scheduler.register_continuous("front", camera_id=1)
    everywhere = scheduler.register_one_shot("all")
    scheduler.request_one_shot(everywhere)
    assert scheduler.evaluate(0, 1).consumers == (front, everywhere)
    assert serve(scheduler, 0, camera_id=2) == (everywhere,)
    assert serve(scheduler, 0, camera_id=2) == ()
    assert serve(scheduler, 0, camera_id=1) == (front, everywhere)


def test_planes_are_the_union_in_the_cameras_order(scheduler):
    scheduler.reconfigure(3, (FRONT, WRIST))
    scheduler.register_continuous("a", 1, (DEPTH,))
    plan = scheduler.evaluate(0, 1)
    assert (plan.planes, plan.camera, plan.frame_generation) == ((DEPTH,), FRONT, 3)
    b = scheduler.register_continuous("b", 1, (SEGMENTATION, DEPTH))
    assert scheduler.evaluate(0, 1).planes == (SEGMENTATION, DEPTH)
    c = scheduler.register_continuous("c", 0)
    assert scheduler.evaluate(0, 1).planes == FRONT.planes
    assert scheduler.evaluate(0, 2).planes == (RGB,)
    scheduler.unregister(b)
    scheduler.unregister(c)
    assert scheduler.evaluate(0, 1).planes == (DEPTH,)


def test_who_asks_every_camera_for_a_plane_is_not_due_where_there_is_none(scheduler):
    scheduler.reconfigure(1, (FRONT, WRIST))
    consumer = scheduler.register_continuous("depth", 0, (DEPTH,))
    assert scheduler.evaluate(0, 1).consumers == (consumer,)
    assert scheduler.evaluate(0, 2).consumers == ()


def test_alone_it_takes_any_camera_and_plans_what_was_asked(scheduler):
    scheduler.register_continuous("a", planes=(DEPTH, RGB))
    assert scheduler.evaluate(0, 99).planes == (RGB, DEPTH)


def test_registrations_and_cadences_survive_a_reconfigure(scheduler):
    scheduler.reconfigure(1, (FRONT,))
    consumer = scheduler.register_cadenced("ros", 100, 1)
    serve(scheduler, 100)
    scheduler.reconfigure(2, (FRONT, WRIST))
    assert scheduler.evaluate(150, 1).consumers == ()
    plan = scheduler.evaluate(200, 1)
    assert (plan.consumers, plan.frame_generation) == ((consumer,), 2)


def test_delivery_of_another_generation_or_to_a_stranger_is_an_error(scheduler):
    consumer = scheduler.register_continuous("a")
    stranger = scheduler.register_one_shot("b")
    plan = scheduler.evaluate(0, 1)
    with pytest.raises(ValueError, match="not in the plan"):
        scheduler.mark_delivered(plan, stranger)
    scheduler.reconfigure(2)
    with pytest.raises(ValueError, match="frame generation 0, not of 2"):
        scheduler.mark_delivered(plan, consumer)


def test_delivery_to_one_that_left_is_passed_over(scheduler):
    consumer = scheduler.register_continuous("a")
    plan = scheduler.evaluate(0, 1)
    scheduler.unregister(consumer)
    scheduler.mark_delivered(plan, consumer)


@pytest.mark.parametrize("interval", [0, -5])
def test_intervals_below_one_are_refused(scheduler, interval):
    with pytest.raises(ValueError, match="interval_ns"):
        scheduler.register_cadenced("a", interval)


def test_registrations_are_checked(scheduler):
    with pytest.raises(ValueError, match="no planes"):
        scheduler.register_continuous("a", planes=())
    with pytest.raises(ValueError, match="camera_id"):
        scheduler.register_continuous("a", -1)
    scheduler.reconfigure(1, (FRONT, WRIST))
    with pytest.raises(ValueError, match="camera id 3"):
        scheduler.register_continuous("a", 3)
    with pytest.raises(ValueError, match=r"'wrist' 'depth'.*rgb"):
        scheduler.register_continuous("a", 2, (DEPTH,))
    with pytest.raises(ValueError, match="camera id 3"):
        scheduler.evaluate(0, 3)


def test_unknown_consumers_and_requests_of_others_are_errors(scheduler):
    consumer = scheduler.register_continuous("viewer")
    with pytest.raises(ValueError, match="'viewer' is continuous"):
        scheduler.request_one_shot(consumer)
    scheduler.unregister(consumer)
    for use in (scheduler.unregister, scheduler.request_one_shot, lambda i: scheduler.set_enabled(i, True)):
        with pytest.raises(ValueError, match="consumer id"):
            use(consumer)
