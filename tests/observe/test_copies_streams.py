"""Which waits of the host cover which copies: a vector clock over streams and events."""

from __future__ import annotations

import pytest

from devguard.observe.streams import Streams

MAIN, SIDE, OTHER_DEVICE = (0, 0), (0, 7), (1, 0)


class Event:
    """An event is known by its identity alone."""


@pytest.fixture
def streams() -> Streams:
    return Streams()


def test_nothing_is_complete_before_a_wait(streams: Streams) -> None:
    assert not streams.complete(MAIN, streams.tick())


def test_a_wait_for_the_stream_covers_what_is_in_it(streams: Streams) -> None:
    before = streams.tick()
    streams.stream_synchronized(MAIN)
    after = streams.tick()
    assert streams.complete(MAIN, before)
    assert not streams.complete(MAIN, after)


def test_a_wait_for_another_stream_covers_nothing(streams: Streams) -> None:
    copy = streams.tick()
    streams.stream_synchronized(SIDE)
    assert not streams.complete(MAIN, copy)


def test_a_wait_for_the_device_covers_its_streams_and_no_other_device(streams: Streams) -> None:
    copy = streams.tick()
    streams.device_synchronized(0)
    assert streams.complete(MAIN, copy)
    assert streams.complete(SIDE, copy)
    assert not streams.complete(OTHER_DEVICE, copy)


def test_an_event_covers_what_was_before_it(streams: Streams) -> None:
    event = Event()
    before = streams.tick()
    streams.event_recorded(event, MAIN)
    after = streams.tick()
    streams.event_synchronized(event)
    assert streams.complete(MAIN, before)
    assert not streams.complete(MAIN, after)


def test_an_event_that_was_never_recorded_covers_nothing(streams: Streams) -> None:
    copy = streams.tick()
    streams.event_synchronized(Event())
    assert not streams.complete(MAIN, copy)


def test_a_stream_that_waited_for_another_covers_both(streams: Streams) -> None:
    copy = streams.tick()
    streams.stream_waits_stream(MAIN, SIDE)
    later = streams.tick()
    streams.stream_synchronized(MAIN)
    assert streams.complete(SIDE, copy)
    assert not streams.complete(SIDE, later)


def test_waiting_passes_on_through_events(streams: Streams) -> None:
    copied, computed = Event(), Event()
    copy = streams.tick()
    streams.event_recorded(copied, SIDE)
    streams.stream_waits_event(MAIN, copied)
    streams.event_recorded(computed, MAIN)
    streams.event_synchronized(computed)
    assert streams.complete(SIDE, copy)


def test_the_table_of_events_is_bounded(streams: Streams) -> None:
    events = [Event() for _ in range(1000)]
    for event in events:
        streams.event_recorded(event, MAIN)
    assert len(streams._events) <= 256
