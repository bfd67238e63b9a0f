"""Watches of interest: called when a listener comes or goes, and only then."""

from jetraft.api.plane._plane import Plane
from jetraft.api.plane.interest import InterestWatches
from jetraft.api.sessions.connect import ConnectOptions


def make_plane() -> Plane:
    return Plane(
        max_payload=1024,
        max_control_line=1024,
        max_pending=1 << 20,
        max_subscriptions=0,
        connect_handler=lambda _cid, _text: ConnectOptions(verbose=False),
        first_ping_handler=lambda _cid: b"",
        violation_handler=lambda _cid, _kind, _subject, _queue, _sid: b"",
    )


def test_a_watch_is_called_once_per_turn_when_a_listener_comes_or_goes() -> None:
    plane = make_plane()
    watches, calls = InterestWatches(plane), list[str]()
    watches.add(watches.plane.account("$G"), b"inbox.1", lambda: calls.append("one"))
    watches.add(watches.plane.account("$G"), b"inbox.2", lambda: calls.append("two"))
    cid = plane.open(-1, b"")
    plane.feed(cid, b"CONNECT {}\r\nSUB inbox.1 1\r\nSUB inbox.1 2\r\nSUB other 3\r\n")
    watches.run()
    assert calls == ["one"]
    plane.feed(cid, b"UNSUB 1\r\n")
    watches.run()
    assert calls == ["one", "one"]
    plane.feed(cid, b"SUB inbox.* 4\r\n")
    watches.run()
    assert sorted(calls) == ["one", "one", "one", "two"]


def test_an_ended_watch_is_not_called_and_nothing_is_noted_without_watches() -> None:
    plane = make_plane()
    watches, calls = InterestWatches(plane), list[str]()
    handle = watches.add(watches.plane.account("$G"), b"a", lambda: calls.append("a"))
    watches.remove(handle)
    watches.remove(handle)
    cid = plane.open(-1, b"")
    plane.feed(cid, b"CONNECT {}\r\nSUB a 1\r\n")
    assert plane.take_interest_changes() == ()
    watches.run()
    assert calls == []


def test_interest_of_a_peer_counts_and_ends_with_its_link() -> None:
    left, right = make_plane(), make_plane()
    watches, calls = InterestWatches(left), list[str]()
    watches.add(watches.plane.account("$G"), b"a", lambda: calls.append("a"))
    here, there = left.open_route(), right.open_route()
    cid = right.open(-1, b"")
    right.feed(cid, b"CONNECT {}\r\nSUB a 1\r\n")
    for _, records in right.take_routes():
        left.on_route(here, records)
    watches.run()
    assert calls == ["a"]
    left.close_route(here)
    watches.run()
    assert calls == ["a", "a"]
    right.close_route(there)


def test_a_stream_that_begins_to_capture_a_subject_listens_to_it() -> None:
    plane = make_plane()
    watches, calls = InterestWatches(plane), list[str]()
    watches.add(watches.plane.account("$G"), b"a.b", lambda: calls.append("a.b"))
    handle = plane.add_sink(plane.account("$G"), b"a.>", lambda _batch: None)
    watches.run()
    assert calls == ["a.b"]
    plane.remove_sink(handle)
    watches.run()
    assert calls == ["a.b", "a.b"]


def test_only_a_subscription_to_the_very_subject_counts_as_one() -> None:
    left, right = make_plane(), make_plane()
    account, here, there = left.account("$G"), left.open_route(), right.open_route()
    cid = left.open(-1, b"")
    left.feed(cid, b"CONNECT {}\r\nSUB a.* 1\r\nSUB > 2\r\nSUB a.b.c 3\r\n")
    assert left.has_interest(account, b"a.b")
    assert not left.is_subscribed(account, b"a.b")
    left.feed(cid, b"SUB a.b q 4\r\n")
    assert left.is_subscribed(account, b"a.b")
    left.feed(cid, b"UNSUB 4\r\n")
    assert not left.is_subscribed(account, b"a.b")
    far = right.open(-1, b"")
    right.feed(far, b"CONNECT {}\r\nSUB a.b 1\r\n")
    for _, records in right.take_routes():
        left.on_route(here, records)
    assert left.is_subscribed(account, b"a.b")
    assert there > 0
